// Rounds numbers to low-precision formats and tallies what is lost.
//
// Highway compiles this file once per instruction set and picks one at run time; without Highway it is
// compiled once. The loops are written with the compiler's vectors, which both kinds of build have. Sums have
// 32 lanes, of as many vectors as that takes, and products are not fused with sums (-ffp-contract=off), so
// that all instruction sets compute the same bits.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include <torchtap/base/of_thread.hpp>
#include <torchtap/reductions/detail/format_loops.hpp>
#include <torchtap/reductions/pass.hpp>

#ifdef TORCHTAP_HAVE_HIGHWAY
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torchtap/reductions/detail/format_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#else
#define HWY_NAMESPACE plain
#define HWY_ATTR
#define HWY_BEFORE_NAMESPACE() static_assert(true)
#define HWY_AFTER_NAMESPACE() static_assert(true)
#define HWY_ONCE 1
#endif

#include <torchtap/reductions/detail/small_convert-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace torchtap::reductions::detail::HWY_NAMESPACE {
namespace {

#if defined(TORCHTAP_HAVE_HIGHWAY) && HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
constexpr std::int64_t kBytes = 64;
#elif defined(TORCHTAP_HAVE_HIGHWAY) && HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
constexpr std::int64_t kBytes = 32;
#else
constexpr std::int64_t kBytes = 16;
#endif

constexpr std::int64_t kMost = FormatColumns::kMost;  // numbers of a chunk
constexpr std::int64_t kLanes = 32;                   // of a step: a block of MX, two of NVFP4
constexpr std::int64_t kShort = 16;                   // numbers of a short block
constexpr std::int32_t kInfinite = 0x7F800000;        // the bits of float32's infinity

typedef float Floats __attribute__((vector_size(kBytes)));
typedef std::int32_t Words __attribute__((vector_size(kBytes)));
constexpr std::int64_t kWidth = kBytes / 4;

template <class To, class From>
HWY_ATTR To bit_cast(const From& from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

/// The constants of a format for numbers of type T.
template <class T>
struct Rounding {
  using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  Bits exponents;     // the bits that tell the distance of neighbours
  Bits least, shift;  // adding `shift` to these bits, at least `least`, gives the bits of the number whose
                      // lowest bit is that distance: adding it to a number and subtracting it rounds
  T max;
  Bits underflow, normal, large;  // as bits, which are in the order of the numbers

  HWY_ATTR explicit Rounding(const FormatLoop& format) noexcept
      : max(format.max),
        underflow(bit_cast<Bits>(static_cast<T>(format.underflow))),
        normal(bit_cast<Bits>(static_cast<T>(format.normal))),
        large(bit_cast<Bits>(static_cast<T>(format.large))) {
    constexpr int kMantissa = std::numeric_limits<T>::digits - 1;
    constexpr Bits kBias = std::numeric_limits<T>::max_exponent - 1;
    exponents = format.whole ? 0 : bit_cast<Bits>(std::numeric_limits<T>::infinity());
    least = (kBias + (format.whole ? kMantissa : format.min_exponent)) << kMantissa;
    shift = format.whole ? 0 : static_cast<Bits>(kMantissa - format.mantissa_bits) << kMantissa;
  }
};

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
  bool is_wide() const noexcept { return most != 0 && (most < (127 - 40) << 23 || most >= (127 + 59) << 23); }
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
/// normal, and that overflow.
template <bool kScaled, bool kLow, bool kHigh>
HWY_ATTR void add(const Chunk& chunk, const FormatLoop& format, FormatTally& tally) noexcept {
  constexpr std::int64_t kTogether = 2;
  const Rounding<float> to(format);
  const Words none = {}, exponents = none + to.exponents, least = none + to.least, shift = none + to.shift;
  const Words underflow = none + to.underflow, normal = none + to.normal, large = none + to.large;
  const Floats max = Floats{} + to.max;
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
        Floats rounded = (scaled + unit) - unit;
        if constexpr (kHigh) rounded = rounded < max ? rounded : max;
        if constexpr (kScaled) rounded *= chunk.scales[block];
        const Floats error = x - rounded;
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
  tally.squared_error += sum_of(squares);
  if constexpr (kLow) {
    tally.underflow += below - (chunk.steps * kLanes - chunk.nonzero);  // zeros stay what they are
    tally.subnormal += small - below;
  }
  tally.overflow += over;
}

/// The largest of the bits of 16 magnitudes.
HWY_ATTR std::int32_t most_of_block(const float* x) noexcept {
  typedef std::int32_t Four __attribute__((vector_size(16)));
  Four parts[4];
  std::memcpy(parts, x, sizeof parts);
  parts[0] = parts[0] > parts[1] ? parts[0] : parts[1];
  parts[2] = parts[2] > parts[3] ? parts[2] : parts[3];
  const Four most = parts[0] > parts[2] ? parts[0] : parts[2];
  return std::max(std::max(most[0], most[1]), std::max(most[2], most[3]));
}

/// Scales of blocks of 32: powers of two.
HWY_ATTR void find_mx_scales(Chunk& chunk, float max) noexcept {
  const std::int32_t* const most = chunk.block_most;
  const int highest = std::ilogb(max);  // the exponent of the largest number
  for (std::int64_t i = 0; i < kMost / kShort; i += 2) {
    const std::int32_t exponent = (std::max(most[i], most[i + 1]) >> 23) - highest;
    // From 2^-127, which is denormal as a float32.
    const std::int32_t scale = exponent > 0 ? exponent << 23 : 0x00400000;
    const std::int32_t inverse = (254 - std::max(exponent, 0)) << 23;
    chunk.scales[i] = chunk.scales[i + 1] = bit_cast<float>(scale);
    chunk.inverses[i] = chunk.inverses[i + 1] = bit_cast<float>(inverse);
  }
}

/// Scales of blocks of 16: float8_e4m3fn times a float32 of the sample.
HWY_ATTR void find_nv_scales(Chunk& chunk, float max, float abs_max) noexcept {
  constexpr float kLargest = std::numeric_limits<float>::max(), kScaleMax = 448.0F;
  constexpr std::int32_t kLeastScale = (127 - 6) << 23, kToUnit = (23 - 3) << 23;  // of float8_e4m3fn
  const float encode = std::min(abs_max == 0 ? 1.0F : kScaleMax * max / abs_max, kLargest);
  const float decode = 1 / encode;
  for (std::int64_t i = 0; i < kMost / kShort; ++i) {
    const float wanted = bit_cast<float>(chunk.block_most[i]) / max * encode;
    const std::int32_t octave = bit_cast<std::int32_t>(wanted) & kInfinite;
    const auto unit =
        bit_cast<float>((octave > kLeastScale ? octave : kLeastScale) + kToUnit);  // as in `add`
    const float next = (wanted + unit) - unit, scale = (next < kScaleMax ? next : kScaleMax) * decode;
    const float inverse = 1 / scale;
    chunk.scales[i] = scale;
    // 0: a block of numbers that all become zero.
    chunk.inverses[i] = scale == 0 ? 0 : inverse < kLargest ? inverse : kLargest;
  }
}

/// Finds the scale of each block.
HWY_ATTR void find_scales(Chunk& chunk, const FormatLoop& format, float abs_max) noexcept {
  constexpr std::int64_t kBlocks = kMost / kShort;
  if (format.scaling == FloatFormat::Scale::given) {
    std::fill(chunk.scales, chunk.scales + kBlocks, format.scale);
    std::fill(chunk.inverses, chunk.inverses + kBlocks, 1 / format.scale);
    return;
  }
  if (!chunk.has_block_most) {
    for (std::int64_t i = 0; i < kBlocks; ++i)
      chunk.block_most[i] = i * kShort < chunk.steps * kLanes ? most_of_block(chunk.numbers + i * kShort) : 0;
    chunk.has_block_most = true;
  }
  if (format.scaling == FloatFormat::Scale::mx) {
    find_mx_scales(chunk, format.max);
  } else {
    find_nv_scales(chunk, format.max, abs_max);
  }
}

/// Adds a chunk to columns, in float64.
HWY_ATTR void add_columns(const Chunk& chunk, const FormatLoop& format,
                          FormatColumns::OfFormat& columns) noexcept {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const Rounding<double> to(format);
  for (std::int64_t block = 0; block < chunk.steps * kLanes / kShort; ++block) {
    const float inverse = chunk.inverses[block], scale = chunk.scales[block];
    for (std::int64_t i = block * kShort; i < (block + 1) * kShort; ++i) {
      const float product = chunk.numbers[i] * inverse;
      const auto number = static_cast<double>(product < kLargest ? product : kLargest);
      const auto bits = bit_cast<std::int64_t>(number);
      const std::int64_t octave = bits & to.exponents;
      const auto unit = bit_cast<double>((octave > to.least ? octave : to.least) + to.shift);
      const double next = (number + unit) - unit;
      const auto rounded = static_cast<float>(next < to.max ? next : to.max) * scale;
      const double error = static_cast<double>(chunk.numbers[i]) - static_cast<double>(rounded);
      columns.squared_error[i] += error * error;
      const std::int64_t below = bits < to.underflow ? 1 : 0, zero = chunk.numbers[i] == 0 ? 1 : 0;
      columns.underflow[i] += below - zero;
      columns.subnormal[i] += (bits < to.normal ? 1 : 0) - below;
      columns.overflow[i] += bits >= to.large ? 1 : 0;
    }
  }
}

/// Adds a chunk to the tally of a format.
HWY_ATTR void add(Chunk& chunk, const FormatLoop& format, float abs_max, FormatTally& tally) {
  const bool scaled = format.scaling != FloatFormat::Scale::given || format.scale != 1;
  if (scaled || chunk.is_wide()) find_scales(chunk, format, abs_max);
  if (chunk.is_wide()) {
    auto& columns = base::of_thread<FormatColumns::OfFormat, Chunk>();
    columns = {};
    add_columns(chunk, format, columns);
    for (std::int64_t i = 0; i < chunk.steps * kLanes; ++i) {
      tally.squared_error += columns.squared_error[i];
      tally.underflow += columns.underflow[i];
      tally.subnormal += columns.subnormal[i];
      tally.overflow += columns.overflow[i];
    }
    return;
  }
  if (scaled) return add<true, true, true>(chunk, format, tally);
  const bool low = chunk.least < bit_cast<std::int32_t>(format.normal);
  const bool high = chunk.most > bit_cast<std::int32_t>(format.max);
  if (low && high) return add<false, true, true>(chunk, format, tally);
  if (low) return add<false, true, false>(chunk, format, tally);
  if (high) return add<false, false, true>(chunk, format, tally);
  add<false, false, false>(chunk, format, tally);
}

/// Adds a chunk, whose blocks are those of `blocks`, to the tally of each format.
HWY_ATTR void add(const std::vector<FormatLoop>& formats, Chunk& chunk, Chunk& blocks, float abs_max,
                  FormatTally* tallies) {
  for (const FormatLoop& format : formats)
    add(format.scaling == FloatFormat::Scale::given ? chunk : blocks, format, abs_max, *tallies++);
}

/// Converts `n` numbers to float32, as PyTorch's casts to small formats do first.
HWY_ATTR void convert(c10::ScalarType type, const char* data, std::int64_t n, float* to) noexcept {
  with_type(type, [&](auto* typed) HWY_ATTR {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    const T* const from = reinterpret_cast<const T*>(data);
    if constexpr (std::is_same_v<T, float>) {
      std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
    } else {
      for (std::int64_t i = 0; i < n; ++i) to[i] = widened<float>(from[i]);
    }
  });
}

/// Takes magnitudes and their sums of `from`, of whole steps. Returns false if there are others than finite
/// ones.
HWY_ATTR bool measure(const float* from, Chunk& chunk, double& squares) noexcept {
  constexpr std::int64_t kTogether = 2;
  constexpr std::int32_t kAll = 0x7FFFFFFF;
  Words most = {}, least = most + kAll, zeros = {};
  alignas(64) float lanes[kLanes];
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
        const Words zero = bits == 0;
        const Words some = bits | (zero & kAll);
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
  chunk.nonzero = chunk.steps * kLanes - count_of(zeros);
  squares = sum_of(lanes);
  return chunk.most < kInfinite;
}

/// Reads `n` numbers into a chunk.
HWY_ATTR void read(c10::ScalarType type, const char* data, std::int64_t n, Chunk& chunk,
                   ValueTally& values) noexcept {
  alignas(64) float room[kMost];
  const float* from = room;
  chunk.steps = (n + kLanes - 1) / kLanes;
  chunk.has_block_most = false;
  if (type == at::kFloat && n % kLanes == 0) {
    from = reinterpret_cast<const float*>(data);
  } else {
    convert(type, data, n, room);
    std::fill(room + n, room + chunk.steps * kLanes, 0.0F);
  }
  double squares = 0;
  std::int64_t others = 0;
  if (!measure(from, chunk, squares)) {
    for (std::int64_t i = 0; i < n; ++i) {
      float& number = chunk.numbers[i];
      const auto bits = bit_cast<std::int32_t>(number);
      if (bits < kInfinite) continue;
      ++(bits == kInfinite ? values.infinities : values.nan);
      number = 0;
      ++others;
    }
    (void)measure(chunk.numbers, chunk, squares);
  }
  if (chunk.is_wide()) {
    squares = 0;
    for (std::int64_t i = 0; i < chunk.steps * kLanes; ++i)
      squares += static_cast<double>(chunk.numbers[i]) * static_cast<double>(chunk.numbers[i]);
  }
  values.squares += squares;
  values.zeros += n - others - chunk.nonzero;
  values.abs_max = std::max(values.abs_max, bit_cast<float>(chunk.most));
}

HWY_ATTR void tally(const std::vector<FormatLoop>& formats, const FormatRows& x, float abs_max,
                    ValueTally& values, FormatTally* tallies) {
  const auto item = static_cast<std::int64_t>(c10::elementSize(x.type));
  const std::int64_t padded = (x.width + kLanes - 1) / kLanes * kLanes;
  Chunk chunk;
  if (padded == x.width || padded > kMost / 2 || x.rows == 1) {  // blocks are side by side
    const bool joined = padded == x.width;
    const std::int64_t rows = joined ? 1 : x.rows, width = joined ? x.rows * x.width : x.width;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < width; i += kMost) {
        read(x.type, x.data + (row * width + i) * item, std::min(kMost, width - i), chunk, values);
        add(formats, chunk, chunk, abs_max, tallies);
      }
    }
    return;
  }
  Chunk blocks;  // with room at the end of each row
  const std::int64_t together = kMost / padded;
  for (std::int64_t row = 0; row < x.rows; row += together) {
    const std::int64_t rows = std::min(together, x.rows - row);
    read(x.type, x.data + row * x.width * item, rows * x.width, chunk, values);
    blocks.steps = rows * padded / kLanes;
    blocks.nonzero = chunk.nonzero;
    blocks.most = chunk.most;
    blocks.has_block_most = false;
    std::fill(blocks.numbers, blocks.numbers + rows * padded, 0.0F);
    for (std::int64_t i = 0; i < rows; ++i)
      std::copy_n(chunk.numbers + i * x.width, x.width, blocks.numbers + i * padded);
    add(formats, chunk, blocks, abs_max, tallies);
  }
}

HWY_ATTR void add_row(const std::vector<FormatLoop>& formats, const FormatRows& x, float abs_max,
                      FormatColumns& columns) {
  Chunk chunk;
  ValueTally values;
  read(x.type, x.data, x.width, chunk, values);
  for (std::int64_t i = 0; i < x.width; ++i) {
    const float number = chunk.numbers[i];
    columns.squares[i] += static_cast<double>(number) * static_cast<double>(number);
    columns.abs_max[i] = number > columns.abs_max[i] ? number : columns.abs_max[i];
    columns.zeros[i] += number == 0 ? 1 : 0;
  }
  if (values.nan + values.infinities != 0) {
    float numbers[kMost];
    convert(x.type, x.data, x.width, numbers);
    for (std::int64_t i = 0; i < x.width; ++i) {
      if (std::isfinite(numbers[i])) continue;
      ++(std::isnan(numbers[i]) ? columns.nan : columns.infinities)[i];
      --columns.zeros[i];  // it was read as one
    }
  }
  auto* column = columns.of_formats.data();
  for (const FormatLoop& format : formats) {
    find_scales(chunk, format, abs_max);
    add_columns(chunk, format, *column++);
  }
}

}  // namespace

const FormatLoops* format_loops_of_set() {
  static const FormatLoops all{tally, add_row};
  return &all;
}

}  // namespace torchtap::reductions::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torchtap::reductions::detail {
namespace {

#ifdef TORCHTAP_HAVE_HIGHWAY
HWY_EXPORT(format_loops_of_set);
#endif

}  // namespace

const FormatLoops& format_loops() noexcept {
#ifdef TORCHTAP_HAVE_HIGHWAY
  return *HWY_DYNAMIC_DISPATCH(format_loops_of_set)();
#else
  return *HWY_NAMESPACE::format_loops_of_set();
#endif
}

}  // namespace torchtap::reductions::detail
#endif
