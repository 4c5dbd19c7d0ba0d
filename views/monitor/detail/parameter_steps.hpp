#pragma once

// By how much steps of an optimizer change parameters.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include <torchtap/model/module_ref.hpp>
#include <torchtap/rules/facts.hpp>

namespace torchtap::views::monitor::detail {

/// Keeps parameters as a training forward found them, and compares them when the next one begins: of each at
/// most `most_elements`, all of them or as many at even distances. Any thread may call any function.
class ParameterSteps {
 public:
  static constexpr std::int64_t most_elements = std::int64_t{1} << 16;
  static constexpr std::size_t most_steps = 64;

  explicit ParameterSteps(const std::vector<model::ModuleRef>& modules);
  bool empty() const noexcept { return held_.empty(); }

  /// A training forward begins: compares the parameters with the kept ones, and, if `keeps`, keeps them as
  /// they are now. If no parameter changed in between, there was no step.
  void begin(bool keeps);
  /// The parameters that were kept last, in the order of the modules.
  std::vector<rules::Facts> facts() const;

 private:
  struct Held {
    rules::Facts about;  // which parameter it is
    at::Tensor tensor;
    at::Tensor before;  // undefined if nothing is kept
    at::Tensor last;    // the values that are judged
    std::deque<double> updates;
  };
  mutable std::mutex mutex_;
  std::vector<Held> held_;
  bool kept_ = false;
};

}  // namespace torchtap::views::monitor::detail
