#pragma once

// The number formats, and the loops that round numbers to them and tally the loss.

#include <cstdint>
#include <string>
#include <vector>

namespace torchtap::quantization::detail {

struct NumberFormat {
  enum class Scale {
    given,  ///< one for all numbers
    mx,     ///< a power of two for each 32 numbers
    nv,     ///< a float8_e4m3fn for each 16 numbers, and a float32 for each sample
  };

  const char* name;
  Scale scaling;
  bool whole;  ///< whole numbers; otherwise of `mantissa_bits` after the point
  int mantissa_bits;
  int min_exponent;  ///< of the least normal number
  double max;        ///< the largest number

  /// The number next to a magnitude, of two the even one, as if there were no largest number.
  double rounded(double magnitude) const noexcept;
};

/// The first seven are those that `Formats` has by default.
const std::vector<NumberFormat>& number_formats();
/// Throws `c10::ValueError`, which names all formats, if there is no such one.
const NumberFormat& number_format(const std::string& name);

/// A format as the loops read it. Integers are bits of float32, whose order is that of the magnitudes.
struct FormatLoop {
  NumberFormat::Scale scaling;
  float scale;  ///< if it is given
  float max;
  std::int32_t exponents;     ///< the bits that tell the distance of neighbours
  std::int32_t least, shift;  ///< adding `shift` to these bits, at least `least`, gives the number
                              ///< whose lowest bit is that distance: adding and subtracting it rounds
  std::int32_t underflow, normal,
      large;  ///< the least magnitudes that do not become zero, are normal, overflow

  explicit FormatLoop(const NumberFormat& format, float scale = 1);
};

/// The loss of some numbers in a format.
struct FormatTally {
  double squared_error = 0;
  std::int64_t underflow = 0, subnormal = 0, overflow = 0;
};

/// The numbers themselves.
struct ValueTally {
  double squares = 0;
  float abs_max = 0;
  std::int64_t zeros = 0, nan = 0, infinities = 0;
};

constexpr std::int64_t kFormatChunk = 512;  ///< numbers that are read at a time

/// Adds rows of `width` numbers, with whose beginnings blocks begin, to `values` and to the tally of each
/// format. `abs_max` is the largest finite magnitude of the sample, for formats with a scale for it; -1 if
/// the rows are the whole sample and one chunk. All instruction sets compute the same bits.
void tally_formats(const std::vector<FormatLoop>& formats, const float* x, std::int64_t rows,
                   std::int64_t width, float abs_max, ValueTally& values, FormatTally* tallies);

}  // namespace torchtap::quantization::detail
