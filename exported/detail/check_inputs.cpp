#include <cctype>

#include <torchtap/core/detail/error.hpp>
#include <torchtap/exported/detail/check_inputs.hpp>
#include <torchtap/storage/dtype.hpp>

namespace torchtap::exported::detail {
namespace {

std::string describe(const Input& input) {
  std::string shape;
  for (const auto& size : input.shape) shape += (shape.empty() ? "" : ", ") + size;
  return c10::str('[', shape, "] ", input.dtype);
}

/// Whether a dimension may have this size: any, if it is dynamic.
bool fits(const std::string& expected, std::int64_t size) {
  return std::isdigit(static_cast<unsigned char>(expected.front())) == 0 || expected == std::to_string(size);
}

bool fits(const Input& expected, const at::Tensor& input) {
  if (!input.defined() || input.dim() != static_cast<std::int64_t>(expected.shape.size())) return false;
  if (storage::dtype_name(input.scalar_type()) != expected.dtype) return false;
  for (std::int64_t i = 0; i < input.dim(); ++i) {
    if (!fits(expected.shape[static_cast<std::size_t>(i)], input.size(i))) return false;
  }
  return true;
}

}  // namespace

void check_inputs(const Package& package, const std::vector<at::Tensor>& inputs) {
  const auto& expected = package.inputs();
  if (expected.empty()) return;
  TORCH_CHECK_VALUE(inputs.size() == expected.size(), "exported::Model::run: \"", package.file(),
                    "\" was exported with ", expected.size(), " inputs and was given ", inputs.size(), ".");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (fits(expected[i], inputs[i])) continue;
    const at::Tensor& given = inputs[i];
    TORCH_CHECK_VALUE(false, "exported::Model::run: input ", i, " (", expected[i].name, ") of \"",
                      package.file(), "\" was exported as ", describe(expected[i]), ", and ",
                      given.defined() ? c10::str(given.sizes(), ' ', storage::dtype_name(given.scalar_type()))
                                      : std::string("an undefined tensor"),
                      " was given.");
  }
}

}  // namespace torchtap::exported::detail
