#pragma once

/// Makes tensors of texts, to keep them beside rows, and texts of tensors.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::rows {

/// Texts as a tensor of uint8, [texts, width]: UTF-8, padded with zero bytes. `width` is a multiple of 64; 0
/// takes the smallest that fits. All texts of one name in a dump need one width, or the first ones the
/// largest. Throws `c10::ValueError` for a text that is not UTF-8, has a zero byte or does not fit, and for
/// another width.
TORCHTAP_API at::Tensor texts(const std::vector<std::string>& texts, std::int64_t width = 0);

/// The texts in such a tensor, [..., width], in order. Throws `c10::TypeError` for any other tensor.
TORCHTAP_API std::vector<std::string> strings(const at::Tensor& texts);

/// Whether it is such a tensor, by dtype and width.
TORCHTAP_API bool is_texts(const at::Tensor& tensor);

}  // namespace torchtap::rows
