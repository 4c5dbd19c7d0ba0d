#pragma once

/// The tensors that a trace keeps of a forward pass.

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/operations/event.hpp>

namespace torchtap::views::trace {

/// The choice of tensors that are kept. Shapes, times and connections are known of all of them anyway.
enum class Save {
  /// None.
  none,
  /// All, and everything else that is needed to run each operation again (`History::validate`).
  all,
};

/// Handling of a tensor that exceeds `TraceOptions::memory_budget`.
enum class OverBudget {
  /// `c10::Error` is thrown out of the forward; everything before is in the history.
  raise,
  /// The tensor is not kept, and counted (`History::dropped`).
  drop,
};

/// A tensor that a predicate (`TraceOptions::save`) decides about, when its operation returns. Valid only
/// during the call.
struct TORCHTAP_API Candidate {
  /// "aten::conv2d"; "input" and "outside" for tensors that no operation of the pass made.
  const std::string& function;
  /// "conv2d", as in labels.
  const std::string& type;
  /// The path of the innermost module that runs; "" for the root or if no module is known.
  const std::string& module;
  /// How many operations returned before.
  std::int64_t index;
  /// The tensor itself.
  const at::Tensor& tensor;
};

/// Options of a trace: the operations that it logs, and the tensors that it keeps. Chained like LibTorch's
/// own options:
///
///     TraceOptions().save({"conv2d_*", "features.6"}).dtype(at::kHalf)
class TORCHTAP_API TraceOptions {
 public:
  /// The operations that are logged.
  using Level = operations::Level;
  /// Decides whether a tensor is kept.
  using Predicate = std::function<bool(const Candidate&)>;
  /// Maps a tensor to its kept form.
  using Transform = std::function<at::Tensor(const at::Tensor&)>;

  /// Keeps all tensors, or no tensor. The default is no tensor.
  TraceOptions& save(Save what);
  /// Keeps the tensors that these names find: labels ("conv2d_3_7", "conv2d_3"), parts of types ("conv"),
  /// paths of modules ("features.6"), positions ("7", "-17"), and globs over labels and
  /// paths ("conv*").
  /// A name that finds nothing is an error of `Tracer::finish`. Labels are known when the pass has ended:
  /// until then all tensors of the type are held ("conv2d"), for positions and outputs all tensors.
  TraceOptions& save(std::vector<std::string> names);
  /// Keeps the tensors for which `predicate` returns true. One thread calls it at a time.
  TraceOptions& save(Predicate predicate);

  Save saved() const noexcept { return save_; }
  const std::vector<std::string>& names() const& noexcept { return names_; }
  /// For a temporary: returns by value.
  std::vector<std::string> names() && { return std::move(names_); }
  const Predicate& predicate() const& noexcept { return predicate_; }
  /// For a temporary: returns by value.
  Predicate predicate() && { return std::move(predicate_); }

  /// Keeps at most `bytes` bytes of tensors. A tensor counts when it takes memory that it would not take
  /// without the trace: as its own copy, or as an alias whose memory is not counted yet.
  TraceOptions& memory_budget(std::int64_t bytes, OverBudget policy = OverBudget::raise);
  /// In bytes; nothing without a budget.
  std::optional<std::int64_t> memory_budget() const noexcept { return memory_budget_; }
  OverBudget over_budget() const noexcept { return over_budget_; }

  /// The level of operations: as the program calls them, or as `__torch_dispatch__` sees them.
  TORCH_ARG(Level, level) = Level::program;
  /// LibTorch's C++ `Linear` calls `t` and `addmm` (or `matmul` and `add_`) where Python and TorchScript call
  /// `linear`. They are logged as one `linear`; with true, as they were called.
  TORCH_ARG(bool, as_called) = false;
  /// Whether kept tensors get the gradients of the next backward (`Node::gradient`).
  TORCH_ARG(bool, gradients) = false;
  /// Whether to note where each operation was called (`Node::source`): the line of TorchScript, or the return
  /// addresses of C++. Costs some 3 µs an operation.
  TORCH_ARG(bool, source) = false;
  /// The device to which kept tensors are copied; by default they stay where they are.
  TORCH_ARG(std::optional<at::Device>, device);
  /// The dtype to which kept tensors are converted; by default their own. A real one for a complex tensor is
  /// an error of the pass, as it would drop the imaginary part.
  TORCH_ARG(std::optional<at::ScalarType>, dtype);
  /// Applied to a detached tensor before anything else, to keep its result: one row, a pooling, a norm.
  TORCH_ARG(Transform, transform);

 private:
  Save save_ = Save::none;
  std::vector<std::string> names_;
  Predicate predicate_;
  std::optional<std::int64_t> memory_budget_;
  OverBudget over_budget_ = OverBudget::raise;
};

}  // namespace torchtap::views::trace
