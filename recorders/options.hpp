#pragma once

/// Options of recorders: which part of each event they record, and how.

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
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/hooks/values.hpp>
#include <torchtap/storage/spool.hpp>
#if __has_include(<torchtap/recorders/statistics.hpp>)  // `Companion`, of the component statistics
#include <torchtap/recorders/statistics.hpp>
#endif

namespace torchtap::recorders {

class Companion;
class Stream;
namespace extend {
class Takes;
}

/// A sample that a condition (`RecorderOptions::condition`) decides about. Valid only during the call.
class TORCHTAP_API Sample {
 public:
  /// For torchtap, which makes one for each event.
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
  /// The number of this call of the module within one forward of the root, from 0.
  std::int64_t call_index() const noexcept { return call_index_; }
  /// How many samples this subrecorder has recorded so far.
  std::int64_t sample_index() const noexcept { return sample_index_; }
  /// The slot of `tensor()` among the flattened inputs, outputs or gradients; with `all_tensors` the slot of
  /// the first tensor.
  std::int64_t slot() const noexcept { return slot_; }
  /// The tensor itself, not a copy; it may require gradients, and is undefined if the module was given none.
  const at::Tensor& tensor() const noexcept { return tensor_; }
  /// How many tensors of this event would be recorded: one, or with `all_tensors` all inputs or outputs.
  std::int64_t slots() const noexcept { return all_ != nullptr ? all_->size() : 1; }
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

/// Dequantizes a quantized tensor, and returns any other as it is. For `RecorderOptions::transform`.
TORCHTAP_API at::Tensor dequantized(const at::Tensor& tensor);

/// The way to keep a tensor.
enum class Capture {
  /// A detached copy, which later changes of the tensor do not affect.
  copy,
  /// A detached tensor that shares memory: costs nothing, but a later in-place change spoils it. Such a
  /// change is detected, except of inference tensors, and is an error when samples are read.
  alias,
};

/// Handling of a sample that exceeds `RecorderOptions::memory_budget`.
enum class OverBudget {
  /// `c10::Error` is thrown; the sample is not recorded, all earlier ones are.
  raise,
  /// The sample is dropped and counted (`Subrecorder::dropped`).
  drop,
};

/// The options of a recorder. Chained like LibTorch's own options:
///
///     RecorderOptions().condition([&] { return epoch > 3; }).reduction(reductions::Moments{})
class TORCHTAP_API RecorderOptions {
 public:
  /// Decides whether a sample is recorded.
  using Condition = std::function<bool(const Sample&)>;
  /// Maps a tensor to the recorded tensor.
  using Transform = std::function<at::Tensor(const at::Tensor&)>;
  /// Receives the path of the module and the error.
  using ErrorHandler = std::function<void(const std::string& path, const std::exception_ptr& error)>;

  /// Called once per event, before anything is copied. If it returns false, the event is not recorded; only
  /// `Subrecorder::events` counts it. A callable without arguments, or with a `Sample`. If the model runs in
  /// several threads, they may call it at the same time.
  template <class Callable>
  RecorderOptions& condition(Callable&& callable) {
    static_assert(
        std::is_invocable_r_v<bool, Callable&> || std::is_invocable_r_v<bool, Callable&, const Sample&>,
        "condition needs a callable bool() or bool(const torchtap::recorders::Sample&)");
    if constexpr (std::is_invocable_r_v<bool, Callable&>) {
      nullary_condition_ = std::forward<Callable>(callable);
      condition_ = [asked = nullary_condition_](const Sample&) { return asked(); };
    } else {
      condition_ = std::forward<Callable>(callable);
      nullary_condition_ = nullptr;
    }
    return *this;
  }
  /// The condition; empty if there is none. A condition without arguments is called with a sample that it
  /// ignores.
  const Condition& condition() const& noexcept { return condition_; }
  /// For a temporary: returns by value.
  Condition condition() && { return std::move(condition_); }
  /// The condition, if it was given as one without arguments; else empty.
  const std::function<bool()>& nullary_condition() const& noexcept { return nullary_condition_; }
  /// For a temporary: returns by value.
  std::function<bool()> nullary_condition() && { return std::move(nullary_condition_); }

  /// Folds the samples of each subrecorder instead of keeping them: one of `torchtap::reductions`, your own
  /// type (`core::is_reduction_v`), or a callable `(accumulated, sample) -> accumulated`. Each subrecorder
  /// has its own copy. If several threads reach one at the same time, and the reduction does not depend on
  /// the order of samples (`commutative`), each thread folds into a copy, and the copies are merged when a
  /// result is read.
  template <class Reduction>
  RecorderOptions& reduction(Reduction&& reduction) {
    reduction_ = core::make_sink(std::forward<Reduction>(reduction));
    return *this;
  }
  /// Null if every sample is kept.
  const std::shared_ptr<const core::Sink>& reduction() const& noexcept { return reduction_; }
  /// For a temporary: returns by value.
  std::shared_ptr<const core::Sink> reduction() && { return std::move(reduction_); }

  /// Names a tensor of another module, which the reduction finds under `name` beside each sample:
  /// `with("expert", output("./router", 1)).reduction(by("expert", 64, …))`. Call k of the recorded module is
  /// paired with call k of the other one in the same forward, in whichever order they come; the first waits,
  /// a sample as `capture` says. Without a partner when the forward ends (of a `Sequential` and in
  /// TorchScript: when the next one begins) it is left out and counted: `Subrecorder::unmatched`. Tensors
  /// move to `device`, too.
  ///
  /// Attaching throws `c10::ValueError` if there is no such module, or if the reduction does not look `name`
  /// up, and `c10::NotImplementedError` for recorders of gradients. The component statistics has `Companion`,
  /// `output`, `input` and this function (<torchtap/statistics/companion.hpp>).
  RecorderOptions& with(std::string name, Companion companion);
  /// The companions by their names; none unless `with` was called.
  const std::vector<std::pair<std::string, Companion>>& with() const& noexcept;
  /// For a temporary: returns by value.
  std::vector<std::pair<std::string, Companion>> with() &&;

  /// Records the tensor in `slot` of the flattened inputs, outputs or gradients. The default is 0, the first.
  /// Throws `c10::ValueError` for a negative slot.
  RecorderOptions& slot(std::int64_t slot);
  /// Records all of them, with separate data for each slot (`Subrecorder::slot`).
  RecorderOptions& all_tensors(bool all = true) {
    all_tensors_ = all;
    return *this;
  }
  std::int64_t slot() const noexcept { return slot_; }
  bool all_tensors() const noexcept { return all_tensors_; }

  /// Writes samples to `directory` as they arrive instead of keeping them in memory; see `storage::Spool`.
  /// They are copied for any `capture`; `Subrecorder::tensors` and similar calls read them back.
  /// `Recorder::save(directory)` and the destructor of the recorder finish the recording. Cannot be combined
  /// with a reduction.
  RecorderOptions& spool(std::string directory, storage::SpoolOptions options = {});
  /// Keeps rows as samples: `rows({0, 1})` makes of `[B, T, C]` B × T samples `[C]`, in the order of the
  /// dimensions named; negative ones count from the end. A row can be found with the call it is of, and with
  /// what `beside` names (<torchtap/rows/rows.hpp>, extras/rows/README.md). Rows go to disk: needs `spool`,
  /// which the constructor of the recorder checks. The rows of a call are kept together or not at all: a call
  /// whose rows have another shape or dtype than the first ones is left out and counted
  /// (`Subrecorder::left_out`). Not with a reduction, a stream, `with`, `all_tensors` or a memory budget, and
  /// not of parameters: `c10::ValueError`. Throws `c10::ValueError` if no dimension is named, or one twice.
  /// The component rows has this function, `where` and `beside`.
  RecorderOptions& rows(std::vector<std::int64_t> dimensions);
  /// Keeps only the rows that are true in a tensor of bool or numbers that `core::Context` calls `mask`. It
  /// has the sizes of the row dimensions, or of the first of them. Of a forward in which the name is missing,
  /// or another size, calls are left out and counted. Needs `rows`.
  RecorderOptions& where(std::string mask);
  /// Keeps beside the rows what `core::Context` has under these names, once for all modules: a value for each
  /// row (its first sizes are those of the row dimensions), for each of the first dimension (`[B]` beside
  /// `[B, T]`), or one for all. Texts: `rows::texts`. Of a forward in which a name is missing, or does not
  /// fit, calls are left out and counted. Gradients have what was named in their forward. Needs `rows`.
  /// Throws `c10::ValueError` for an empty name, or one that is there twice.
  RecorderOptions& beside(std::vector<std::string> names);

  /// Keeps at most `bytes` bytes of samples in memory, over all modules of a recorder; further samples are
  /// dropped or an error. Has no effect on reductions.
  RecorderOptions& memory_budget(std::int64_t bytes, OverBudget policy = OverBudget::raise);
  /// Sets the budget; when it is used up, all samples move to `directory`, and further ones are spooled there
  /// as with `spool`.
  RecorderOptions& memory_budget(std::int64_t bytes, std::string directory,
                                 storage::SpoolOptions options = {});
  /// The directory that samples are spooled to, at once or when the budget is used up; empty if there is
  /// none.
  const std::string& spool_directory() const& noexcept { return spool_directory_; }
  /// For a temporary: returns by value.
  std::string spool_directory() && { return std::move(spool_directory_); }
  const storage::SpoolOptions& spool_options() const& noexcept { return spool_options_; }
  /// For a temporary: returns by value.
  storage::SpoolOptions spool_options() && { return spool_options_; }
  /// In bytes; nothing without a budget.
  std::optional<std::int64_t> memory_budget() const noexcept { return memory_budget_; }
  OverBudget over_budget() const noexcept { return over_budget_; }

  /// Sends samples to `stream` as they come, and keeps none; with a reduction, sends its results after every
  /// `every`th sample, and keeps folding. Conditions and transforms run only for data that a reader wants, so
  /// a module without readers costs one check. Without a reduction, `every` takes only the events 0, `every`,
  /// 2 × `every`, …; readers may ask for less. Throws `c10::ValueError` if there is no stream or `every` is
  /// not positive. Cannot be combined with a spool, nor without a reduction with a memory budget. The views
  /// have `Stream` and these functions (<torchtap/recorders/stream.hpp>).
  RecorderOptions& stream(std::shared_ptr<Stream> stream, std::int64_t every = 1);
  /// Null if nothing is sent.
  std::shared_ptr<Stream> stream() const noexcept;
  /// 1 if nothing is sent.
  std::int64_t stream_every() const noexcept;

  /// Lets samples of a device wait, up to `bytes` bytes of them, so that one launch of a kernel adds up many:
  /// those of a whole forward, if they fit. They are added when the forward of the outermost hooked module
  /// ends, when there are too many, and before anything is read; without an end that is seen (of a
  /// `Sequential`, in TorchScript, in a backward) they wait longer. Waiting samples hold their memory. A
  /// sample that the program has changed in place meanwhile is left out and counted
  /// (`Subrecorder::left_out`); what is changed in the first forward is not deferred later. Has an effect
  /// where fused kernels add samples up (see `torchtap::cuda::enable_fused_kernels`), without `all_tensors`,
  /// and not on inference tensors, whose changes nobody counts. Throws `c10::ValueError` for negative
  /// numbers; 0, the default, defers nothing.
  RecorderOptions& defer(std::int64_t bytes);
  /// In bytes.
  std::int64_t defer() const noexcept { return defer_; }

  /// For parts: what becomes of the samples instead. Throws `c10::NotImplementedError` if the options say
  /// something else already: two parts cannot take the same samples.
  RecorderOptions& takes(std::shared_ptr<const extend::Takes> takes);
  /// Null if samples are kept or folded, as the other options say.
  const std::shared_ptr<const extend::Takes>& takes() const& noexcept { return takes_; }
  /// For a temporary: returns by value.
  std::shared_ptr<const extend::Takes> takes() && { return std::move(takes_); }

  /// Called with the module's path instead of throwing out of the user's `forward` or `backward` when an
  /// event cannot be recorded, so that the program continues; the event is then not recorded. If the model
  /// runs in several threads, they may call it at the same time. By default the error is thrown, unless it is
  /// of a sample that does not fit (`Subrecorder::left_out`), which then is only counted.
  TORCH_ARG(ErrorHandler, on_error);
  /// The way to keep tensors; has no effect on reductions.
  TORCH_ARG(Capture, capture) = Capture::copy;
  /// The device on which tensors are kept or reduced; by default their own.
  TORCH_ARG(std::optional<at::Device>, device);
  /// The dtype in which tensors are kept or reduced; by default their own. A real one for a complex sample is
  /// an error of the event, as it would drop the imaginary part.
  TORCH_ARG(std::optional<at::ScalarType>, dtype);
  /// Applied to the detached tensor before anything else, to record its result: one row, a pooling, a norm.
  /// Each subrecorder calls it from one thread at a time. It may read its recorder, not run its module.
  TORCH_ARG(Transform, transform);

 public:
  /// Anything else: an error of the compiler that says what is wanted.
  template <class Callable, class = std::enable_if_t<!std::is_convertible_v<Callable, Transform>>>
  RecorderOptions& transform(Callable&&) {
    static_assert(std::is_convertible_v<Callable, Transform>,
                  "transform needs a callable that returns what is recorded: at::Tensor(const at::Tensor&)");
    return *this;
  }

 private:
  Condition condition_;
  std::function<bool()> nullary_condition_;
  std::shared_ptr<const core::Sink> reduction_;
  std::shared_ptr<const extend::Takes> takes_;
  std::int64_t slot_ = 0;
  bool all_tensors_ = false;
  std::string spool_directory_;
  storage::SpoolOptions spool_options_;
  std::optional<std::int64_t> memory_budget_;
  OverBudget over_budget_ = OverBudget::raise;
  std::int64_t defer_ = 0;
};

}  // namespace torchtap::recorders
