#include <torchtap/base/error.hpp>
#include <torchtap/exported/detail/check_inputs.hpp>
#include <torchtap/storage/dtype.hpp>

namespace torchtap::exported::detail {
namespace {

std::string describe(const Input& input) {
  std::string shape;
  for (const auto& size : input.shape) shape += (shape.empty() ? "" : ", ") + size;
  return c10::str('[', shape, "] ", input.dtype, input.device.empty() ? "" : " on ", input.device);
}

std::string device_name(const at::Tensor& input) {
  return c10::DeviceTypeName(input.device().type(), /*lower_case=*/true);
}

std::string describe(const at::Tensor& input) {
  if (!input.defined()) return "an undefined tensor";
  return c10::str(input.sizes(), ' ', storage::dtype_name(input.scalar_type()), " on ", device_name(input));
}

bool fits(const ExpectedInput& expected, const at::Tensor& input) {
  if (!input.defined() || input.dim() != static_cast<std::int64_t>(expected.sizes.size())) return false;
  if (expected.dtype.has_value() && input.scalar_type() != *expected.dtype) return false;
  for (std::size_t i = 0; i < expected.sizes.size(); ++i) {
    const bool is_dynamic = expected.sizes[i] < 0;
    if (!is_dynamic && expected.sizes[i] != input.size(static_cast<std::int64_t>(i))) return false;
  }
  return true;
}

}  // namespace

void check_inputs(const Package& package, const std::vector<at::Tensor>& inputs) {
  const auto& expected = package.inputs();
  const auto& wanted = package.expected_inputs();
  if (expected.empty()) return;
  TORCH_CHECK_VALUE(inputs.size() == expected.size(), "exported::Model::run: \"", package.file(), "\" takes ",
                    expected.size(), " inputs and was given ", inputs.size(),
                    "; pass the flattened inputs of the export.");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    // Compiled code would read memory of another device.
    const std::string& device = expected[i].device;
    if (fits(wanted[i], inputs[i]) && (device.empty() || device_name(inputs[i]) == device)) continue;
    TORCH_CHECK_VALUE(false, "exported::Model::run: input ", i, " (", expected[i].name, ") of \"",
                      package.file(), "\" was exported as ", describe(expected[i]), ", and ",
                      describe(inputs[i]),
                      " was given; pass a tensor like the exported one, or export with dynamic shapes.");
  }
}

}  // namespace torchtap::exported::detail
