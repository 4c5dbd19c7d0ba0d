#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <torchtap/views/compare/fingerprints.hpp>
#include <torchtap/views/send/stream.hpp>

namespace torchtap::tools::preload {

/// The fingerprints of one process. The file is made when the first module is recorded, so that processes
/// that run no module have no file.
class Fingerprinting final : public recorders::Stream {
 public:
  /// `file` chooses it.
  Fingerprinting(std::function<std::string()> file, views::compare::FingerprintsOptions options)
      : file_(std::move(file)), options_(std::move(options)) {}

  std::shared_ptr<recorders::StreamSource> source(const storage::EntryId& id) override {
    const std::lock_guard lock(mutex_);
    return begun().stream()->source(id);
  }

  /// Writes the weights of a model, once.
  void write_weights(const void* model, const std::vector<model::ModuleRef>& modules) {
    const std::lock_guard lock(mutex_);
    if (models_.insert(model).second) begun().write_weights(modules);
  }

  /// Writes the buffered fingerprints. Returns how many tensors were written.
  std::int64_t end() {
    const std::lock_guard lock(mutex_);
    if (!prints_) return 0;
    prints_->close();
    return prints_->written();
  }

 private:
  views::compare::Fingerprints& begun() {
    if (!prints_) prints_.emplace(file_(), options_);
    return *prints_;
  }

  const std::function<std::string()> file_;
  const views::compare::FingerprintsOptions options_;
  std::mutex mutex_;
  std::optional<views::compare::Fingerprints> prints_;
  std::set<const void*> models_;
};

}  // namespace torchtap::tools::preload
