#pragma once

/// 800 bytes about a tensor of any size, which show whether, how far and in which way another tensor differs.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/accumulate.h>

#include <cstdint>
#include <limits>

#include <torchtap/base/api.hpp>

namespace torchtap::views::compare {

/// The fingerprint of a tensor: facts and a sketch, without its values. The bytes are as in a file,
/// little-endian, described in views/compare/FORMAT.md.
///
/// Elements are taken in row-major order whatever the strides are, a complex number as two. Numbers are
/// those elements that are finite.
struct TORCHTAP_API Fingerprint {
  static constexpr int kSketch = 64, kSamples = 32, kDims = 8;  ///< how many there are at most

  std::uint8_t version = 1;  ///< of the layout of these bytes
  std::uint8_t dtype = 0;    ///< the number of the tensor's c10::ScalarType
  std::uint8_t dims = 0;     ///< how many dimensions the tensor has
  std::uint8_t flags = 0;    ///< reserved
  /// A hash of the places of NaN, inf and -inf. 0 if all is finite, or if an older version made the
  /// fingerprint.
  std::uint32_t places = 0;
  std::int64_t sizes[kDims] = {};  ///< of the dimensions
  /// The digest of dtype, shape and the bits of all elements, in order: NH of UMAC (Black et al. 1999) and
  /// Fletcher's sum, by blocks. All NaN count as one number, -0 and 0 as two. It is no cryptographic hash.
  std::uint64_t digest[2] = {};
  /// The sum modulo 2^32, the XOR and the OR of the bits of all elements, which do not depend on the order.
  std::uint32_t words = 0, exclusive = 0, either = 0;
  std::uint32_t reserved_too = 0;                              ///< reserved
  std::uint64_t nans = 0, infinities = 0, zeros = 0;           ///< how many elements are that
  double sum = 0, sum_sq = 0;                                  ///< of the numbers, and of their squares
  double least = std::numeric_limits<double>::infinity();      ///< of the numbers
  double greatest = -std::numeric_limits<double>::infinity();  ///< of the numbers
  /// Sums of the numbers with random signs (Charikar, Chen, Farach-Colton 2002). The sketch of a - b is the
  /// difference of the two sketches, and its norm estimates the norm of a - b to 9 % (one standard
  /// deviation).
  double sketch[kSketch] = {};
  /// One element of each of 32 equal parts; all of them if there are at most 32.
  float samples[kSamples] = {};

  /// The sizes of the tensor.
  at::IntArrayRef shape() const { return {sizes, dims}; }
  /// The dtype of the tensor.
  c10::ScalarType scalar_type() const { return static_cast<c10::ScalarType>(dtype); }
  /// The number of elements; a complex number counts as two.
  std::int64_t numel() const {
    return c10::multiply_integers(shape()) * (c10::isComplexType(scalar_type()) ? 2 : 1);
  }
};
static_assert(sizeof(Fingerprint) == 800);

/// Reads the tensor once; one on another device is copied to the CPU first. Throws `c10::ValueError`
/// naming the reason if it has no fingerprint: it is undefined, sparse, nested, without data (`meta`), or
/// has more than 8 dimensions.
TORCHTAP_API Fingerprint fingerprint(const at::Tensor& tensor);

/// Whether dtype, shape and the bits of all elements are the same; wrong with a probability of 2^-64.
TORCHTAP_API bool same_bits(const Fingerprint& a, const Fingerprint& b);

/// The norm of a - b by the greater norm of both, estimated from the sketches; exact for 64 elements or
/// fewer. Infinite if they do not have as many elements, NaN or infinities, or have these at other places.
TORCHTAP_API double relative_error(const Fingerprint& a, const Fingerprint& b);

/// The logarithm of b's norm by a's: rounding cancels in it, another factor does not. 0 if both are zero,
/// infinite if one is.
TORCHTAP_API double log_scale(const Fingerprint& a, const Fingerprint& b);

}  // namespace torchtap::views::compare

/// For programs that cannot link C++: the fingerprint of `contiguous` elements, written to 800 bytes at
/// `fingerprint`. The elements of a quantized tensor are its float32 `dequantize()`. Returns 0, or 1 if it
/// has none.
extern "C" TORCHTAP_API int torchtap_fingerprint(const void* contiguous, int dtype, int dims,
                                                 const std::int64_t* sizes, void* fingerprint);
