#pragma once

/// The part of a recorder that belongs to one module.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/value.hpp>

namespace torchtap::recorders {

class Recorder;
namespace detail {
class Record;
}
namespace extend {
struct Records;
}

/// A recorder's part for one module. Its recorder owns it; a reference is valid until the subrecorder is
/// removed or its recorder destroyed, also if more modules are attached or the recorder is moved.
///
/// Thread-safe, also while the model runs in other threads. Reductions and transforms run under its lock, so
/// they must not call it; conditions, error handlers and functions given to `apply` run outside of it.
///
/// Results are copies or, for kept samples, tensors that recording never changes. A copy of a subrecorder
/// refers to the same data and may outlive the recorder; if samples are spooled, it keeps the spool open.
class TORCHTAP_API Subrecorder {
 public:
  Subrecorder(const Subrecorder&) = default;  // no move, which would empty the recorder
  Subrecorder& operator=(const Subrecorder&) = delete;
  ~Subrecorder() = default;

  /// The module's path below the root it was attached through, as in `ModuleRef::path`; "" for the root.
  const std::string& path() const noexcept;
  /// The path, under the name that PyTorch has for it (`named_modules`).
  const std::string& name() const noexcept { return path(); }
  /// Further paths of a shared module.
  const std::vector<std::string>& aliases() const noexcept;
  /// The module's pretty type name.
  const std::string& type() const noexcept;
  /// Recorded events: forwards, or gradients that arrived. Not rows of a batch.
  std::int64_t samples() const noexcept;
  /// Events seen, recorded or not: with 0 the module never ran (or no gradient arrived).
  std::int64_t events() const noexcept;
  /// Events left out because the module handed over no tensors (see `Recorder`).
  std::int64_t without_tensors() const noexcept;
  /// Events dropped for lack of room (`RecorderOptions::spool`, `RecorderOptions::memory_budget`).
  std::int64_t dropped() const noexcept;
  /// Samples that found no companion, and companions that found no sample (`RecorderOptions::with`).
  std::int64_t unmatched() const noexcept;
  /// Events left out because their tensor does not fit the reduction: it differs from the first sample in
  /// shape or device, or it is sparse or nested. Kept samples that a spool cannot hold are counted, too.
  std::int64_t left_out() const noexcept;
  /// Why there may be no samples although the module ran: the program calls it in a way that cannot be seen
  /// (extras/transparent/README.md). Or what is missing among the samples: how many were `left_out`, and why
  /// the first, `dropped`, or `unmatched`. Or that hooks which Python compiled into a TorchScript file run
  /// around what was recorded. Empty if nothing is known.
  std::string note() const;
  /// The reduced value. Throws `c10::ValueError` if there are no samples, if every sample is kept (see
  /// `tensors`), or if the reduction has several results (it lists their names).
  at::Tensor tensor() const;
  /// One of the results of the reduction: `tensor("variance")`. Throws `c10::IndexError` listing the names.
  at::Tensor tensor(const std::string& result) const;
  /// 0 is no name; see `tensors` and `slot`.
  at::Tensor tensor(std::nullptr_t result) const = delete;
  /// All kept samples in order, undefined where the module was given no tensor. They are the recorder's
  /// memory, not copies: recording never changes it, and who writes to one of them changes what is recorded
  /// and what others have read; `clone()` it first. Throws `c10::ValueError` if the samples are reduced, or
  /// if a sample with `Capture::alias` was changed in place.
  std::vector<at::Tensor> tensors() const;
  /// The results of the reduction by name; empty while there are no samples.
  core::Results results() const;
  /// Everything as it would be saved: a tensor, a dict of results, or a list; with
  /// `RecorderOptions::all_tensors` a dict of one of these for each slot ("0", "1", …); nothing if there are
  /// no samples.
  core::Value value() const;

  /// The number of slots: with `RecorderOptions::all_tensors` all slots seen so far, otherwise 1.
  std::int64_t slots() const noexcept;
  /// The data of one slot, as `value`. Throws `c10::IndexError`.
  core::Value slot(std::int64_t index) const;

  /// Replaces the recorded data by `value`. The number of samples stays, unless `value` is a list, or with
  /// `RecorderOptions::all_tensors` a dict of lists: then it is the length of the longest. Lists, and
  /// reductions whose state is their value (Sum, Min, a callable…), continue from it; for any other
  /// reduction, recording another sample is an error until `reset`.
  void set(core::Value value);
  /// Applies `function` to the value, to each of several results, or to each kept sample, and stores it back
  /// as `set` does. Samples that other threads record while `function` runs are counted, but are not in the
  /// result.
  void apply(const std::function<at::Tensor(const at::Tensor&)>& function);
  /// Calls `function` also with the number of samples.
  void apply_sample(const std::function<at::Tensor(const at::Tensor&, std::int64_t samples)>& function);
  /// Discards all samples; the hook stays.
  void reset();
  /// Returns `value` and resets, as one moment: each sample that threads record meanwhile is in this value or
  /// in the next. Throws `c10::ValueError` if samples are spooled.
  [[nodiscard]] core::Value take();

  /// For torchtap: programs get one from a `Recorder`.
  explicit Subrecorder(std::shared_ptr<detail::Record> record) : record_(std::move(record)) {}

 private:
  friend class Recorder;
  friend struct extend::Records;
  std::shared_ptr<detail::Record> record_;
};

}  // namespace torchtap::recorders
