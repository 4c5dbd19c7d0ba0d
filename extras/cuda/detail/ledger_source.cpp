// The kernels of ledgers, in CUDA C++.
#include <torchtap/cuda/detail/source.hpp>

namespace torchtap::cuda::detail {

// A block of threads reads a chunk of the rows of one kept element, or of 32 that are neighbours. The block
// that is the last to finish a kept element merges all chunks into the page: one launch does everything, and
// the page needs no number of the host. PARTS says what is computed; it is known to the compiler. Sums are
// made in one order, so that the same samples have the same results.
const char kLedger[] = R"cuda(
constexpr bool kMoments = (PARTS & 1) != 0, kBins = (PARTS & 2) != 0, kBits = (PARTS & 4) != 0,
               kDecays = (PARTS & 8) != 0, kPowers = (PARTS & 16) != 0, kMasked = (PARTS & 32) != 0;
constexpr int kThreads = 256, kAcross = 32, kDown = kThreads / kAcross;  // of a block
constexpr int kMany = 42;                                                // entries of a launch

// As torchtap's Summary.
struct Summary {
  Int taken;
  double sum, mean, m2, m3, m4, min, max;
  Int nan, positive, negative, zeros;
};

// What a chunk has of a kept element.
struct Part {
  Summary summary;
  double decayed;  // each number times decay to the power of the rows behind it in the sample
  double powers;   // of the magnitudes of finite numbers
};

// The first numbers of a page, as torchtap's PageHeader; all others lie `…_at` numbers behind its beginning.
struct Page {
  Bits samples, elements, rows;
  Int kept, bins, mantissa_bits;
  double decay, power;
  Int locks_at, summaries_at, decayed_at, powers_at, edges_at, bins_at, bits_at;
};

// A sample and the page that it is added to. Element (o, k, i) lies at (o * kept + k) * inner + i.
struct Entry {
  const ELEMENT* x;
  Int* page;
  const unsigned char* mask;      // of rows that are chosen
  Int outer, kept, inner, chunk;  // rows of a chunk
  Int counted;                    // rows to count; with a mask, its elements
  int chunks, across;             // blocks: `across` for each chunk
  int first_block, first_part, first_ticket;
  int columns;  // whether a block has 32 kept elements
  int shared;   // numbers of the counters that a block has for itself; 0 if there is no room
};

struct One {
  Part* parts;
  unsigned* tickets;
  Entry entry;
};

struct Many {
  Part* parts;
  unsigned* tickets;
  int count;
  Entry entries[kMany];
};

__device__ inline double infinity() {
  return __longlong_as_double(static_cast<Int>(0x7FF) << 52);
}

__device__ inline Summary no_summary() {
  Summary none = {0, 0, 0, 0, 0, 0, infinity(), -infinity(), 0, 0, 0, 0};
  return none;
}

// As torchtap's Summary::merge (Pebay 2008).
__device__ inline void join(Summary& a, const Summary& b) {
  if (a.taken == 0) {
    a.mean = b.mean;
    a.m2 = b.m2;
    a.m3 = b.m3;
    a.m4 = b.m4;
  } else if (b.taken != 0) {
    const double na = static_cast<double>(a.taken), nb = static_cast<double>(b.taken);
    const double n = na + nb, fa = na / n, fb = nb / n;
    const double delta = b.mean - a.mean, square = delta * delta;
    if (kMoments) {
      a.m4 += b.m4 + square * square * na * fb * (fa * fa - fa * fb + fb * fb) +
              6 * square * (fa * fa * b.m2 + fb * fb * a.m2) + 4 * delta * (fa * b.m3 - fb * a.m3);
      a.m3 += b.m3 + square * delta * na * fb * (fa - fb) + 3 * delta * (fa * b.m2 - fb * a.m2);
      a.m2 += b.m2 + square * na * fb;
    }
    a.mean += delta * fb;
  }
  a.taken += b.taken;
  a.sum += b.sum;
  a.min = b.min < a.min ? b.min : a.min;
  a.max = b.max > a.max ? b.max : a.max;
  a.nan += b.nan;
  a.positive += b.positive;
  a.negative += b.negative;
  a.zeros += b.zeros;
}

__device__ inline void join(Part& a, const Part& b) {
  join(a.summary, b.summary);
  a.decayed += b.decayed;
  a.powers += b.powers;
}

// Sums of a thread, around a shift that is near the numbers, so that nothing is divided until all are in.
struct Sums {
  double s1, s2, s3, s4, min, max, decayed, powers;
  Int taken;
  int nan, positive, negative, zeros;
};

__device__ inline Sums no_sums() {
  Sums none = {0, 0, 0, 0, infinity(), -infinity(), 0, 0, 0, 0, 0, 0, 0};
  return none;
}

__device__ inline void take(Sums& to, double v, double shift) {
  if (!is_finite(v)) {
    to.nan += v != v;
    to.positive += v > 0;
    to.negative += v < 0;
    return;
  }
  const double d = v - shift;
  ++to.taken;
  to.s1 += d;
  if (kMoments) {
    const double square = d * d;
    to.s2 += square;
    to.s3 += square * d;
    to.s4 += square * square;
  }
  to.min = v < to.min ? v : to.min;
  to.max = v > to.max ? v : to.max;
  to.zeros += v == 0;
}

// Of sums around one shift.
__device__ inline void join(Sums& a, const Sums& b) {
  a.s1 += b.s1;
  a.s2 += b.s2;
  a.s3 += b.s3;
  a.s4 += b.s4;
  a.decayed += b.decayed;
  a.powers += b.powers;
  a.min = b.min < a.min ? b.min : a.min;
  a.max = b.max > a.max ? b.max : a.max;
  a.taken += b.taken;
  a.nan += b.nan;
  a.positive += b.positive;
  a.negative += b.negative;
  a.zeros += b.zeros;
}

__device__ inline Part part_of(const Sums& a, double shift) {
  Part part = {no_summary(), a.decayed, a.powers};
  Summary& s = part.summary;
  s.taken = a.taken;
  s.min = a.min;
  s.max = a.max;
  s.nan = a.nan;
  s.positive = a.positive;
  s.negative = a.negative;
  s.zeros = a.zeros;
  if (a.taken == 0) return part;
  const double n = static_cast<double>(a.taken), e = a.s1 / n;
  s.sum = a.s1 + n * shift;
  s.mean = shift + e;
  if (kMoments) {
    const double m2 = a.s2 - e * a.s1, m4 = a.s4 - 4 * e * a.s3 + 6 * e * e * a.s2 - 3 * e * e * e * a.s1;
    s.m2 = m2 > 0 ? m2 : 0;
    s.m3 = a.s3 - 3 * e * a.s2 + 2 * e * e * a.s1;
    s.m4 = m4 > 0 ? m4 : 0;
  }
  return part;
}

// Some of the numbers that are summed, for a shift near all of them.
struct Near {
  double sum, min, max;
  int taken;
};

__device__ inline Near not_near() {
  Near none = {0, infinity(), -infinity(), 0};
  return none;
}

__device__ inline void take(Near& to, double v) {
  if (!is_finite(v)) return;
  to.sum += v;
  to.min = v < to.min ? v : to.min;
  to.max = v > to.max ? v : to.max;
  ++to.taken;
}

__device__ inline void join(Near& a, const Near& b) {
  a.sum += b.sum;
  a.min = b.min < a.min ? b.min : a.min;
  a.max = b.max > a.max ? b.max : a.max;
  a.taken += b.taken;
}

// Of equal numbers, the number itself: their deviations are exactly 0.
__device__ inline double shift_of(const Near& near) {
  if (near.taken == 0) return 0;
  const double mean = near.sum / near.taken;
  return near.min == near.max || !is_finite(mean) ? near.min : mean;
}

// Joins what the threads of a block have into the first `stride` ones.
template <class T>
__device__ inline void join_threads(T* all, int thread, int stride) {
  __syncthreads();
  for (int width = kThreads / 2; width >= stride; width /= 2) {
    if (thread < width) join(all[thread], all[thread + width]);
    __syncthreads();
  }
}

constexpr int kWide = 16 / sizeof(ELEMENT) > 0 ? 16 / sizeof(ELEMENT) : 1;  // elements that are read at once
constexpr int kLoads = 4;                                                    // groups

struct alignas(16) Group {
  ELEMENT x[kWide];
};

// The rows of a kept element, which lie in runs of `inner`.
struct Runs {
  const ELEMENT* x;
  Int kept, k, inner;

  __device__ const ELEMENT* at(Int row) const {
    return kept == 1 ? x + row : x + (row / inner * kept + k) * inner + row % inner;
  }
  __device__ double operator[](Int row) const { return number(*at(row)); }
};

// Calls f(row, number) for this thread's rows of a chunk.
template <class F>
__device__ inline void each(const Runs& runs, Int begin, Int end, int thread, const F& f) {
  const bool aligned = (reinterpret_cast<Bits>(runs.x) & 15) == 0 && begin % kWide == 0 &&
                       (runs.kept == 1 || runs.inner % kWide == 0);
  if (!aligned) {
    for (Int row = begin + thread; row < end; row += kThreads) f(row, runs[row]);
    return;
  }
  const Int step = kWide * kThreads;
  Int row = begin + kWide * thread;
  for (; row + (kLoads - 1) * step + kWide <= end; row += kLoads * step) {
    Group groups[kLoads];
    for (int i = 0; i < kLoads; ++i) groups[i] = *reinterpret_cast<const Group*>(runs.at(row + i * step));
    for (int i = 0; i < kLoads; ++i) {
      for (int j = 0; j < kWide; ++j) f(row + i * step + j, number(groups[i].x[j]));
    }
  }
  for (; row < end; row += step) {
    for (Int r = row; r < end && r < row + kWide; ++r) f(r, runs[r]);
  }
}

// Adds numbers to the counters of a page: to those that the block has for itself first, if there is room.
struct Counters {
  Int* page;
  unsigned* own;  // bins, then bits; null if there is no room
  BinOf bin;
  BitsOf bit;
  Int bins_width, bits_width;

  __device__ Counters(const Page& head, Int* page_, unsigned* own_) : page(page_), own(own_) {
    bins_width = bits_width = 0;
    if (kBins) {
      const double* const edges = reinterpret_cast<const double*>(page + head.edges_at);
      const double low = edges[0], high = edges[head.bins];
      const BinOf of = {low, high, static_cast<double>(head.bins) / (high - low), head.bins, edges};
      bin = of;
      bins_width = head.bins + 3;
    }
    if (kBits) {
      const BitsOf of = {static_cast<int>(head.mantissa_bits), power_of_two(126 + head.mantissa_bits)};
      bit = of;
      bits_width = (static_cast<Int>(512) << head.mantissa_bits) + 2;
    }
  }
  __device__ void count(const Page& head, Int k, double v) const {
    if (kBins) {
      const Int slot = bin(v);
      if (own != 0) {
        atomicAdd(&own[slot], 1u);
      } else {
        atomicAdd(reinterpret_cast<Bits*>(page + head.bins_at) + k * bins_width + slot, static_cast<Bits>(1));
      }
    }
    if (kBits) {
      const Int slot = bit(v);
      if (own != 0) {
        atomicAdd(&own[bins_width + slot], 1u);
      } else {
        atomicAdd(reinterpret_cast<Bits*>(page + head.bits_at) + k * bits_width + slot, static_cast<Bits>(1));
      }
    }
  }
  __device__ void begin(int thread) const {
    if (own == 0) return;
    for (Int i = thread; i < bins_width + bits_width; i += kThreads) own[i] = 0;
    __syncthreads();
  }
  __device__ void end(const Page& head, int thread) const {
    if (own == 0) return;
    __syncthreads();
    for (Int i = thread; i < bins_width + bits_width; i += kThreads) {
      if (own[i] == 0) continue;
      Bits* const to = i < bins_width ? reinterpret_cast<Bits*>(page + head.bins_at) + i
                                      : reinterpret_cast<Bits*>(page + head.bits_at) + (i - bins_width);
      atomicAdd(to, static_cast<Bits>(own[i]));
    }
  }
};

// Tells which rows a mask chooses. Each of its elements stands for as many rows, side by side.
struct Chosen {
  const unsigned char* mask;
  Int rows, begin, end;  // `rows` for each element; those of the last one that was asked for
  bool taken;

  __device__ Chosen(const Entry& one)
      : mask(one.mask),
        rows(kMasked ? one.outer * one.inner / one.counted : 0),
        begin(0),
        end(0),
        taken(true) {}
  __device__ bool operator()(Int row) {
    if (kMasked && (row < begin || row >= end)) {
      const Int at = rows == 1 ? row : row / rows;
      begin = at * rows;
      end = begin + rows;
      taken = mask[at] != 0;
    }
    return taken;
  }
};

struct Found {
  Int number;
};

__device__ inline void join(Found& a, const Found& b) {
  a.number += b.number;
}

// Counts the chosen elements of a mask whose rows begin in a chunk.
__device__ inline void count_chosen(const Entry& one, int chunk, double* room) {
  const int thread = threadIdx.x;
  const Int size = one.outer * one.inner, rows = size / one.counted, begin = chunk * one.chunk;
  const Int end = begin + one.chunk < size ? begin + one.chunk : size;
  Found* const found = reinterpret_cast<Found*>(room);
  Found mine = {0};
  for (Int i = (begin + rows - 1) / rows + thread; i < (end + rows - 1) / rows; i += kThreads)
    mine.number += one.mask[i] != 0;
  found[thread] = mine;
  join_threads(found, thread, 1);
  if (thread == 0)
    atomicAdd(&reinterpret_cast<Page*>(one.page)->rows, static_cast<Bits>(found[0].number));
  __syncthreads();
}

// Whether this block is the last of all chunks. What it reads of their parts is written.
__device__ inline bool is_last(unsigned* ticket, int chunks, int thread) {
  __shared__ int last;
  __threadfence();
  __syncthreads();
  if (thread == 0) {
    last = atomicAdd(ticket, 1u) == static_cast<unsigned>(chunks - 1);
    if (last) *ticket = 0;  // for the next launch
    __threadfence();        // the block reads after this thread has seen all tickets
  }
  __syncthreads();
  return last != 0;
}

// Changes a kept element of a page. Kernels of several streams may do so at once; a thread that has a lock waits
// for none.
template <class F>
__device__ inline void change(Int* page, const Page& head, Int k, const F& f) {
  unsigned* const lock = reinterpret_cast<unsigned*>(page + head.locks_at) + k;
  for (bool done = false; !done;) {
    if (atomicCAS(lock, 0u, 1u) != 0) continue;
    __threadfence();
    f();
    __threadfence();
    atomicExch(lock, 0u);
    done = true;
  }
}

// Not kept in registers: another stream's kernel may have written it.
__device__ inline Summary summary_at(const Int* page, const Page& head, Int k) {
  const volatile Summary* const at = reinterpret_cast<const volatile Summary*>(page + head.summaries_at) + k;
  Summary result = {at->taken, at->sum, at->mean, at->m2,       at->m3,       at->m4,
                    at->min,   at->max, at->nan,  at->positive, at->negative, at->zeros};
  return result;
}

__device__ inline void put_summary(Int* page, const Page& head, Int k, const Summary& s) {
  volatile Summary* const at = reinterpret_cast<volatile Summary*>(page + head.summaries_at) + k;
  at->taken = s.taken;
  at->sum = s.sum;
  at->mean = s.mean;
  at->m2 = s.m2;
  at->m3 = s.m3;
  at->m4 = s.m4;
  at->min = s.min;
  at->max = s.max;
  at->nan = s.nan;
  at->positive = s.positive;
  at->negative = s.negative;
  at->zeros = s.zeros;
}

// Merges what a sample of `rows` rows has of a kept element.
__device__ inline void write(Int* page, const Page& head, Int k, const Part& part, Int rows) {
  change(page, head, k, [&] {
    Summary state = summary_at(page, head, k);
    join(state, part.summary);
    put_summary(page, head, k, state);
    if (kDecays) {
      volatile double* const decayed = reinterpret_cast<volatile double*>(page + head.decayed_at) + k;
      *decayed = *decayed * pow(head.decay, static_cast<double>(rows)) + (1 - head.decay) * part.decayed;
    }
    if (kPowers) {
      volatile double* const powers = reinterpret_cast<volatile double*>(page + head.powers_at) + k;
      *powers = *powers + part.powers;
    }
  });
}

// A number's weight in the average of its sample; those of rows long ago are 0.
__device__ inline void decay(Sums& to, const Page& head, Int rows, Int row, double v) {
  const Int age = rows - 1 - row;
  const double weight = age == 0 ? 1.0 : pow(head.decay, static_cast<double>(age));
  if (weight != 0) to.decayed += weight * v;
}

// The magnitude of a number to the power that a page asks for.
__device__ inline void raise(Sums& to, const Page& head, double v) {
  if (is_finite(v)) to.powers += head.power == 1 ? fabs(v) : pow(fabs(v), head.power);
}

__device__ inline void add_runs(const Entry& one, const Page& head, int tile, int chunk, Part* parts,
                                unsigned* tickets, double* room, unsigned* own) {
  const int thread = threadIdx.x;
  const Int rows = one.outer * one.inner, begin = chunk * one.chunk;
  const Int end = begin + one.chunk < rows ? begin + one.chunk : rows;
  const Runs runs = {one.x, one.kept, tile, one.inner};
  Chosen chosen(one);
  double shift = 0;
  if (kMoments) {
    Near* const all = reinterpret_cast<Near*>(room);
    Int row = begin + thread;
    for (bool found = false; !found;) {
      Near near = not_near();
      for (int i = 0; i < 4; ++i, row += kThreads) {
        if (row < end && chosen(row)) take(near, runs[row]);
      }
      all[thread] = near;
      join_threads(all, thread, 1);
      shift = shift_of(all[0]);
      found = !kMasked || all[0].taken != 0 || row - thread >= end;
      __syncthreads();
    }
  }
  const Counters counters(head, one.page, one.shared == 0 ? 0 : own);
  counters.begin(thread);
  Sums mine = no_sums();
  each(runs, begin, end, thread, [&](Int row, double v) {
    if (!chosen(row)) return;
    take(mine, v, shift);
    if (kDecays) decay(mine, head, rows, row, v);
    if (kPowers) raise(mine, head, v);
    if (kBins || kBits) counters.count(head, tile, v);
  });
  counters.end(head, thread);
  Sums* const all = reinterpret_cast<Sums*>(room);
  all[thread] = mine;
  join_threads(all, thread, 1);
  Part part = part_of(all[0], shift);
  if (one.chunks > 1) {
    if (thread == 0) parts[one.first_part + chunk * one.across + tile] = part;
    if (!is_last(tickets + one.first_ticket + tile, one.chunks, thread)) return;
    Part* const found = reinterpret_cast<Part*>(room);
    Part none = {no_summary(), 0, 0};
    part = none;
    for (int i = thread; i < one.chunks; i += kThreads) join(part, parts[one.first_part + i * one.across + tile]);
    found[thread] = part;
    join_threads(found, thread, 1);
    part = found[0];
  }
  if (thread == 0) write(one.page, head, tile, part, rows);
}

// The kept elements of a row are neighbours: a thread reads rows of one, 32 side by side.
__device__ inline void add_columns(const Entry& one, const Page& head, int tile, int chunk, Part* parts,
                                   unsigned* tickets, double* room) {
  const int thread = threadIdx.x, column = thread % kAcross, down = thread / kAcross;
  const Int k = static_cast<Int>(tile) * kAcross + column, rows = one.outer, begin = chunk * one.chunk;
  const Int end = k >= one.kept ? begin : begin + one.chunk < rows ? begin + one.chunk : rows;
  const ELEMENT* const x = one.x + k;
  Chosen chosen(one);
  double shift = 0;
  if (kMoments) {
    Near near = not_near();
    Int row = begin + down;
    for (int i = 0; i < 8 && row < end; row += kDown) {
      if (!chosen(row)) continue;
      take(near, number(x[row * one.kept]));
      ++i;
    }
    shift = shift_of(near);
  }
  const Counters counters(head, one.page, 0);
  Sums mine = no_sums();
  const auto add = [&](Int row, double v) {
    if (!chosen(row)) return;
    take(mine, v, shift);
    if (kDecays) decay(mine, head, rows, row, v);
    if (kPowers) raise(mine, head, v);
    if (kBins || kBits) counters.count(head, k, v);
  };
  Int row = begin + down;
  for (; row + 7 * kDown < end; row += 8 * kDown) {
    ELEMENT some[8];
    for (int i = 0; i < 8; ++i) some[i] = x[(row + i * kDown) * one.kept];
    for (int i = 0; i < 8; ++i) add(row + i * kDown, number(some[i]));
  }
  for (; row < end; row += kDown) add(row, number(x[row * one.kept]));
  Part* const all = reinterpret_cast<Part*>(room);
  all[thread] = part_of(mine, shift);
  join_threads(all, thread, kAcross);
  if (one.chunks > 1) {
    if (down == 0 && k < one.kept) parts[one.first_part + chunk * one.kept + k] = all[thread];
    if (!is_last(tickets + one.first_ticket + tile, one.chunks, thread)) return;
    Part part = {no_summary(), 0, 0};
    if (k < one.kept) {
      for (int i = down; i < one.chunks; i += kDown) join(part, parts[one.first_part + i * one.kept + k]);
    }
    all[thread] = part;
    join_threads(all, thread, kAcross);
  }
  if (down == 0 && k < one.kept) write(one.page, head, k, all[thread], rows);
}

__device__ inline void add_entry(const Entry& one, int block, Part* parts, unsigned* tickets, unsigned* own) {
  __shared__ double room[kThreads * sizeof(Part) / sizeof(double)];
  const Page& head = *reinterpret_cast<const Page*>(one.page);
  const int tile = block % one.across, chunk = block / one.across;
  if (block == 0 && threadIdx.x == 0) {
    Page* const counts = reinterpret_cast<Page*>(one.page);
    atomicAdd(&counts->samples, static_cast<Bits>(1));
    atomicAdd(&counts->elements, static_cast<Bits>(kMasked ? one.counted : one.outer * one.kept * one.inner));
    if (!kMasked) atomicAdd(&counts->rows, static_cast<Bits>(one.counted));
  }
  if (kMasked && tile == 0) count_chosen(one, chunk, room);
  if (one.columns != 0) {
    add_columns(one, head, tile, chunk, parts, tickets, room);
  } else {
    add_runs(one, head, tile, chunk, parts, tickets, room, own);
  }
}

KERNEL add_one(const One one) {
  BLOCK_MEMORY;
  add_entry(one.entry, blockIdx.x, one.parts, one.tickets, block);
}

KERNEL add_many(const Many all) {
  BLOCK_MEMORY;
  int low = 0, high = all.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (all.entries[middle].first_block <= static_cast<int>(blockIdx.x)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  add_entry(all.entries[low], blockIdx.x - all.entries[low].first_block, all.parts, all.tickets, block);
}

// Moves all that a page has to `to`, which is laid out as the page, and leaves the page empty.
KERNEL take_page(Int* page, Int* to) {
  Page& head = *reinterpret_cast<Page*>(page);
  const int thread = threadIdx.x;
  if (thread == 0) {
    Page& copy = *reinterpret_cast<Page*>(to);
    copy.samples = atomicExch(&head.samples, static_cast<Bits>(0));
    copy.elements = atomicExch(&head.elements, static_cast<Bits>(0));
    copy.rows = atomicExch(&head.rows, static_cast<Bits>(0));
  }
  for (Int k = thread; k < head.kept; k += kThreads) {
    change(page, head, k, [&] {
      put_summary(to, head, k, summary_at(page, head, k));
      put_summary(page, head, k, no_summary());
      if (head.decay >= 0) {
        volatile double* const decayed = reinterpret_cast<volatile double*>(page + head.decayed_at) + k;
        reinterpret_cast<double*>(to + head.decayed_at)[k] = *decayed;
        *decayed = 0;
      }
      if (head.power >= 0) {
        volatile double* const powers = reinterpret_cast<volatile double*>(page + head.powers_at) + k;
        reinterpret_cast<double*>(to + head.powers_at)[k] = *powers;
        *powers = 0;
      }
    });
  }
  const Int bins = head.bins == 0 ? 0 : head.kept * (head.bins + 3);
  for (Int i = thread; i < bins; i += kThreads)
    to[head.bins_at + i] =
        static_cast<Int>(atomicExch(reinterpret_cast<Bits*>(page + head.bins_at) + i, static_cast<Bits>(0)));
  const Int bits =
      head.mantissa_bits < 0 ? 0 : head.kept * ((static_cast<Int>(512) << head.mantissa_bits) + 2);
  for (Int i = thread; i < bits; i += kThreads)
    to[head.bits_at + i] =
        static_cast<Int>(atomicExch(reinterpret_cast<Bits*>(page + head.bits_at) + i, static_cast<Bits>(0)));
}
)cuda";

}  // namespace torchtap::cuda::detail
