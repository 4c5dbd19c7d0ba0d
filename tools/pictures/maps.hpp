#pragma once

/// Pictures of tensors with two dimensions or more: feature maps side by side.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "colours.hpp"
#include "image.hpp"

namespace torchtap::tools::pictures {

/// Whether a tensor has maps: two dimensions or more, and the last two larger than 1.
bool has_maps(const at::Tensor& tensor);
/// The maps of a tensor as [C, H, W]: [H, W] is one map, [C, H, W] are C maps, and [N, …, H, W] has the maps
/// of sample `pick`. Throws `c10::ValueError` if there are none, or no such sample.
at::Tensor maps_of(const at::Tensor& tensor, std::int64_t pick = 0);
/// Draws maps [C, H, W] side by side with a gap of a pixel, into at most `width` x `height` pixels: larger
/// maps are averaged, smaller ones magnified, and maps that find no room are left out; `shown` is the number
/// of drawn maps.
Image draw_maps(const at::Tensor& maps, const Range& range, std::size_t width, std::size_t height,
                std::size_t& shown);

}  // namespace torchtap::tools::pictures
