#pragma once

/// Declares the loops that round numbers to low-precision formats and tally what is lost.

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace torchtap::reductions::detail {

/// A format for numbers: which there are, and how they are scaled.
struct FloatFormat {
  enum class Scale {
    given,  ///< one scale for all numbers
    mx,     ///< a power of two for each 32 numbers: OCP Microscaling Formats 1.0
    nv,     ///< a float8_e4m3fn for each 16 numbers and a float32 for each sample: NVFP4
  };

  const char* name;
  Scale scaling;
  bool whole;  ///< whole numbers; otherwise of `mantissa_bits` after the point
  int mantissa_bits;
  int min_exponent;  ///< of the least normal number
  double max;        ///< the largest finite number

  /// The distance of neighbouring numbers at this magnitude.
  double quantum(double magnitude) const noexcept;
  /// The number next to a magnitude, of two the even one, as if there were no largest number.
  double rounded(double magnitude) const noexcept;
};

/// The formats by name; the first seven are those that `Formats` has by default.
const std::vector<FloatFormat>& float_formats();
/// Throws `c10::ValueError`, which names all formats, if there is no such one.
const FloatFormat& find_float_format(const std::string& name);

/// A format as the loops read it.
struct FormatLoop {
  FloatFormat::Scale scaling;
  bool whole;  ///< whether neighbours have the same distance, 1, everywhere
  int mantissa_bits, min_exponent;
  float scale;  ///< if it is given
  float max;
  float underflow, normal, large;  ///< the least magnitudes that do not become zero, are normal, overflow

  explicit FormatLoop(const FloatFormat& format, float scale = 1);
};

/// What a format does to some numbers.
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

/// Numbers in memory: rows of `width` numbers, of any real type; float64 and integers become float32 first.
struct FormatRows {
  c10::ScalarType type;
  const char* data;
  std::int64_t rows, width;
};

/// Tallies of at most `kMost` neighbouring numbers, each of its own.
struct FormatColumns {
  static constexpr std::int64_t kMost = 512;

  struct OfFormat {
    double squared_error[kMost];
    std::int64_t underflow[kMost], subnormal[kMost], overflow[kMost];
  };
  double squares[kMost];
  float abs_max[kMost];
  std::int64_t zeros[kMost], nan[kMost], infinities[kMost];
  std::vector<OfFormat> of_formats;

  /// Begins with the first `n` columns. Of loops, which add whole blocks, those behind them count nothing.
  void clear(std::size_t formats, std::int64_t n);
};

/// Single-threaded. All instruction sets compute the same bits. `abs_max` is the largest finite magnitude of
/// the sample, for formats with a scale for each sample.
struct FormatLoops {
  /// Adds the rows, whose blocks begin at the beginning of each row, to `values` and to the tally of each
  /// format.
  void (*tally)(const std::vector<FormatLoop>& formats, const FormatRows& x, float abs_max,
                ValueTally& values, FormatTally* tallies);
  /// Adds each number of one row, of which the first begins a block, to its column.
  void (*add_row)(const std::vector<FormatLoop>& formats, const FormatRows& x, float abs_max,
                  FormatColumns& columns);
};

const FormatLoops& format_loops() noexcept;

}  // namespace torchtap::reductions::detail
