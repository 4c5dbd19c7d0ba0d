// Pads texts to rows of bytes.
#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/utf8.hpp>
#include <torchtap/rows/texts.hpp>

namespace torchtap::rows {
namespace {

constexpr std::int64_t kUnit = 64;

}  // namespace

at::Tensor texts(const std::vector<std::string>& texts, std::int64_t width) {
  TORCH_CHECK_VALUE(width >= 0 && width % kUnit == 0, "rows::texts: expected a width that is a multiple of ",
                    kUnit, ", or 0, got ", width, ".");
  std::size_t longest = 1;
  for (const auto& text : texts) {
    TORCH_CHECK_VALUE(base::first_not_utf8(text) == std::string::npos && text.find('\0') == std::string::npos,
                      "rows::texts: a text is not UTF-8, or has a zero byte, which ends texts in files.");
    longest = std::max(longest, text.size());
  }
  const std::int64_t needed = (static_cast<std::int64_t>(longest) + kUnit - 1) / kUnit * kUnit;
  TORCH_CHECK_VALUE(width == 0 || width >= needed, "rows::texts: a text has ", longest,
                    " bytes, and the width is ", width, "; ask for ", needed, ".");
  const base::RecordingMode quiet;
  const at::Tensor all =
      at::zeros({static_cast<std::int64_t>(texts.size()), width == 0 ? needed : width}, at::kByte);
  auto* to = all.data_ptr<std::uint8_t>();
  for (const auto& text : texts) {
    if (!text.empty()) std::memcpy(to, text.data(), text.size());
    to += all.size(1);
  }
  return all;
}

std::vector<std::string> strings(const at::Tensor& texts) {
  TORCH_CHECK_TYPE(
      is_texts(texts), "rows::strings: expected texts, uint8 [..., width] of a width that is a multiple of ",
      kUnit, ", got ", texts.defined() ? c10::str(texts.scalar_type(), " ", texts.sizes()) : "nothing", ".");
  const base::RecordingMode quiet;
  const std::int64_t width = texts.size(-1);
  const at::Tensor all = texts.to(at::kCPU).reshape({-1, width}).contiguous();
  const auto* from = reinterpret_cast<const char*>(all.data_ptr<std::uint8_t>());
  std::vector<std::string> result;
  for (std::int64_t i = 0; i < all.size(0); ++i, from += width)
    result.emplace_back(from, ::strnlen(from, static_cast<std::size_t>(width)));
  return result;
}

bool is_texts(const at::Tensor& tensor) {
  return tensor.defined() && tensor.scalar_type() == at::kByte && tensor.dim() > 0 && tensor.size(-1) > 0 &&
         tensor.size(-1) % kUnit == 0;
}

}  // namespace torchtap::rows
