#pragma once

/// The differences between two fingerprints, in numbers and in words.

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <torchtap/base/api.hpp>
#include <torchtap/views/compare/fingerprint.hpp>

namespace torchtap::views::compare {

/// The difference between two tensors, as their fingerprints show it.
struct Difference {
  bool same_bits = false;  ///< whether dtype, shape and the bits of all elements are the same
  /// The relative error, infinite if shapes, or the numbers or places of NaN or infinities differ. Whole
  /// numbers of one dtype have one above 0 unless they are the same.
  double error = 0;
  double scale = 0;       ///< the logarithm of B's norm by A's
  double unit = 0;        ///< half an ulp of 1 of the coarser dtype; 0 of whole numbers
  double elements = 1;    ///< how many there are, at least 1
  bool reshaped = false;  ///< the shapes differ, though not the number of elements

  /// Whether rounding cannot explain the difference (another shape, NaN or whole number): nothing that is
  /// computed from it can be judged then.
  bool breaks() const noexcept { return !std::isfinite(error) || (unit == 0 && error > 0); }
};

/// The largest error and |scale| of several tensors.
struct Extent {
  double error = 0, scale = 0;  ///< of all that do not break
  bool broken = false;          ///< something among these `breaks`, and is not in `error`

  /// Takes in the difference of another tensor.
  void add(const Difference& difference) {
    broken |= difference.breaks();
    if (difference.breaks()) return;
    error = std::max(error, difference.error), scale = std::max(scale, std::abs(difference.scale));
  }
  /// Whether a difference is at most as large as these. A difference of NaN counts as larger.
  bool holds(const Difference& difference) const {
    return difference.same_bits || (difference.error <= error && std::abs(difference.scale) <= scale);
  }
};

/// The difference between two fingerprints. Sizes count as equal if they differ only in dimensions of size 1,
/// or as a tensor's and its `view`'s do. If dimensions are in another order (NCHW and NHWC), it compares sums
/// that do not depend on the order.
TORCHTAP_API Difference difference(const Fingerprint& a, const Fingerprint& b);

/// Whether it has whole numbers, or true and false.
TORCHTAP_API bool is_whole(const Fingerprint& print);

/// Two texts as messages show them: of long ones what is around the first place where they differ.
TORCHTAP_API std::pair<std::string, std::string> excerpts(const std::string& a, const std::string& b);

/// "B is rounded to bfloat16", "B = 0.5 A", "the same values in another order: B = A.transpose(0, 1)"; empty
/// if the fingerprints show no relation.
TORCHTAP_API std::string in_words(const Fingerprint& a, const Fingerprint& b);

}  // namespace torchtap::views::compare
