// The kernels of single reductions, in CUDA C++.
#include <torchtap/cuda/detail/source.hpp>

namespace torchtap::cuda::detail {

// Element (o, k, i) of a sample lies at (o * kept + k) * inner + i; k numbers the kept elements. Every sum is
// made in one order, so that the same samples have the same results.
const char kKernels[] = R"cuda(
// Central moments of some numbers, and the sum of those that are not finite, which is 0 if there are none.
struct Moments {
  double n, mean, m2, m3, m4, special;
};

__device__ inline Moments nothing() {
  Moments result = {0, 0, 0, 0, 0, 0};
  return result;
}

// Pebay 2008.
__device__ inline void merge(Moments& a, const Moments& b) {
  a.special += b.special;
  if (b.n == 0) return;
  const double n = a.n + b.n, fa = a.n / n, fb = b.n / n, both = fa * fb;
  const double delta = b.mean - a.mean, square = delta * delta, da = delta * fa, db = delta * fb;
  const double m2 = a.m2 + square * (fa * b.n) + b.m2;
  const double m3 = a.m3 + square * delta * (both * (a.n - b.n)) - 3 * (db * a.m2) + b.m3 + 3 * (da * b.m2);
  const double m4 = a.m4 + square * square * (both * (fa * (a.n - b.n) + fb * b.n)) +
                    6 * (square * (fb * fb) * a.m2) - 4 * (db * a.m3) + b.m4 +
                    6 * (square * (fa * fa) * b.m2) + 4 * (da * b.m3);
  a.mean += db;
  a.n = n;
  a.m2 = m2;
  a.m3 = m3;
  a.m4 = m4;
}

__device__ inline void take(Moments& to, double x) {
  Moments one = nothing();
  if (is_finite(x)) {
    one.n = 1;
    one.mean = x;
  } else {
    one.special = x;
  }
  merge(to, one);
}

constexpr int kGroup = 8;  // elements that a thread reads at once

__device__ inline void take_group(Moments& to, const double* x) {
  double sum = 0;
  for (int i = 0; i < kGroup; ++i) sum += x[i];
  if (!is_finite(sum)) {
    for (int i = 0; i < kGroup; ++i) take(to, x[i]);
    return;
  }
  Moments all = nothing();
  all.n = kGroup;
  all.mean = sum / kGroup;
  for (int i = 0; i < kGroup; ++i) {
    const double d = x[i] - all.mean, square = d * d;
    all.m2 += square;
    all.m3 += square * d;
    all.m4 += square * square;
  }
  merge(to, all);
}

// The states of kept elements, [kept] each; m3 and m4 may be null.
struct State {
  double before;  // rows so far
  double *mean, *m2, *m3, *m4;
};

__device__ inline void fold(const State& state, Int k, Moments batch, double rows) {
  const double nan = batch.special - batch.special;  // of 0 otherwise
  if (batch.special != 0) {
    batch.mean = batch.special;
    batch.m2 = batch.m3 = batch.m4 = nan;
  }
  Moments mine = nothing();
  mine.n = state.before;
  mine.mean = state.mean[k];
  mine.m2 = state.m2[k];
  if (state.m3 != 0) {
    mine.m3 = state.m3[k];
    mine.m4 = state.m4[k];
  }
  batch.n = rows;
  const double total = mine.mean + batch.mean;
  merge(mine, batch);
  // An infinite mean stays; the difference of two would be NaN.
  state.mean[k] = is_finite(total) ? mine.mean : total;
  state.m2[k] = mine.m2;
  if (state.m3 != 0) {
    state.m3[k] = mine.m3;
    state.m4[k] = mine.m4;
  }
}

constexpr int kPartial = 6;

__device__ inline void write(double* partial, const Moments& m) {
  partial[0] = m.n;
  partial[1] = m.mean;
  partial[2] = m.m2;
  partial[3] = m.m3;
  partial[4] = m.m4;
  partial[5] = m.special;
}

__device__ inline Moments read(const double* partial) {
  Moments m = {partial[0], partial[1], partial[2], partial[3], partial[4], partial[5]};
  return m;
}

// Merges the moments of a block's threads, which lie `stride` apart, into the first one's.
__device__ inline void merge_threads(Moments* all, int at, int first, int size, int stride) {
  __syncthreads();
  for (int width = size / 2; width > 0; width /= 2) {
    if (first < width) merge(all[at], all[at + width * stride]);
    __syncthreads();
  }
}

// Moments of each kept element: a block reads one chunk of one of them. For few kept elements, and where the
// rows of one are neighbours.
KERNEL moments_of_runs(const ELEMENT* x, Int outer, Int kept, Int inner, Int chunk, State state,
                       double* partial) {
  __shared__ Moments all[256];
  const Int k = blockIdx.x, size = outer * inner, first = blockIdx.y * chunk;
  const Int end = first + chunk < size ? first + chunk : size, stride = blockDim.x;
  Moments mine = nothing();
  Int e = first + threadIdx.x;
  if (kept == 1) {
    for (; e + (kGroup - 1) * stride < end; e += kGroup * stride) {
      double group[kGroup];
      for (int i = 0; i < kGroup; ++i) group[i] = number(x[e + i * stride]);
      take_group(mine, group);
    }
    for (; e < end; e += stride) take(mine, number(x[e]));
  } else {
    for (; e + (kGroup - 1) * stride < end; e += kGroup * stride) {
      double group[kGroup];
      for (int i = 0; i < kGroup; ++i) {
        const Int at = e + i * stride;
        group[i] = number(x[(at / inner * kept + k) * inner + at % inner]);
      }
      take_group(mine, group);
    }
    for (; e < end; e += stride) take(mine, number(x[(e / inner * kept + k) * inner + e % inner]));
  }
  all[threadIdx.x] = mine;
  merge_threads(all, threadIdx.x, threadIdx.x, blockDim.x, 1);
  if (threadIdx.x != 0) return;
  if (partial == 0) return fold(state, k, all[0], static_cast<double>(size));
  write(partial + (blockIdx.y * kept + k) * kPartial, all[0]);
}

// The same where the kept elements of a row are neighbours: a thread reads the rows of one element.
KERNEL moments_of_columns(const ELEMENT* x, Int rows, Int kept, Int chunk, State state, double* partial) {
  __shared__ Moments all[256];
  const Int k = static_cast<Int>(blockIdx.x) * blockDim.x + threadIdx.x, first = blockIdx.y * chunk;
  const Int end = first + chunk < rows ? first + chunk : rows, stride = blockDim.y;
  Moments mine = nothing();
  if (k < kept) {
    Int row = first + threadIdx.y;
    for (; row + (kGroup - 1) * stride < end; row += kGroup * stride) {
      double group[kGroup];
      for (int i = 0; i < kGroup; ++i) group[i] = number(x[(row + i * stride) * kept + k]);
      take_group(mine, group);
    }
    for (; row < end; row += stride) take(mine, number(x[row * kept + k]));
  }
  const int at = threadIdx.y * blockDim.x + threadIdx.x;
  all[at] = mine;
  merge_threads(all, at, threadIdx.y, blockDim.y, blockDim.x);
  if (threadIdx.y != 0 || k >= kept) return;
  if (partial == 0) return fold(state, k, all[at], static_cast<double>(rows));
  write(partial + (blockIdx.y * kept + k) * kPartial, all[at]);
}

// Folds what several blocks found, [chunks, kept], into the state: a block for each kept element.
KERNEL moments_of_chunks(const double* partial, Int chunks, Int kept, double rows, State state) {
  __shared__ Moments all[256];
  const Int k = blockIdx.x;
  Moments mine = nothing();
  for (Int c = threadIdx.x; c < chunks; c += blockDim.x)
    merge(mine, read(partial + (c * kept + k) * kPartial));
  all[threadIdx.x] = mine;
  merge_threads(all, threadIdx.x, threadIdx.x, blockDim.x, 1);
  if (threadIdx.x == 0) fold(state, k, all[0], rows);
}

// How many of `size` elements are NaN, infinite and 0.
KERNEL count_kinds(const ELEMENT* x, Int size, Bits* nan, Bits* inf, Bits* zeros) {
  __shared__ unsigned counts[3];
  if (threadIdx.x < 3) counts[threadIdx.x] = 0;
  __syncthreads();
  const Int stride = static_cast<Int>(gridDim.x) * blockDim.x;
  unsigned found[3] = {0, 0, 0};
  for (Int e = static_cast<Int>(blockIdx.x) * blockDim.x + threadIdx.x; e < size; e += stride) {
    const double v = number(x[e]);
    found[2] += v == 0 ? 1 : 0;
    if (!is_finite(v)) ++found[v == v ? 1 : 0];
  }
  for (int i = 0; i < 3; ++i) {
    if (found[i] != 0) atomicAdd(&counts[i], found[i]);
  }
  __syncthreads();
  Bits* const totals[3] = {nan, inf, zeros};
  if (threadIdx.x < 3 && counts[threadIdx.x] != 0)
    atomicAdd(totals[threadIdx.x], static_cast<Bits>(counts[threadIdx.x]));
}

// Adds 1 to counts[k][slot(x)] for each element. Of a single kept element each block counts for itself first,
// where there is room (`shared` slots).
template <class Slot>
__device__ inline void count_slots(const ELEMENT* x, Int size, Int kept, Int inner, Int width, int shared,
                                   Bits* counts, const Slot& slot) {
  BLOCK_MEMORY;
  const Int stride = static_cast<Int>(gridDim.x) * blockDim.x;
  const Int first = static_cast<Int>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (shared == 0) {
    for (Int e = first; e < size; e += stride) {
      const Int k = kept == 1 ? 0 : e / inner % kept;
      atomicAdd(&counts[k * width + slot(number(x[e]))], static_cast<Bits>(1));
    }
    return;
  }
  for (int i = threadIdx.x; i < shared; i += blockDim.x) block[i] = 0;
  __syncthreads();
  for (Int e = first; e < size; e += stride) atomicAdd(&block[slot(number(x[e]))], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < shared; i += blockDim.x) {
    if (block[i] != 0) atomicAdd(&counts[i], static_cast<Bits>(block[i]));
  }
}

KERNEL count_bins(const ELEMENT* x, Int size, Int kept, Int inner, int shared, Bits* counts, Int bins,
                  const double* edges) {
  const double low = edges[0], high = edges[bins];
  const BinOf bin = {low, high, static_cast<double>(bins) / (high - low), bins, edges};
  count_slots(x, size, kept, inner, bins + 3, shared, counts, bin);
}

// The range of bins that grows with the data, as torchtap's BinRange: bin i is cell start + i of width
// 2^exponent.
struct Range {
  double min, max;  // of the finite elements so far; min > max if there are none
  Int exponent, start;
};

constexpr Int kLowest = -1022;

__device__ inline Int cell(double x, Int e) {
  const Int half = -e >> 1;  // 2^-e alone may be out of range
  return static_cast<Int>(floor(x * power_of_two(half) * power_of_two(-e - half)));
}

__device__ inline Int exponent_of(double x) {
  int exponent = 0;
  frexp(x, &exponent);
  return exponent;
}

__device__ inline Range covering(double min, double max, Int bins) {
  const double low = min > max ? 0 : min, high = min > max ? 0 : max;
  const double magnitude = fabs(low) > fabs(high) ? fabs(low) : fabs(high);
  const Int least = magnitude == 0 ? kLowest : exponent_of(magnitude) - 52;
  const double share = high / static_cast<double>(bins) - low / static_cast<double>(bins);
  Int first = share == 0 ? kLowest : exponent_of(share) - 1;
  first = first > least ? first : least;
  first = first < kLowest ? kLowest : first > 1024 ? 1024 : first;
  Int exponent = first;
  while (exponent < first + 3 && cell(high, exponent) - cell(low, exponent) >= bins) ++exponent;
  Range result = {min, max, exponent, cell(low, exponent)};
  return result;
}

// The least and the greatest finite element of each block, [blocks, 2].
KERNEL find_extrema(const ELEMENT* x, Int size, double* found) {
  __shared__ double low[256], high[256];
  const double infinity = power_of_two(1023) * 2;
  const Int stride = static_cast<Int>(gridDim.x) * blockDim.x;
  double min = infinity, max = -infinity;
  for (Int e = static_cast<Int>(blockIdx.x) * blockDim.x + threadIdx.x; e < size; e += stride) {
    const double v = number(x[e]);
    if (!is_finite(v)) continue;
    min = v < min ? v : min;
    max = v > max ? v : max;
  }
  low[threadIdx.x] = min;
  high[threadIdx.x] = max;
  __syncthreads();
  for (int width = blockDim.x / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) {
      const double other_low = low[threadIdx.x + width], other_high = high[threadIdx.x + width];
      if (other_low < low[threadIdx.x]) low[threadIdx.x] = other_low;
      if (other_high > high[threadIdx.x]) high[threadIdx.x] = other_high;
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  found[2 * blockIdx.x] = low[0];
  found[2 * blockIdx.x + 1] = high[0];
}

// One thread: lets the range grow. `former` and `now` are {exponent, start}.
KERNEL grow_range(const double* found, Int blocks, Int bins, double* min, double* max, Int* exponent,
                  Int* start, Int* former, Int* now) {
  double low = *min, high = *max;
  for (Int i = 0; i < blocks; ++i) {
    low = found[2 * i] < low ? found[2 * i] : low;
    high = found[2 * i + 1] > high ? found[2 * i + 1] : high;
  }
  const Range range = covering(low, high, bins);
  former[0] = *exponent;
  former[1] = *start;
  *min = low;
  *max = high;
  now[0] = *exponent = range.exponent;
  now[1] = *start = range.start;
}

// Moves the counts of the former bins to the new bins: a thread for each kept element. `merged` is [kept,
// bins].
KERNEL regroup_bins(const Int* former, const Int* now, Int kept, Int bins, Bits* counts, Bits* merged) {
  const Int k = static_cast<Int>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (k >= kept || (former[0] == now[0] && former[1] == now[1])) return;
  Int steps = now[0] - former[0];
  steps = steps < 0 ? 0 : steps > 62 ? 62 : steps;
  Bits* const row = counts + k * (bins + 3);
  Bits* const to = merged + k * bins;
  for (Int i = 0; i < bins; ++i) to[i] = 0;
  for (Int i = 0; i < bins; ++i) {
    const Int target = ((former[1] + i) >> steps) - now[1];  // outside only where there are no counts
    to[target < 0 ? 0 : target >= bins ? bins - 1 : target] += row[i];
  }
  for (Int i = 0; i < bins; ++i) row[i] = to[i];
}

struct CellOf {
  Int exponent, start, bins;

  __device__ Int operator()(double v) const {
    if (v != v) return bins + 2;
    if (!is_finite(v)) return v < 0 ? bins : bins + 1;
    const Int bin = cell(v, exponent) - start;
    return bin < 0 ? 0 : bin >= bins ? bins - 1 : bin;
  }
};

KERNEL count_cells(const ELEMENT* x, Int size, Int kept, Int inner, int shared, Bits* counts, Int bins,
                   const Int* range) {
  const CellOf bin = {range[0], range[1], bins};
  count_slots(x, size, kept, inner, bins + 3, shared, counts, bin);
}

KERNEL count_bits(const ELEMENT* x, Int size, Int kept, Int inner, int shared, Bits* counts,
                  int mantissa_bits, double scale) {
  const BitsOf slot = {mantissa_bits, scale};
  count_slots(x, size, kept, inner, (static_cast<Int>(512) << mantissa_bits) + 2, shared, counts, slot);
}
)cuda";

}  // namespace torchtap::cuda::detail
