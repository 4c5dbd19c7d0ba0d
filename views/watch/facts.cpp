// The arguments whose values operations read, by name.
#include <ATen/core/function_schema.h>

#include <algorithm>
#include <array>
#include <string_view>

#include <torchtap/views/watch/facts.hpp>

namespace torchtap::views::watch {
namespace {

/// Operations that replace all of their first argument, whatever it held.
constexpr std::array<std::string_view, 20> replacing{"aten::zero_",
                                                     "aten::fill_",
                                                     "aten::copy_",
                                                     "aten::set_",
                                                     "aten::set_data",
                                                     "aten::normal_",
                                                     "aten::uniform_",
                                                     "aten::random_",
                                                     "aten::bernoulli_",
                                                     "aten::exponential_",
                                                     "aten::geometric_",
                                                     "aten::cauchy_",
                                                     "aten::log_normal_",
                                                     "aten::_no_grad_zero_",
                                                     "aten::_no_grad_fill_",
                                                     "aten::_no_grad_normal_",
                                                     "aten::_no_grad_uniform_",
                                                     "aten::_foreach_zero_",
                                                     "aten::_foreach_copy_",
                                                     "aten::_foreach_fill_"};

/// Operations that take a shape, or a dtype, from their second argument.
constexpr std::array<std::string_view, 8> shaped{"aten::expand_as", "aten::view_as",   "aten::reshape_as",
                                                 "aten::align_as",  "aten::type_as",   "aten::to",
                                                 "aten::resize_as", "aten::resize_as_"};

template <std::size_t size>
bool is_one_of(const std::array<std::string_view, size>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Whether it makes a tensor that has something of its arguments' shapes and nothing of their values.
bool makes_anew(std::string_view name) {
  constexpr std::string_view like = "_like";
  const bool is_like = name.size() > like.size() && name.substr(name.size() - like.size()) == like;
  return is_like || name.substr(0, 10) == "aten::new_";
}

}  // namespace

std::vector<bool> reads_of(const c10::FunctionSchema& schema) {
  const std::string_view name = schema.name();
  std::vector<bool> reads;
  for (const c10::Argument& argument : schema.arguments()) reads.push_back(!argument.is_out());
  if (makes_anew(name)) reads.assign(reads.size(), false);
  if (!reads.empty() && is_one_of(replacing, name)) reads[0] = false;
  if (reads.size() > 1 && is_one_of(shaped, name)) reads[1] = false;
  return reads;
}

}  // namespace torchtap::views::watch
