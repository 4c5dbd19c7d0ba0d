#pragma once

/// One call of an operation, as the function of a `Scope` sees it.

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace c10 {
class OperatorHandle;
struct FunctionSchema;
}  // namespace c10

namespace torchtap::operations {

/// The calls that a `Scope` sees.
enum class Level {
  /// The operations that the program calls: one `aten::linear`, whatever LibTorch calls inside of it.
  program,
  /// The operations that Python's `__torch_dispatch__` sees: LibTorch's composed operations
  /// (CompositeImplicitAutograd) appear as their parts.
  leaf,
};

/// The arguments or the results of a call: a range of `c10::IValue`, each of which may be replaced.
class Values {
 public:
  /// For torchtap, which makes one for each call.
  Values(c10::IValue* first, std::size_t size) noexcept : first_(first), size_(size) {}

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  c10::IValue* begin() const noexcept { return first_; }
  c10::IValue* end() const noexcept { return first_ + size_; }
  /// The `index`th, in the order of the schema. Throws `c10::IndexError`.
  c10::IValue& operator[](std::size_t index) const {
    TORCH_CHECK_INDEX(index < size_, "operations::Values: there is no value ", index, "; there are ", size_,
                      ", from 0.");
    return first_[index];
  }

 private:
  c10::IValue* first_;
  std::size_t size_;
};

/// One call of an operation. Valid only while the function of the scope runs.
///
/// The function decides when the operation runs: `run()` runs it and passes on the operation's exceptions. If
/// the function returns without having called `run()`, the operation runs then. So
///
///     operations::Scope scope([](operations::Event& event) {
///       look_at(event.arguments());   // before
///       event.run();
///       look_at(event.results());     // after
///     });
class TORCHTAP_API Event {
 public:
  /// The name with its namespace: "aten::conv2d".
  const std::string& name() const noexcept;
  /// The overload: "Tensor" of "aten::add.Tensor", often "".
  const std::string& overload() const noexcept;
  /// Names and types of arguments and results.
  const c10::FunctionSchema& schema() const noexcept;
  /// The operation for LibTorch's dispatcher (ATen/core/dispatch/Dispatcher.h).
  const c10::OperatorHandle& operation() const noexcept { return operation_; }

  /// The arguments, in the order of the schema. Assign to replace what the operation gets; a value of another
  /// type than the schema's is LibTorch's error. The operation consumes them: throws `c10::ValueError` after
  /// `run()`.
  Values arguments() const;
  /// Whether the operation writes to the `index`th argument, by its schema. Also true for the running
  /// statistics of `batch_norm` and `instance_norm` in training, which the schema does not mark. Throws
  /// `c10::IndexError`.
  bool writes(std::size_t index) const;

  /// Runs the operation. Throws the operation's exception, and `c10::ValueError` if it ran already.
  void run();
  /// Whether there are results: it ran, or was skipped.
  bool ran() const noexcept { return state_ == State::done; }
  /// Returns `results` to the caller instead of running the operation, or after it threw. Their number and
  /// types have to be the schema's: throws `c10::ValueError` for another number, and if it ran already.
  void skip(std::vector<c10::IValue> results);

  /// The results; assign to replace what the caller gets. Throws `c10::ValueError` before `run()`.
  Values results() const;

  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

 protected:
  /// For torchtap, which makes one for each call; `stack` ends with the arguments.
  Event(const c10::OperatorHandle& operation, std::vector<c10::IValue>& stack) noexcept;
  ~Event() = default;
  /// For torchtap itself: runs the operation if the callback did not.
  void finish();

 private:
  /// Calls the next scope, or the operation.
  virtual void proceed() = 0;

  enum class State { waiting, running, done };

  const c10::OperatorHandle& operation_;
  std::vector<c10::IValue>& stack_;
  std::size_t base_;  // of the arguments, later of the results
  State state_ = State::waiting;
};

/// Calls `function(const at::Tensor&)` with each defined tensor in a value: itself, or those in a list, an
/// optional, a tuple or a dict, in order.
template <class Function>
void for_each_tensor(const c10::IValue& value, Function&& function) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) function(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) function(tensor);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, function);
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) for_each_tensor(element, function);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) for_each_tensor(entry.value(), function);
  }
}

}  // namespace torchtap::operations
