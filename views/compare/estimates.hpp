#pragma once

/// What two fingerprints say of how two tensors differ, and what one says alone.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include <torchtap/base/api.hpp>
#include <torchtap/views/compare/fingerprint.hpp>

namespace torchtap::views::compare {

/// The cosine of the angle between both, estimated from the sketches; NaN if one is zero. As
/// `relative_error`, it takes elements in row-major order whatever the shapes, and its error is up to 0.2.
TORCHTAP_API double cosine(const Fingerprint& a, const Fingerprint& b);

/// b = slope * a + offset.
struct Line {
  double slope, offset;
  double rest;  ///< the norm of what it leaves of b, by b's, estimated from the sketches
};
/// The line through the samples, and how well it fits all elements. Nothing if there are fewer than three
/// samples, all of a's are the same, the numbers of elements differ, or not all are finite.
TORCHTAP_API std::optional<Line> line(const Fingerprint& a, const Fingerprint& b);

/// The greatest difference of two elements is in this range.
struct Range {
  double least, most;
};
/// Between the greatest difference of two samples and the estimated norm of all differences. Infinite if the
/// numbers of elements, NaN or infinities differ.
TORCHTAP_API Range greatest_error(const Fingerprint& a, const Fingerprint& b);

/// About how many elements differ, if they are few: at most half of the 64 sums do. Exact for at most 64
/// elements. Nothing if they are many, or differ by less than rounding of the sums shows.
TORCHTAP_API std::optional<std::int64_t> count_different(const Fingerprint& a, const Fingerprint& b);

/// Whether both have the same values in another order.
enum class Reordered {
  no,
  up_to_rounding,  ///< sum, sum of squares, least and greatest agree to 1e-4, elements do not
  exactly,         ///< their bits do, too, in sum, XOR and OR; that they do by chance is unlikely
};
TORCHTAP_API Reordered reordered(const Fingerprint& a, const Fingerprint& b);

/// The narrower dtype, bfloat16 or float16, whose precision no element of a float32 tensor exceeds. Nothing
/// if there is none, or if all elements are 0. Whole numbers may be such by themselves.
TORCHTAP_API std::optional<c10::ScalarType> precision_of(const Fingerprint& a);

/// Whether there are elements, and all of them are 0.
TORCHTAP_API bool all_zero(const Fingerprint& a);

}  // namespace torchtap::views::compare
