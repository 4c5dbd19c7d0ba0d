// Logs the operations of LibTorch's C++ Linear as the single one that Python and TorchScript call.
#include <algorithm>

#include <torchtap/views/trace/detail/graph.hpp>

namespace torchtap::views::trace::detail {
namespace {

/// Reads the parameter that an argument of an operation is; null if it is not one.
const ParameterUse* parameter(const Log& log, const Operation& operation, std::uint16_t argument) {
  for (const Read& read : operation.reads) {
    if (read.argument != argument || read.value < 0) continue;
    const Value& value = log.values[read.value];
    if (value.origin != Origin::parameter) return nullptr;
    return &log.parameters[value.of];
  }
  return nullptr;
}

std::int64_t value_of_argument(const Operation& operation, std::uint16_t argument) {
  for (const Read& read : operation.reads) {
    if (read.argument == argument) return read.value;
  }
  return -1;
}

std::string owner(const std::string& path) {
  const auto dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

bool is_one(const Operation& operation, std::size_t argument) {
  const c10::IValue& value = operation.arguments[argument];
  return value.isScalar() && !value.toScalar().isComplex() && value.toScalar().toDouble() == 1;
}

/// How many operations from `first` on make one linear; 0 if they do not.
std::size_t linear_at(const Log& log, std::size_t first) {
  const auto& all = log.operations;
  const Operation& transpose = all[first];
  if (transpose.facts->name != "aten::t" || first + 1 >= all.size() || transpose.results.size() != 1)
    return 0;
  const ParameterUse* weight = parameter(log, transpose, 0);
  if (weight == nullptr || weight->shape.size() != 2) return 0;
  const std::int64_t transposed = transpose.results[0];
  const Operation& product = all[first + 1];
  if (product.context != transpose.context) return 0;
  const auto bias_of_same = [&](const ParameterUse* bias) {
    return bias != nullptr && bias->shape.size() == 1 && owner(bias->path) == owner(weight->path);
  };
  if (product.facts->full == "aten::addmm") {  // (bias, input, weight, beta, alpha)
    const bool fits = value_of_argument(product, 2) == transposed &&
                      bias_of_same(parameter(log, product, 0)) && is_one(product, 3) && is_one(product, 4);
    return fits ? 2 : 0;
  }
  if (product.facts->full != "aten::matmul" || value_of_argument(product, 1) != transposed) return 0;
  if (first + 2 >= all.size() || product.results.size() != 1) return 2;
  const Operation& sum = all[first + 2];  // (self, other, alpha)
  const bool adds_bias = sum.facts->full == "aten::add_.Tensor" && sum.context == product.context &&
                         value_of_argument(sum, 0) == product.results[0] &&
                         bias_of_same(parameter(log, sum, 1)) && is_one(sum, 2);
  return adds_bias ? 3 : 2;
}

}  // namespace

std::vector<Step> steps_of(const Log& log) {
  const bool fold = !log.options.as_called() && log.options.level() == TraceOptions::Level::program;
  std::vector<Step> steps;
  for (std::size_t i = 0; i < log.operations.size();) {
    const std::size_t together = fold ? linear_at(log, i) : 0;
    Step step;
    step.linear = together > 0;
    for (std::size_t end = i + std::max<std::size_t>(together, 1); i < end; ++i) step.operations.push_back(i);
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace torchtap::views::trace::detail
