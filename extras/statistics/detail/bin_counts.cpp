// Counts elements in bins on several threads, with the kernels or in plain loops.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <type_traits>
#include <vector>

#include <torchtap/statistics/detail/bin_counts.hpp>

namespace torchtap::statistics::detail {
namespace {

using reductions::extend::parallel;

/// The vector loops, which are asked for once; null if there are none.
const reductions::extend::Kernels* vector_loops() {
  static const auto* const loops = reductions::extend::cpu_kernels();
  return loops;
}

constexpr std::int64_t kPiece = 1 << 20;  // elements that one thread counts at a time

/// Calls `f` with a null pointer to the C++ type of `type`. Returns false if its dtype is not counted.
template <class F>
bool with_real_type(c10::ScalarType type, const F& f) {
  switch (type) {
#define TORCHTAP_CASE(NAME, TYPE)         \
  case c10::ScalarType::NAME:             \
    f(static_cast<const TYPE*>(nullptr)); \
    return true;
    TORCHTAP_CASE(Float, float)
    TORCHTAP_CASE(Double, double)
    TORCHTAP_CASE(Half, c10::Half)
    TORCHTAP_CASE(BFloat16, c10::BFloat16)
    TORCHTAP_CASE(Byte, std::uint8_t)
    TORCHTAP_CASE(Char, std::int8_t)
    TORCHTAP_CASE(Short, std::int16_t)
    TORCHTAP_CASE(Int, std::int32_t)
    TORCHTAP_CASE(Long, std::int64_t)
    TORCHTAP_CASE(Bool, bool)
#undef TORCHTAP_CASE
    default:
      return false;
  }
}

template <class T>
constexpr bool kHasKernels = !std::is_integral_v<T>;  // including the half types

template <class T>
double widened(T x) {
  if constexpr (std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>) {
    return static_cast<double>(static_cast<float>(x));
  } else {
    return static_cast<double>(x);
  }
}

/// Counts with a function of the kernels, in float64 if they do not read the type. Counters of neighbours are
/// `stride` apart.
template <class T, class F>
void count_with_kernels(const F& count, c10::ScalarType type, const T* x, std::int64_t n,
                        const BinEdges& edges, std::int64_t* counters, std::int64_t stride) {
  if constexpr (kHasKernels<T>) {
    count(type, x, static_cast<std::size_t>(n), edges, counters);
  } else {
    constexpr std::int64_t kWide = 1024;
    double wide[kWide];
    for (std::int64_t i = 0; i < n; i += kWide) {
      const std::int64_t part = std::min(kWide, n - i);
      std::transform(x + i, x + i + part, wide, widened<T>);
      count(c10::ScalarType::Double, wide, static_cast<std::size_t>(part), edges, counters + i * stride);
    }
  }
}

template <class T>
void count_piece(c10::ScalarType type, const T* x, std::int64_t n, const BinEdges& edges,
                 std::int64_t* counters) {
  if (const auto* const loops = vector_loops())
    return count_with_kernels(loops->count_bins, type, x, n, edges, counters, /*stride=*/0);
  for (std::int64_t i = 0; i < n; ++i) ++counters[edges.counter_of(widened(x[i]))];
}

/// Each element has its own counters.
template <class T>
void count_row(c10::ScalarType type, const T* x, std::int64_t n, const BinEdges& edges,
               std::int64_t* counters) {
  const std::int64_t stride = edges.counters();
  if (const auto* const loops = vector_loops())
    return count_with_kernels(loops->count_columns, type, x, n, edges, counters, stride);
  for (std::int64_t i = 0; i < n; ++i) ++counters[i * stride + edges.counter_of(widened(x[i]))];
}

}  // namespace

bool is_countable(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.layout() == c10::kStrided &&
         tensor.has_storage() && !tensor.is_neg() && !tensor._is_zerotensor() &&
         with_real_type(tensor.scalar_type(), [](auto*) {});
}

void count_all(const Memory& x, const BinEdges& edges, std::int64_t* counters) {
  with_real_type(x.type, [&](auto* typed) {
    const auto* const first = reinterpret_cast<decltype(typed)>(x.data);
    const std::int64_t n = x.numel, pieces = (n + kPiece - 1) / kPiece;
    if (pieces <= 1) return count_piece(x.type, first, n, edges, counters);
    std::mutex mutex;
    parallel(pieces, n, [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::int64_t> counts(static_cast<std::size_t>(edges.counters()), 0);
      const std::int64_t from = begin * kPiece, to = std::min(n, end * kPiece);
      count_piece(x.type, first + from, to - from, edges, counts.data());
      const std::lock_guard lock(mutex);
      std::transform(counts.begin(), counts.end(), counters, counters, std::plus<>());
    });
  });
}

void count_columns(const Lines& lines, const BinEdges& edges, std::int64_t* counters) {
  constexpr std::int64_t kTile = 64;        // columns, whose counters stay in the cache
  constexpr std::int64_t kSmall = 1 << 15;  // elements: below, waking other threads takes longer
  const std::int64_t stride = edges.counters(), width = lines.numel, tiles = (width + kTile - 1) / kTile;
  with_real_type(lines.type, [&](auto* typed) {
    const auto* const x = reinterpret_cast<decltype(typed)>(lines.data);
    if (lines.rows == 1 && width < kSmall) return count_row(lines.type, x, width, edges, counters);
    const auto count = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t tile = begin; tile < end; ++tile) {
        const std::int64_t first = tile * kTile, columns = std::min(kTile, width - first);
        for (std::int64_t r = 0; r < lines.rows; ++r)
          count_row(lines.type, x + r * width + first, columns, edges, counters + first * stride);
      }
    };
    if (lines.rows * width < kSmall) return count(0, tiles);
    parallel(tiles, lines.rows * width, count);
  });
}

void count_equal(const Summary& all, std::int64_t kept, const BinEdges& edges, std::int64_t* counters) {
  const std::int64_t bin = edges.counter_of(all.min);
  for (std::int64_t k = 0; k < kept; ++k, counters += edges.counters()) {
    if (all.taken != 0) counters[bin] += all.taken / kept;
    std::int64_t* const others = counters + edges.bins();
    others[0] += all.negative_infinities;
    others[1] += all.positive_infinities;
    others[2] += all.nan;
  }
}

}  // namespace torchtap::statistics::detail
