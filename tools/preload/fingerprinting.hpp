#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/views/compare/fingerprints.hpp>
#include <torchtap/views/send/stream.hpp>

#include "publishing.hpp"

namespace torchtap::tools::preload {

/// The fingerprints of one process, which the launcher writes to a file. They begin with the first module
/// that is recorded, so that processes that run no module have no file.
class Fingerprinting final : public recorders::Stream {
 public:
  explicit Fingerprinting(views::compare::FingerprintsOptions options) : options_(std::move(options)) {}

  std::shared_ptr<recorders::StreamSource> source(const storage::EntryId& id) override {
    const std::lock_guard lock(mutex_);
    return begun().stream()->source(id);
  }

  /// Writes the weights of a model, once.
  void write_weights(const void* model, const std::vector<model::ModuleRef>& modules) {
    const std::lock_guard lock(mutex_);
    if (models_.insert(model).second) begun().write_weights(modules);
  }

  /// How many tensors were written so far.
  std::int64_t written() {
    const std::lock_guard lock(mutex_);
    return prints_ ? prints_->written() : 0;
  }
  /// Writes what is left. Throws if not all could be handed over.
  void end() {
    const std::lock_guard lock(mutex_);
    if (prints_) prints_->close();
  }

 private:
  views::compare::Fingerprints& begun() {
    if (!prints_) prints_.emplace(Publishing::here()->file(""), options_);
    return *prints_;
  }

  const views::compare::FingerprintsOptions options_;
  std::mutex mutex_;
  std::optional<views::compare::Fingerprints> prints_;
  std::set<const void*> models_;
};

}  // namespace torchtap::tools::preload
