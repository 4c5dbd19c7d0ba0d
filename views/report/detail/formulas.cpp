// Formulas by the names of operations. Arguments follow the schemas of LibTorch 1.13 to 2.14.
#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

#include <torchtap/views/report/detail/formulas.hpp>

namespace torchtap::views::report::detail {
namespace {

using operations::Values;

at::IntArrayRef shape(const Values& values, std::size_t index) {
  return values[index].toTensor().sizes();
}

std::int64_t product(at::IntArrayRef sizes) {
  std::int64_t result = 1;
  for (const std::int64_t size : sizes) result *= size;
  return result;
}

/// Multiply-accumulates for each element of the output; of the input for a transposed convolution.
std::int64_t taps(at::IntArrayRef weight) {
  return product(weight.slice(1));
}

std::int64_t convolution(const Values& arguments, const Values& results) {
  return product(shape(results, 0)) * taps(shape(arguments, 1));
}

std::int64_t transposed_convolution(const Values& arguments, const Values& /*results*/) {
  return product(shape(arguments, 0)) * taps(shape(arguments, 1));
}

std::int64_t any_convolution(const Values& arguments, const Values& results) {
  return arguments[6].toBool() ? transposed_convolution(arguments, results) : convolution(arguments, results);
}

/// grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups,
/// output_mask. The gradients of input and weight cost as much as the forward, each.
std::int64_t convolution_backward(const Values& arguments, const Values& /*results*/) {
  const std::size_t outer = arguments[7].toBool() ? 1 : 0;
  const auto wanted = arguments[10].toBoolList();
  const std::int64_t each = product(shape(arguments, outer)) * taps(shape(arguments, 2));
  return each * ((wanted.get(0) ? 1 : 0) + (wanted.get(1) ? 1 : 0));
}

std::int64_t linear(const Values& arguments, const Values& /*results*/) {
  const auto weight = shape(arguments, 1);
  return product(shape(arguments, 0)) * (weight.size() > 1 ? weight[0] : 1);
}

/// Matrices or batches of them at `first` and `first + 1`.
template <std::size_t first>
std::int64_t matrices(const Values& arguments, const Values& /*results*/) {
  return product(shape(arguments, first)) * shape(arguments, first + 1).back();
}

/// A matrix with a vector, a vector with a vector.
template <std::size_t first>
std::int64_t elements(const Values& arguments, const Values& /*results*/) {
  return product(shape(arguments, first));
}

struct Attention {
  std::int64_t pairs;          // of queries and keys, over batches and heads
  std::int64_t width, values;  // elements of a key and of a value
};

/// query [..., L, E], key [..., S, E], value [..., S, Ev].
Attention attention(const Values& arguments, std::size_t first) {
  const auto query = shape(arguments, first), key = shape(arguments, first + 1),
             value = shape(arguments, first + 2);
  return {product(query.slice(0, query.size() - 1)) * key[key.size() - 2], query.back(), value.back()};
}

std::int64_t attention_forward(const Values& arguments, const Values& /*results*/) {
  const Attention a = attention(arguments, 0);
  return a.pairs * (a.width + a.values);
}

/// The scores again, then the gradients of values, scores, queries and keys.
std::int64_t attention_backward(const Values& arguments, const Values& /*results*/) {
  const Attention a = attention(arguments, 1);
  return a.pairs * (3 * a.width + 2 * a.values);
}

/// input, weight_ih, weight_hh, …: each step multiplies with both matrices. Backward makes the gradients of
/// inputs and of weights.
template <std::int64_t times>
std::int64_t mkldnn_recurrent(const Values& arguments, const Values& /*results*/) {
  const auto input = shape(arguments, 0);
  return times * product(input.slice(0, input.size() - 1)) *
         (product(shape(arguments, 1)) + product(shape(arguments, 2)));
}

/// input [steps, batch, features], weights.
std::int64_t cudnn_recurrent(const Values& arguments, const Values& /*results*/) {
  const auto input = shape(arguments, 0);
  std::int64_t weights = 0;
  for (const at::Tensor& weight : arguments[1].toTensorVector()) {
    if (weight.defined() && weight.dim() > 1) weights += weight.numel();
  }
  return product(input.slice(0, input.size() - 1)) * weights;
}

const std::unordered_map<std::string, Formula>& table() {
  static const auto* const formulas = new std::unordered_map<std::string, Formula>{
      {"aten::conv1d", convolution},
      {"aten::conv2d", convolution},
      {"aten::conv3d", convolution},
      {"aten::mkldnn_convolution", convolution},
      {"aten::thnn_conv2d", convolution},
      {"aten::_slow_conv2d_forward", convolution},
      {"aten::slow_conv3d", convolution},
      {"aten::slow_conv3d_forward", convolution},
      {"aten::slow_conv_dilated2d", convolution},
      {"aten::slow_conv_dilated3d", convolution},
      {"aten::_conv_depthwise2d", convolution},
      {"aten::conv_depthwise3d", convolution},
      {"aten::cudnn_convolution", convolution},
      {"aten::miopen_convolution", convolution},
      {"aten::_mps_convolution", convolution},
      {"aten::conv_transpose1d", transposed_convolution},
      {"aten::conv_transpose2d", transposed_convolution},
      {"aten::conv_transpose3d", transposed_convolution},
      {"aten::slow_conv_transpose2d", transposed_convolution},
      {"aten::slow_conv_transpose3d", transposed_convolution},
      {"aten::cudnn_convolution_transpose", transposed_convolution},
      {"aten::miopen_convolution_transpose", transposed_convolution},
      {"aten::convolution", any_convolution},
      {"aten::_convolution", any_convolution},
      {"aten::convolution_overrideable", any_convolution},
      {"aten::convolution_backward", convolution_backward},
      {"aten::linear", linear},
      {"aten::mm", matrices<0>},
      {"aten::_int_mm", matrices<0>},
      {"aten::_scaled_mm", matrices<0>},
      {"aten::bmm", matrices<0>},
      {"aten::addmm", matrices<1>},
      {"aten::addmm_", matrices<1>},
      {"aten::_addmm_activation", matrices<1>},
      {"aten::addbmm", matrices<1>},
      {"aten::addbmm_", matrices<1>},
      {"aten::baddbmm", matrices<1>},
      {"aten::baddbmm_", matrices<1>},
      {"aten::mv", elements<0>},
      {"aten::addmv", elements<1>},
      {"aten::addmv_", elements<1>},
      {"aten::dot", elements<0>},
      {"aten::vdot", elements<0>},
      {"aten::_scaled_dot_product_flash_attention", attention_forward},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention_forward},
      {"aten::_scaled_dot_product_efficient_attention", attention_forward},
      {"aten::_scaled_dot_product_cudnn_attention", attention_forward},
      {"aten::_scaled_dot_product_fused_attention_overrideable", attention_forward},
      {"aten::_scaled_dot_product_flash_attention_backward", attention_backward},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward},
      {"aten::_scaled_dot_product_efficient_attention_backward", attention_backward},
      {"aten::_scaled_dot_product_cudnn_attention_backward", attention_backward},
      {"aten::_scaled_dot_product_fused_attention_overrideable_backward", attention_backward},
      {"aten::mkldnn_rnn_layer", mkldnn_recurrent<1>},
      {"aten::mkldnn_rnn_layer_backward", mkldnn_recurrent<2>},
      {"aten::_cudnn_rnn", cudnn_recurrent},
      {"aten::miopen_rnn", cudnn_recurrent}};
  return *formulas;
}

// Operations of LibTorch that are heavy although no formula counts them, when they call nothing that has a
// formula.
constexpr std::array<std::string_view, 30> heavy{"_fft_r2c",
                                                 "_fft_c2r",
                                                 "_fft_c2c",
                                                 "_cdist_forward",
                                                 "_cdist_backward",
                                                 "_pdist_forward",
                                                 "_trilinear",
                                                 "_ctc_loss",
                                                 "conv_tbc",
                                                 "conv_tbc_backward",
                                                 "_cudnn_rnn_backward",
                                                 "miopen_rnn_backward",
                                                 "_sparse_mm",
                                                 "_sparse_addmm",
                                                 "_flash_attention_forward",
                                                 "_efficient_attention_forward",
                                                 "_weight_int8pack_mm",
                                                 "_weight_int4pack_mm",
                                                 "_grouped_mm",
                                                 "_scaled_grouped_mm",
                                                 "_linalg_svd",
                                                 "_linalg_eigh",
                                                 "linalg_eig",
                                                 "linalg_qr",
                                                 "linalg_inv_ex",
                                                 "_linalg_solve_ex",
                                                 "linalg_cholesky_ex",
                                                 "linalg_lu_factor_ex",
                                                 "linalg_lstsq",
                                                 "linalg_solve_triangular"};

}  // namespace

const Formula* built_in_formula(const std::string& name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : &found->second;
}

bool is_heavy(const std::string& name) {
  const auto colons = name.find("::");
  const std::string_view library = std::string_view(name).substr(0, colons);
  if (library == "prim" || library == "torchtap" || library == "profiler" || library == "prims") return false;
  if (library != "aten") return true;
  return std::find(heavy.begin(), heavy.end(), std::string_view(name).substr(colons + 2)) != heavy.end();
}

}  // namespace torchtap::views::report::detail
