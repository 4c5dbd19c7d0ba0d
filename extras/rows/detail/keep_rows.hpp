#pragma once

/// Defines `KeepRows`, which appends the rows of calls to a dump, and `Kept`, which has recorders do so
/// (`RecorderOptions::rows`).

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torchtap/recorders/extend/record.hpp>
#include <torchtap/recorders/extend/takes.hpp>
#include <torchtap/rows/detail/dump.hpp>
#include <torchtap/rows/detail/open_forwards.hpp>

namespace torchtap::rows::detail {

using recorders::extend::Fold;
using recorders::extend::Prepare;
using recorders::extend::Record;
using recorders::extend::Slots;
using recorders::extend::Taker;

/// Keeps the rows of the calls of one module.
class KeepRows final : public Taker {
 public:
  /// Throws `c10::ValueError` if the recording that is continued has other samples of this module.
  KeepRows(Slots& slots, Prepare& prepare, std::shared_ptr<Dump> dump, storage::Spool::Stream& rows);

  std::vector<hooks::Handle> companions(const std::shared_ptr<Record>& record,
                                        const model::ModuleRef& module) override;
  Took take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) override;
  std::int64_t seen() const noexcept override { return calls_.load() + slots_.counts.events(); }
  storage::Spool::Stream* spooled() override { return &rows_; }

 private:
  Call call_of(const hooks::Event& event, at::IntArrayRef sizes);
  void check(const at::Tensor& sample) const;
  void check_form(const at::Tensor& rows);
  Took append(Group& group, std::int64_t call, const at::Tensor& rows);

  Prepare& prepare_;
  const std::shared_ptr<Dump> dump_;
  storage::Spool::Stream& rows_;
  std::atomic<std::int64_t> calls_{0};
  std::mutex mutex_;
  std::shared_ptr<const OpenForwards> forwards_;  // `Recorder::replace` exchanges it
  // Under the lock of the slots:
  Form form_;
  storage::Spool::Stream* index_ = nullptr;  // made when the first rows come
};

/// What a recorder keeps instead of samples.
class Kept final : public recorders::extend::Takes {
 public:
  explicit Kept(Asked asked) : asked(std::move(asked)) {}
  const char* what() const noexcept override { return "keeps rows"; }
  void check(const std::string& kind, const recorders::RecorderOptions& options) const override;
  std::unique_ptr<Taker> taker(Slots& slots, Prepare& prepare, std::unique_ptr<Fold> folds) const override;
  std::unique_ptr<Taker> spooling_taker(Slots& slots, Prepare& prepare, storage::Spool& spool,
                                        storage::Spool::Stream& stream) const override;

  const Asked asked;

 private:
  mutable std::mutex mutex_;
  mutable std::map<storage::Spool*, std::weak_ptr<Dump>> dumps_;  // of recorders with these options
};

}  // namespace torchtap::rows::detail
