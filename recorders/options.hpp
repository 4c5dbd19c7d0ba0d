#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <torchtap/core/api.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/hooks/values.hpp>
#include <torchtap/storage/spool.hpp>

namespace torchtap::recorders {

/// One thing that may be recorded, as conditions see it. Valid only during the call.
class TORCHTAP_API Sample {
 public:
  /// Made by torchtap for each event.
  Sample(const std::string& path, const std::string& type, std::int64_t call_index, std::int64_t sample_index,
         std::int64_t slot, const at::Tensor& tensor, const hooks::Tensors* all = nullptr) noexcept
      : path_(path),
        type_(type),
        call_index_(call_index),
        sample_index_(sample_index),
        slot_(slot),
        tensor_(tensor),
        all_(all) {}

  /// The module's path and pretty type name.
  const std::string& path() const noexcept { return path_; }
  const std::string& type() const noexcept { return type_; }
  /// Which call of this module within one forward of the root, from 0.
  std::int64_t call_index() const noexcept { return call_index_; }
  /// How many samples this subrecorder had recorded before.
  std::int64_t sample_index() const noexcept { return sample_index_; }
  /// The place among the flattened inputs or outputs of the tensor that the condition is shown; with
  /// `all_tensors` that is the first one.
  std::int64_t slot() const noexcept { return slot_; }
  /// The tensor itself, not copied; it may require gradients, and is undefined where the module was given
  /// none.
  const at::Tensor& tensor() const noexcept { return tensor_; }
  /// How many tensors would be recorded of this event: with `all_tensors` all inputs or outputs, else one.
  std::int64_t tensors() const noexcept { return all_ != nullptr ? all_->size() : 1; }
  /// The `index`th of these. Throws `c10::IndexError`.
  const at::Tensor& tensor(std::int64_t index) const;

 private:
  const std::string& path_;
  const std::string& type_;
  std::int64_t call_index_;
  std::int64_t sample_index_;
  std::int64_t slot_;
  const at::Tensor& tensor_;
  const hooks::Tensors* all_;
};

/// A transform for `Options::transform`: the values of a quantized tensor, any other tensor as it is.
TORCHTAP_API at::Tensor dequantized(const at::Tensor& tensor);

/// How a tensor is kept.
enum class Capture {
  /// A detached copy: never changes, whatever happens to the tensor later.
  copy,
  /// Detached, sharing the tensor's memory: costs nothing, but a later in-place change makes it worthless.
  /// Such a change is detected, and reported when the recording is read.
  alias,
};

/// What happens to a sample for which there is no memory any more (`Options::memory_budget`).
enum class OverBudget {
  /// `c10::Error`; it is not recorded, all before it are.
  raise,
  /// It is left out, and counted (`Subrecorder::dropped`).
  drop,
};

/// What a recorder does with each event. Chained like LibTorch's own options:
///
///     Options().condition([&] { return epoch > 3; }).reduction(reductions::Moments{})
class TORCHTAP_API Options {
 public:
  /// What is asked whether a sample is recorded.
  using Condition = std::function<bool(const Sample&)>;
  /// What is made of a tensor before it is recorded.
  using Transform = std::function<at::Tensor(const at::Tensor&)>;
  /// What is called with the path of the module and the error.
  using ErrorHandler = std::function<void(const std::string& path, const std::exception_ptr& error)>;

  /// Asked once per event, before anything is copied; where it says no, nothing is recorded and no counter
  /// moves. A callable without arguments, or one that is given the `Sample`. Where the model runs in several
  /// threads, several call it at the same time.
  template <class Callable>
  Options& condition(Callable&& callable) {
    static_assert(
        std::is_invocable_r_v<bool, Callable&> || std::is_invocable_r_v<bool, Callable&, const Sample&>,
        "condition needs a callable bool() or bool(const torchtap::recorders::Sample&)");
    if constexpr (std::is_invocable_r_v<bool, Callable&>) {
      nullary_condition_ = std::forward<Callable>(callable);
      condition_ = nullptr;
    } else {
      condition_ = std::forward<Callable>(callable);
      nullary_condition_ = nullptr;
    }
    return *this;
  }
  const Condition& condition() const noexcept { return condition_; }
  /// The condition without arguments; empty if there is none.
  const std::function<bool()>& nullary_condition() const noexcept { return nullary_condition_; }

  /// Folds the samples of each subrecorder instead of keeping them: one of `torchtap::reductions`, a type of
  /// your own (`core::is_reduction_v`), or a callable `(accumulated, sample) -> accumulated`. Each
  /// subrecorder works on its own copy; where several threads come to one at the same time, and the reduction
  /// does not depend on the order (`commutative`), each of them on a copy that is merged when the result is
  /// asked for.
  template <class Reduction>
  Options& reduction(Reduction&& reduction) {
    reduction_ = core::make_sink(std::forward<Reduction>(reduction));
    return *this;
  }
  /// Null where every sample is kept.
  const std::shared_ptr<const core::Sink>& reduction() const noexcept { return reduction_; }

  /// Records the `slot`-th tensor of the flattened inputs, outputs or gradients. The default is 0, the first.
  Options& tensor(std::int64_t slot);
  /// Records all of them, each slot with data of its own (`Subrecorder::slot`).
  Options& all_tensors(bool all = true) {
    all_tensors_ = all;
    return *this;
  }
  std::int64_t tensor() const noexcept { return tensor_; }
  bool all_tensors() const noexcept { return all_tensors_; }

  /// Writes samples to `directory` as they come instead of keeping them in memory; see `storage::Spool`. They
  /// are copied whatever `capture` says, and read back from there by `Subrecorder::tensors` and the like. The
  /// recording is finished by `Recorder::save(directory)`, and by the recorder's end. Not together with a
  /// reduction.
  Options& spool(std::string directory, storage::SpoolOptions options = {});
  /// Keeps no more than `bytes` of samples in memory, over all modules of a recorder; what comes then is left
  /// out or an error. Of no consequence where a reduction consumes the samples.
  Options& memory_budget(std::int64_t bytes, OverBudget policy = OverBudget::raise);
  /// The same, but what comes then is spooled to `directory`, and what was kept goes there, too: from then on
  /// it is as if `spool` had been asked for.
  Options& memory_budget(std::int64_t bytes, std::string directory, storage::SpoolOptions options = {});
  /// Where samples are spooled to, at once or when the budget is used up; empty if nowhere.
  const std::string& spool_directory() const noexcept { return spool_directory_; }
  const storage::SpoolOptions& spool_options() const noexcept { return spool_options_; }
  /// Negative for no budget.
  std::int64_t memory_budget() const noexcept { return memory_budget_; }
  OverBudget over_budget() const noexcept { return over_budget_; }

  /// Called with the module's path instead of throwing out of the user's `forward` or `backward` when an
  /// event cannot be recorded, so that the program continues; the event is then not recorded. Where the
  /// model runs in several threads, several call it at the same time. The default throws.
  TORCH_ARG(ErrorHandler, on_error);
  /// How tensors are kept; of no consequence where a reduction consumes them.
  TORCH_ARG(Capture, capture) = Capture::copy;
  /// Where and as what they are kept or reduced; the default is as they come.
  TORCH_ARG(std::optional<at::Device>, device);
  /// As what they are kept or reduced; the default is as they come.
  TORCH_ARG(std::optional<at::ScalarType>, dtype);
  /// Applied to the detached tensor before anything else: one row, a pooling, a norm. Its result is recorded.
  /// Of one subrecorder it is called by one thread at a time.
  TORCH_ARG(Transform, transform);

 private:
  Condition condition_;
  std::function<bool()> nullary_condition_;
  std::shared_ptr<const core::Sink> reduction_;
  std::int64_t tensor_ = 0;
  bool all_tensors_ = false;
  std::string spool_directory_;
  storage::SpoolOptions spool_options_;
  std::int64_t memory_budget_ = -1;
  OverBudget over_budget_ = OverBudget::raise;
};

}  // namespace torchtap::recorders
