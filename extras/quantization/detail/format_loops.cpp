// Rounds numbers to formats and tallies the loss.
//
// Highway compiles this file once per instruction set and picks one at run time; without Highway it is
// compiled once. The loops are written with the compiler's vectors, which both kinds of build have. Sums have
// 32 lanes, of as many vectors as that takes, and products are not fused with sums (-ffp-contract=off), so
// that all instruction sets compute the same bits.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <torchtap/base/error.hpp>
#include <torchtap/quantization/detail/format_loops.hpp>

#ifdef TORCHTAP_HAVE_HIGHWAY
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torchtap/quantization/detail/format_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#else
#define HWY_NAMESPACE plain
#define HWY_ATTR
#define HWY_BEFORE_NAMESPACE() static_assert(true)
#define HWY_AFTER_NAMESPACE() static_assert(true)
#define HWY_ONCE 1
#endif

HWY_BEFORE_NAMESPACE();
namespace torchtap::quantization::detail::HWY_NAMESPACE {
namespace {

#if defined(TORCHTAP_HAVE_HIGHWAY) && HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
constexpr std::int64_t kBytes = 64;
#elif defined(TORCHTAP_HAVE_HIGHWAY) && HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
constexpr std::int64_t kBytes = 32;
#else
constexpr std::int64_t kBytes = 16;
#endif

constexpr std::int64_t kMost = kFormatChunk;
constexpr std::int64_t kLanes = 32;             // of a step: a block of MX, two of NVFP4
constexpr std::int64_t kShort = 16;             // numbers of a short block
constexpr std::int32_t kInfinite = 0x7F800000;  // the bits of float32's infinity
constexpr float kLargest = std::numeric_limits<float>::max();

typedef float Floats __attribute__((vector_size(kBytes)));
typedef std::int32_t Words __attribute__((vector_size(kBytes)));
constexpr std::int64_t kWidth = kBytes / 4, kTogether = 2;

template <class To, class From>
HWY_ATTR To bit_cast(const From& from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
constexpr std::int32_t power_of_two(int exponent) noexcept {
  return (127 + exponent) << 23;
}

/// At most `kMost` numbers.
struct Chunk {
  alignas(64) float numbers[kMost];  // finite magnitudes; zeros for others, and up to a whole step
  std::int64_t steps = 0, nonzero = 0;
  std::int32_t most = 0, least = 0;  // the bits of the extremes, zeros left out
  // For each short block, and the bits of its largest magnitude once they were found.
  alignas(64) std::int32_t block_most[kMost / kShort];
  bool has_block_most = false;
  float scales[kMost / kShort], inverses[kMost / kShort];

  /// Whether squares would leave the range of float32: those of errors, which are much smaller, too.
  bool is_wide() const noexcept {
    return most >= power_of_two(59) || (most != 0 && most < power_of_two(-40));
  }
};

HWY_ATTR double sum_of(const float* lanes) noexcept {
  double sums[4] = {};
  for (std::int64_t i = 0; i < kLanes; i += 4) {
    for (std::int64_t j = 0; j < 4; ++j) sums[j] += static_cast<double>(lanes[i + j]);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}
HWY_ATTR std::int64_t count_of(const Words& lanes) noexcept {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < kWidth; ++i) sum += lanes[i];
  return sum;
}

/// Adds a chunk to the tally of a format. `kLow` and `kHigh`: whether there may be numbers that are not
/// normal, and that overflow. `kWide`: errors are multiplied by a power of two before they are squared, and
/// numbers that are large once they are scaled are divided by one while they are rounded, because neighbours
/// of the largest float32 have none to add and subtract.
template <bool kScaled, bool kLow, bool kHigh, bool kWide = false>
HWY_ATTR void add(const Chunk& chunk, const FormatLoop& to, FormatTally& tally,
                  bool large_numbers = false) noexcept {
  const int down = kWide && large_numbers ? 64 : 0;
  const auto up = bit_cast<float>(std::max((254 << 23) - (chunk.most & kInfinite), 1 << 23));
  const Words none = {}, exponents = none + to.exponents, shift = none + to.shift - (down << 23);
  const Words least = none + (down == 0 ? to.least : std::max(to.least, (down + 1) << 23));
  const Words underflow = none + to.underflow, normal = none + to.normal, large = none + to.large;
  const Floats max = Floats{} + to.max;
  const float divide = bit_cast<float>(power_of_two(-down)), multiply = bit_cast<float>(power_of_two(down));
  alignas(64) float squares[kLanes];
  std::int64_t below = 0, small = 0, over = 0;
  for (std::int64_t offset = 0; offset < kLanes; offset += kTogether * kWidth) {
    Floats sums[kTogether] = {};
    Words is_below[kTogether] = {}, is_small[kTogether] = {}, is_over[kTogether] = {};
    for (std::int64_t step = 0; step < chunk.steps; ++step) {
#pragma GCC unroll 2
      for (std::int64_t i = 0; i < kTogether; ++i) {
        const std::int64_t lane = offset + i * kWidth, block = step * 2 + lane / kShort;
        Floats x;
        std::memcpy(&x, chunk.numbers + step * kLanes + lane, sizeof x);
        Floats scaled = x;
        if constexpr (kScaled) scaled *= chunk.inverses[block];
        const Words bits = (Words)scaled;  // NOLINT: reads the bits
        Words octave = bits & exponents;
        octave = octave > least ? octave : least;
        const Floats unit = (Floats)(octave + shift);  // NOLINT: reads the bits
        Floats rounded;
        if constexpr (kWide) {
          rounded = ((scaled * divide + unit) - unit) * multiply;
        } else {
          rounded = (scaled + unit) - unit;
        }
        if constexpr (kHigh) rounded = rounded < max ? rounded : max;
        if constexpr (kScaled) rounded *= chunk.scales[block];
        Floats error = x - rounded;
        if constexpr (kWide) error *= up;
        sums[i] += error * error;
        if constexpr (kLow) {
          is_below[i] -= bits < underflow;
          is_small[i] -= bits < normal;
        }
        if constexpr (kHigh) is_over[i] -= bits >= large;
      }
    }
    for (std::int64_t i = 0; i < kTogether; ++i) {
      std::memcpy(squares + offset + i * kWidth, &sums[i], sizeof sums[i]);
      if constexpr (kLow) {
        below += count_of(is_below[i]);
        small += count_of(is_small[i]);
      }
      if constexpr (kHigh) over += count_of(is_over[i]);
    }
  }
  const double divisor = kWide ? static_cast<double>(up) : 1;
  tally.squared_error += sum_of(squares) / divisor / divisor;
  if constexpr (kLow) {
    tally.underflow += below - (chunk.steps * kLanes - chunk.nonzero);  // zeros stay zeros
    tally.subnormal += small - below;
  }
  tally.overflow += over;
}

/// Finds the scale of each block.
HWY_ATTR void find_scales(Chunk& chunk, const FormatLoop& format, float abs_max) noexcept {
  constexpr float kScaleMax = 448;  // of float8_e4m3fn
  const std::int64_t blocks = chunk.steps * kLanes / kShort;
  if (format.scaling == NumberFormat::Scale::given) {
    std::fill(chunk.scales, chunk.scales + blocks, format.scale);
    std::fill(chunk.inverses, chunk.inverses + blocks, 1 / format.scale);
    return;
  }
  std::int32_t* const most = chunk.block_most;
  if (!chunk.has_block_most) {
    for (std::int64_t i = 0; i < blocks; ++i) {
      typedef std::int32_t Four __attribute__((vector_size(16)));
      Four parts[4];
      std::memcpy(parts, chunk.numbers + i * kShort, sizeof parts);
      for (const Four& part : parts) parts[0] = parts[0] > part ? parts[0] : part;
      most[i] = std::max(std::max(parts[0][0], parts[0][1]), std::max(parts[0][2], parts[0][3]));
    }
    chunk.has_block_most = true;
  }
  if (format.scaling == NumberFormat::Scale::mx) {  // two short blocks are one of 32
    const int highest = std::ilogb(format.max);
    for (std::int64_t i = 0; i < blocks; i += 2) {
      const std::int32_t exponent = (std::max(most[i], most[i + 1]) >> 23) - highest;
      // From 2^-127, which is denormal as a float32.
      chunk.scales[i] = chunk.scales[i + 1] = bit_cast<float>(exponent > 0 ? exponent << 23 : 0x00400000);
      chunk.inverses[i] = chunk.inverses[i + 1] = bit_cast<float>((254 - std::max(exponent, 0)) << 23);
    }
    return;
  }
  const float encode = std::min(abs_max == 0 ? 1.0F : kScaleMax * format.max / abs_max, kLargest);
  const float decode = 1 / encode;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const float wanted = bit_cast<float>(most[i]) / format.max * encode;
    const std::int32_t octave = std::max(bit_cast<std::int32_t>(wanted) & kInfinite, power_of_two(-6));
    const auto unit = bit_cast<float>(octave + ((23 - 3) << 23));  // as in `add`
    const float scale = std::min((wanted + unit) - unit, kScaleMax) * decode;
    chunk.scales[i] = scale;
    // 0: a block of numbers that all become zero.
    chunk.inverses[i] = scale == 0 ? 0 : std::min(1 / scale, kLargest);
  }
}

/// Adds a chunk to the tally of a format.
HWY_ATTR void add(Chunk& chunk, const FormatLoop& format, float abs_max, FormatTally& tally) noexcept {
  const bool given = format.scaling == NumberFormat::Scale::given;
  const bool large = given && bit_cast<float>(chunk.most) / format.scale >= 0x1p59F;
  const bool wide = large || chunk.is_wide();
  const bool scaled = wide || !given || format.scale != 1;
  if (scaled) find_scales(chunk, format, abs_max);
  if (wide) return add<true, true, true, true>(chunk, format, tally, large);
  if (scaled) return add<true, true, true>(chunk, format, tally);
  if (chunk.most > bit_cast<std::int32_t>(format.max)) return add<false, true, true>(chunk, format, tally);
  if (chunk.least < format.normal) return add<false, true, false>(chunk, format, tally);
  add<false, false, false>(chunk, format, tally);
}

/// Reads rows into a chunk, each up to a whole step.
HWY_ATTR void read(const float* x, std::int64_t rows, std::int64_t width, Chunk& chunk,
                   ValueTally& values) noexcept {
  constexpr std::int32_t kAll = 0x7FFFFFFF;
  alignas(64) float room[kMost], lanes[kLanes];
  const std::int64_t padded = (width + kLanes - 1) / kLanes * kLanes;
  for (std::int64_t row = 0; row < rows && padded != width; ++row) {
    float* const to = room + row * padded;
    std::copy_n(x + row * width, width, to);
    std::fill(to + width, to + padded, 0.0F);
  }
  const float* const from = padded != width ? room : x;
  chunk.steps = rows * padded / kLanes;
  chunk.has_block_most = false;
  Words most = {}, least = most + kAll, zeros = {};
  for (std::int64_t offset = 0; offset < kLanes; offset += kTogether * kWidth) {
    Floats sums[kTogether] = {};
    for (std::int64_t step = 0; step < chunk.steps; ++step) {
#pragma GCC unroll 2
      for (std::int64_t i = 0; i < kTogether; ++i) {
        const std::int64_t at = step * kLanes + offset + i * kWidth;
        Words bits;
        std::memcpy(&bits, from + at, sizeof bits);
        bits &= kAll;
        std::memcpy(chunk.numbers + at, &bits, sizeof bits);
        most = bits > most ? bits : most;
        const Words zero = bits == 0, some = bits | (zero & kAll);
        least = some < least ? some : least;
        zeros -= zero;
        sums[i] += (Floats)bits * (Floats)bits;  // NOLINT: reads the bits
      }
    }
    for (std::int64_t i = 0; i < kTogether; ++i)
      std::memcpy(lanes + offset + i * kWidth, &sums[i], sizeof sums[i]);
  }
  chunk.most = 0;
  chunk.least = kAll;
  for (std::int64_t i = 0; i < kWidth; ++i) {
    chunk.most = std::max(chunk.most, most[i]);
    chunk.least = std::min(chunk.least, least[i]);
  }
  const std::int64_t numbers = chunk.steps * kLanes;
  if (chunk.most >= kInfinite) {  // seldom: again, with zeros for NaN and infinities
    alignas(64) float finite[kMost];
    for (std::int64_t i = 0; i < numbers; ++i) {
      const bool is_finite = std::isfinite(from[i]);
      finite[i] = is_finite ? from[i] : 0;
      values.nan += std::isnan(from[i]) ? 1 : 0;
      values.infinities += std::isinf(from[i]) ? 1 : 0;
      values.zeros -= is_finite ? 0 : 1;
    }
    values.zeros -= numbers - rows * width;
    return read(finite, 1, numbers, chunk, values);
  }
  chunk.nonzero = numbers - count_of(zeros);
  double squares = sum_of(lanes);
  if (chunk.is_wide()) {
    squares = 0;
    for (std::int64_t i = 0; i < numbers; ++i)
      squares += static_cast<double>(chunk.numbers[i]) * static_cast<double>(chunk.numbers[i]);
  }
  values.squares += squares;
  values.zeros += rows * width - chunk.nonzero;
  values.abs_max = std::max(values.abs_max, bit_cast<float>(chunk.most));
}

/// Numbers side by side do for formats without blocks; for the others each row begins with a step.
HWY_ATTR void tally(const std::vector<FormatLoop>& formats, const float* x, std::int64_t rows,
                    std::int64_t width, float abs_max, ValueTally& values, FormatTally* tallies) {
  Chunk chunk;
  const auto add_all = [&](bool plain, bool blocks) HWY_ATTR {
    for (std::size_t f = 0; f < formats.size(); ++f) {
      if (formats[f].scaling == NumberFormat::Scale::given ? plain : blocks)
        add(chunk, formats[f], abs_max, tallies[f]);
    }
  };
  const bool joined = rows == 1 || width % kLanes == 0;
  for (std::int64_t i = 0; i < rows * width; i += kMost) {
    read(x + i, 1, std::min(kMost, rows * width - i), chunk, values);
    if (abs_max < 0) abs_max = values.abs_max;
    add_all(true, joined);
  }
  const auto has_blocks = [](const FormatLoop& one) { return one.scaling != NumberFormat::Scale::given; };
  if (joined || std::none_of(formats.begin(), formats.end(), has_blocks)) return;
  ValueTally again;
  const std::int64_t together = std::max<std::int64_t>(1, kMost / ((width + kLanes - 1) / kLanes * kLanes));
  for (std::int64_t row = 0; row < rows; row += together) {
    for (std::int64_t i = 0; i < width; i += kMost) {
      read(x + row * width + i, std::min(together, rows - row), std::min(kMost, width - i), chunk, again);
      add_all(false, true);
    }
  }
}

}  // namespace

auto tally_of_set() {
  return &tally;
}

}  // namespace torchtap::quantization::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torchtap::quantization::detail {

#ifdef TORCHTAP_HAVE_HIGHWAY
namespace {
HWY_EXPORT(tally_of_set);
}  // namespace
#endif

void tally_formats(const std::vector<FormatLoop>& formats, const float* x, std::int64_t rows,
                   std::int64_t width, float abs_max, ValueTally& values, FormatTally* tallies) {
#ifdef TORCHTAP_HAVE_HIGHWAY
  HWY_DYNAMIC_DISPATCH(tally_of_set)()(formats, x, rows, width, abs_max, values, tallies);
#else
  HWY_NAMESPACE::tally_of_set()(formats, x, rows, width, abs_max, values, tallies);
#endif
}

const std::vector<NumberFormat>& number_formats() {
  using Scale = NumberFormat::Scale;
  static const auto& all = *new const std::vector<NumberFormat>{
      {"e4m3", Scale::given, false, 3, -6, 448},  // OCP OFP8: no infinity, so 480 is NaN
      {"e5m2", Scale::given, false, 2, -14, 57344},    {"bf16", Scale::given, false, 7, -126, 0x1.FEp127},
      {"f16", Scale::given, false, 10, -14, 65504},    {"int8", Scale::given, true, 0, 0, 127},
      {"mxfp8", Scale::mx, false, 3, -6, 448},         {"nvfp4", Scale::nv, false, 1, 0, 6},
      {"mxfp8_e5m2", Scale::mx, false, 2, -14, 57344}, {"mxfp4", Scale::mx, false, 1, 0, 6},
  };
  return all;
}

const NumberFormat& number_format(const std::string& name) {
  std::string names;
  for (const auto& format : number_formats()) {
    if (name == format.name) return format;
    names += std::string(names.empty() ? "" : ", ") + format.name;
  }
  TORCH_CHECK_VALUE(false, "\"", name, "\" is no format; there are ", names, ".");
}

double NumberFormat::rounded(double magnitude) const noexcept {
  const int octave = magnitude == 0 ? min_exponent : std::max(std::ilogb(magnitude), min_exponent);
  const int unit = whole ? 0 : octave - mantissa_bits;
  return std::ldexp(std::nearbyint(std::ldexp(magnitude, -unit)), unit);
}

FormatLoop::FormatLoop(const NumberFormat& format, float scale)
    : scaling(format.scaling),
      scale(scale),
      max(static_cast<float>(format.max)),
      exponents(format.whole ? 0 : 0x7F800000),
      least((127 + (format.whole ? 23 : format.min_exponent)) << 23),
      shift(format.whole ? 0 : (23 - format.mantissa_bits) << 23) {
  /// The bits of the least magnitude that is rounded to at least `number`.
  const auto becomes = [&format](double number) {
    std::int32_t low = 0, high = 0x7F800000;
    while (low < high) {
      const std::int32_t middle = low + (high - low) / 2;
      float magnitude;
      std::memcpy(&magnitude, &middle, sizeof magnitude);
      if (format.rounded(static_cast<double>(magnitude)) >= number) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  };
  underflow = becomes(std::numeric_limits<double>::min());
  normal = becomes(std::ldexp(1.0, format.min_exponent));
  large = becomes(std::nextafter(format.max, std::numeric_limits<double>::infinity()));
}

}  // namespace torchtap::quantization::detail
#endif
