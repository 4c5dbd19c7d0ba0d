// Queries of an event about its operation.
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <string_view>

#include <torchtap/operations/event.hpp>

namespace torchtap::operations {
namespace {

/// Operations that write to two arguments (running statistics) which their schema does not mark, when the
/// flag at index `condition` is true.
struct HiddenWrites {
  std::string_view name;
  std::size_t first;
  std::size_t condition;  // an index of an argument, or nothing
};
constexpr std::size_t none = 99;
constexpr std::array<HiddenWrites, 9> hidden_writes{{{"aten::batch_norm", 3, 5},
                                                     {"aten::instance_norm", 3, 5},
                                                     {"aten::native_batch_norm", 3, 5},
                                                     {"aten::_batch_norm_impl_index", 3, 5},
                                                     {"aten::cudnn_batch_norm", 3, 5},
                                                     {"aten::miopen_batch_norm", 3, 5},
                                                     {"aten::batch_norm_update_stats", 1, none},
                                                     {"aten::batch_norm_gather_stats", 3, none},
                                                     {"aten::batch_norm_gather_stats_with_counts", 3, none}}};

}  // namespace

Event::Event(const c10::OperatorHandle& operation, std::vector<c10::IValue>& stack) noexcept
    : operation_(operation), stack_(stack), base_(stack.size() - operation.schema().arguments().size()) {}

const std::string& Event::name() const noexcept {
  return operation_.schema().name();
}

const std::string& Event::overload() const noexcept {
  return operation_.schema().overload_name();
}

const c10::FunctionSchema& Event::schema() const noexcept {
  return operation_.schema();
}

Values Event::arguments() const {
  TORCH_CHECK_VALUE(state_ == State::waiting, "operations::Event::arguments: ", name(),
                    " has run and consumed its arguments; copy what you need before run().");
  return {stack_.data() + base_, stack_.size() - base_};
}

bool Event::writes(std::size_t index) const {
  const auto& arguments = schema().arguments();
  TORCH_CHECK_INDEX(index < arguments.size(), "operations::Event::writes: argument ", index, " of ", name(),
                    " was asked for, which has ", arguments.size(), ".");
  const auto* alias = arguments[index].alias_info();
  if (alias != nullptr) return alias->isWrite();
  const auto found = std::find_if(hidden_writes.begin(), hidden_writes.end(), [&](const HiddenWrites& one) {
    return index >= one.first && index <= one.first + 1 && one.name == name();
  });
  if (found == hidden_writes.end()) return false;
  // The condition's value is lost once the operation has run.
  if (found->condition == none || state_ != State::waiting) return true;
  const c10::IValue& condition = stack_[base_ + found->condition];
  return !condition.isBool() || condition.toBool();
}

void Event::run() {
  TORCH_CHECK_VALUE(state_ == State::waiting, "operations::Event::run: ", name(),
                    " has run already, and can run once.");
  state_ = State::running;
  proceed();
  state_ = State::done;
}

void Event::skip(std::vector<c10::IValue> results) {
  const std::size_t expected = schema().returns().size();
  TORCH_CHECK_VALUE(state_ != State::done, "operations::Event::skip: ", name(),
                    " has run already; assign to results() instead.");
  TORCH_CHECK_VALUE(results.size() == expected, "operations::Event::skip: ", name(), " returns ", expected,
                    " values, got ", results.size(), ".");
  stack_.resize(base_);
  for (auto& result : results) stack_.push_back(std::move(result));
  state_ = State::done;
}

Values Event::results() const {
  TORCH_CHECK_VALUE(state_ == State::done, "operations::Event::results: ", name(),
                    " has not returned; call run() first.");
  return {stack_.data() + base_, stack_.size() - base_};
}

void Event::finish() {
  if (state_ == State::waiting) run();
  TORCH_CHECK_VALUE(state_ == State::done, "operations::Scope: ", name(),
                    " threw, and the callback caught that: it has to pass the exception on, or to call "
                    "skip() with results.");
}

}  // namespace torchtap::operations
