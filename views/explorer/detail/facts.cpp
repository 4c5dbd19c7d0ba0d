// What an operation does with the values of its arguments.
#include <ATen/core/function_schema.h>

#include <algorithm>
#include <array>
#include <string_view>

#include <torchtap/views/explorer/detail/facts.hpp>

namespace torchtap::views::explorer::detail {
namespace {

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

/// Operations that replace all of their first argument.
constexpr std::array<std::string_view, 13> replacing{
    "aten::zero_",   "aten::fill_",       "aten::copy_",        "aten::normal_",    "aten::uniform_",
    "aten::set_",    "aten::bernoulli_",  "aten::exponential_", "aten::geometric_", "aten::cauchy_",
    "aten::random_", "aten::log_normal_", "aten::set_data"};

OperationFacts facts_of(const c10::FunctionSchema& schema) {
  OperationFacts facts;
  const std::string_view name = schema.name();
  facts.shapes_only = ends_with(name, "_like") || name.substr(0, 10) == "aten::new_";
  const bool replaces = std::find(replacing.begin(), replacing.end(), name) != replacing.end();
  for (const c10::Argument& argument : schema.arguments()) {
    facts.overwritten.push_back(argument.is_out() || (replaces && facts.overwritten.empty()));
  }
  return facts;
}

}  // namespace

const OperationFacts& FactTable::of(const operations::Event& event) {
  const c10::FunctionSchema& schema = event.schema();
  const auto found = facts_.find(&schema);
  if (found != facts_.end()) return found->second;
  return facts_.emplace(&schema, facts_of(schema)).first->second;
}

}  // namespace torchtap::views::explorer::detail
