/// Counts values in bins: `Kernels::count_bins` and `Kernels::count_columns`.

// Highway includes this file once per instruction set.
#if defined(TORCHTAP_REDUCTIONS_FAST_KERNELS_BINS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TORCHTAP_REDUCTIONS_FAST_KERNELS_BINS_INL_HPP
#undef TORCHTAP_REDUCTIONS_FAST_KERNELS_BINS_INL_HPP
#else
#define TORCHTAP_REDUCTIONS_FAST_KERNELS_BINS_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <torchtap/reductions/fast/bin_edges.hpp>
#include <torchtap/reductions/fast/kernels_planes-inl.hpp>
#include <torchtap/reductions/fast/kernels_scalar.hpp>
#include <torchtap/reductions/fast/kernels_slots-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace torchtap::reductions::detail::HWY_NAMESPACE {

/// The end of a run of elements, filled up to `size` with values of slot 0.
template <class T>
HWY_INLINE void pad(const T* x, std::size_t n, T* padded, std::size_t size) {
  std::fill(std::copy(x, x + n, padded), padded + size,
            static_cast<T>(-std::numeric_limits<float>::infinity()));
}

/// For few slots: updates no counter per value. Slots are transposed into bit planes and counted a word at a
/// time. This gives the number of slots that have at least the bits of s; inclusion-exclusion then gives the
/// number equal to s.
template <class T, class F>
void count_few_slots(const T* x, std::size_t n, F find, const BinEdges& edges, std::int64_t* counts) {
  using Lane = typename F::Lane;
  const hn::ScalableTag<Lane> d;
  const hn::ScalableTag<std::uint64_t> words;
  const auto size = static_cast<std::size_t>(edges.counters());
  const std::size_t lanes = hn::Lanes(words), bytes = lanes * sizeof(std::uint64_t), block = 8 * bytes;
  HWY_ALIGN std::uint64_t supersets[kFewSlots * HWY_MAX_BYTES / sizeof(std::uint64_t)];
  std::fill(supersets, supersets + (size + 7) / 8 * 8 * lanes, 0);
  HWY_ALIGN std::uint64_t planes[8 * HWY_MAX_BYTES / sizeof(std::uint64_t)];
  const auto count = [&](const T* from) HWY_ATTR {
    for (std::size_t i = 0; i < 8; ++i) {
      const auto found = find_bytes(d, from + i * bytes, find, std::make_index_sequence<sizeof(Lane) / 2>());
      hn::Store(hn::BitCast(words, found), words, planes + i * lanes);
    }
    to_planes(words, planes);
    count_supersets(words, planes, size, supersets);
  };
  std::size_t i = 0;
  for (; i + block <= n; i += block) count(x + i);
  if (i < n) {
    T padded[8 * HWY_MAX_BYTES];
    pad(x + i, n - i, padded, block);  // slot 0 has no bits
    count(padded);
  }

  std::int64_t exact[kFewSlots] = {static_cast<std::int64_t>(n)};
  for (std::size_t s = 1; s < size; ++s)
    exact[s] =
        static_cast<std::int64_t>(hn::GetLane(hn::SumOfLanes(words, hn::Load(words, supersets + s * lanes))));
  for (std::size_t bit = 1; bit < size; bit *= 2) {
    for (std::size_t s = 0; s + bit < size; ++s) {
      if ((s & bit) == 0) exact[s] -= exact[s | bit];
    }
  }
  for (std::size_t s = 0; s < size; ++s)
    counts[edges.counter_of_slot(static_cast<std::int64_t>(s))] += exact[s];
}

constexpr std::size_t kTables = 4;
constexpr std::size_t kRun = 128;     // elements whose slots are found at once
constexpr std::size_t kColumns = 64;  // the same where each has its own counters: as many as come of a row

/// Whether neighbouring elements are fetched in order.
template <class T, class Lane>
constexpr bool kInOrder = !std::is_same_v<T, c10::BFloat16> || !std::is_same_v<Lane, float>;

/// Calls `take(i, slots, size)` for runs of elements from i on, whose slots are in memory in the order in
/// which `find` fetches them. Returns how many more slots 0 it found, as if there were more elements.
template <std::size_t kBlock, class T, class F, class Take>
HWY_INLINE std::size_t each_run(const T* x, std::size_t n, F& find, const Take& take) {
  const hn::ScalableTag<typename F::Lane> d;
  const hn::RebindToUnsigned<decltype(d)> bits;
  using Word = hn::TFromD<decltype(bits)>;
  constexpr std::size_t kMost = kBlock + 2 * (HWY_MAX_BYTES / sizeof(Word));
  const std::size_t lanes = hn::Lanes(d), step = std::max(kTables, 2 * lanes), block = std::max(kBlock, step);
  HWY_ALIGN Word slots[kMost];
  const auto each = [&](const T* from, std::size_t first, std::size_t size, std::size_t taken) HWY_ATTR {
    const auto mask = hn::Set(bits, F::kMask);
    for (std::size_t k = 0; k < size; k += 2 * lanes) {
      auto a = hn::Undefined(bits), b = a;
      find(d, from + k, a, b);
      hn::Store(hn::And(shifted<-F::kFraction>(a), mask), bits, slots + k);
      hn::Store(hn::And(shifted<-F::kFraction>(b), mask), bits, slots + k + lanes);
    }
    take(first, slots, taken);
  };
  std::size_t i = 0;
  if (kInOrder<T, typename F::Lane> && n >= step && n % step != 0) {  // the others are found again
    each(x, 0, step, n % step);
    i = n % step;
  }
  for (; i + block <= n; i += block) each(x + i, i, block, block);
  const std::size_t steps = (n - i) / step * step;
  if (steps != 0) each(x + i, i, steps, steps);
  i += steps;
  if (i == n) return 0;
  T padded[kMost];
  pad(x + i, n - i, padded, step);
  each(padded, i, step, step);
  return i + step - n;
}

/// The counters of slots, in their place.
template <class Word>
HWY_INLINE void to_counters(Word* slots, std::size_t size, std::int64_t bins) {
  const hn::ScalableTag<std::make_signed_t<Word>> d;
  auto* const at = reinterpret_cast<std::make_signed_t<Word>*>(slots);
  const auto last = hn::Set(d, static_cast<std::make_signed_t<Word>>(bins));
  const auto one = hn::Set(d, std::make_signed_t<Word>{1});
  for (std::size_t k = 0; k < size; k += hn::Lanes(d)) {
    const auto slot = hn::Load(d, at + k);
    const auto inside = hn::Sub(slot, one);
    // Slot 0 is the counter behind the bins.
    const auto counter = hn::IfThenElse(hn::Gt(slot, last), slot, inside);
    hn::Store(hn::IfThenElse(hn::Lt(inside, hn::Zero(d)), last, counter), d, at + k);
  }
}

/// Adds up tables of counts of slots; `padding` elements were counted in slot 0 although they do not exist.
template <class C>
void add_tables(const C* tables, std::size_t padding, const BinEdges& edges, std::int64_t* counts) {
  const hn::ScalableTag<std::uint64_t> wide;
  const hn::Rebind<C, decltype(wide)> d;
  const auto size = static_cast<std::size_t>(edges.counters()), lanes = hn::Lanes(wide);
  auto* const to = reinterpret_cast<std::uint64_t*>(counts);
  std::size_t s = 1;  // bin s - 1
  for (; s + lanes <= size - 2; s += lanes) {
    auto sum = hn::LoadU(d, tables + s);
    for (std::size_t k = 1; k < kTables; ++k) sum = hn::Add(sum, hn::LoadU(d, tables + k * size + s));
    const auto old = hn::LoadU(wide, to + s - 1);
    if constexpr (sizeof(C) == sizeof(std::uint64_t)) {
      hn::StoreU(hn::Add(old, sum), wide, to + s - 1);
    } else {
      hn::StoreU(hn::Add(old, hn::PromoteTo(wide, sum)), wide, to + s - 1);
    }
  }
  const auto add = [&](std::size_t slot, std::int64_t counter) {
    for (std::size_t k = 0; k < kTables; ++k)
      counts[counter] += static_cast<std::int64_t>(tables[k * size + slot]);
  };
  add(0, edges.bins());
  for (; s < size; ++s) add(s, edges.counter_of_slot(static_cast<std::int64_t>(s)));
  counts[edges.bins()] -= static_cast<std::int64_t>(padding);
}

/// Counts in tables, and adds these up. Neighbouring values use separate ones: two increments of the same
/// counter would have to wait for each other.
template <class T, class F, class C>
void count_in_tables(const T* x, std::size_t n, F find, const BinEdges& edges, C* tables,
                     std::int64_t* counts) {
  const auto size = static_cast<std::size_t>(edges.counters());
  const auto padding = each_run<kRun>(x, n, find, [&](std::size_t /*i*/, const auto* slots, std::size_t run) {
    std::size_t j = 0;
    for (; j + kTables <= run; j += kTables) {
      for (std::size_t k = 0; k < kTables; ++k) ++tables[k * size + slots[j + k]];
    }
    for (std::size_t k = 0; k + 1 < kTables && j + k < run; ++k) ++tables[slots[j + k]];
  });
  add_tables(tables, padding, edges, counts);
}

template <class T, class F>
void count_each_slot(const T* x, std::size_t n, F find, const BinEdges& edges, std::int64_t* counts) {
  constexpr std::size_t kOnStack = 1024;
  const std::size_t all = kTables * static_cast<std::size_t>(edges.counters());
  if (all <= kOnStack && n <= std::numeric_limits<std::uint32_t>::max()) {
    std::uint32_t tables[kOnStack];
    std::fill(tables, tables + all, 0);
    count_in_tables(x, n, find, edges, tables, counts);
  } else if (n < 16 * all) {  // clearing the tables would take longer than waiting
    const std::int64_t bins = edges.bins();
    const auto padding =
        each_run<kRun>(x, n, find, [&](std::size_t /*i*/, auto* slots, std::size_t run) HWY_ATTR {
          to_counters(slots, run, bins);
          for (std::size_t j = 0; j < run; ++j) ++counts[slots[j]];
        });
    counts[bins] -= static_cast<std::int64_t>(padding);
  } else {
    std::vector<std::uint64_t> tables(all, 0);
    count_in_tables(x, n, find, edges, tables.data(), counts);
  }
}

constexpr std::size_t kVectors = 16;  // elements: below, vectors are slower

/// Calls `count` with the fastest of the rulers that fit, for lanes of the type itself if there is one.
/// Returns false if there is none, and for a few elements.
template <class T, class F>
HWY_INLINE bool with_slots(std::size_t n, const BinEdges& edges, const F& count) {
  using Lane = OwnLane<T>;
  const auto& own = edges.rulers<Lane>();
  const auto& wide = edges.rulers<double>();
  if (n < kVectors) return false;
  if (own.even.fits) {
    count(EvenSlots<Lane>(edges));
  } else if (own.words.fits) {
    count(NearSlots<Lane, decltype(own.words)>(edges, own.words));
  } else if (std::is_same_v<Lane, double>) {
    return false;
  } else if (wide.even.fits) {
    count(EvenSlots<double>(edges));
  } else if (wide.words.fits) {
    count(NearSlots<double, decltype(wide.words)>(edges, wide.words));
  } else {
    return false;
  }
  return true;
}

template <class T>
void count_bins_of(const T* x, std::size_t n, const BinEdges& edges, std::int64_t* counts) {
  if constexpr (kFewSlots != 0) {
    constexpr std::size_t kPlanes = 768;  // elements: below, these are slower
    using Lane = OwnLane<T>;
    const auto& own = edges.rulers<Lane>();
    if (n >= kPlanes && static_cast<std::size_t>(edges.counters()) <= kFewSlots) {
      if (own.even.fits) return count_few_slots(x, n, EvenSlots<Lane>(edges), edges, counts);
      if (own.bytes.fits)
        return count_few_slots(x, n, NearSlots<Lane, decltype(own.bytes)>(edges, own.bytes), edges, counts);
    }
  }
  if (with_slots<T>(n, edges, [&](auto slots) { count_each_slot(x, n, slots, edges, counts); })) return;
  for (std::size_t i = 0; i < n; ++i) ++counts[edges.counter_of(widened(x[i]))];
}

/// Each element has its own counters.
template <class T>
void count_columns_of(const T* x, std::size_t n, const BinEdges& edges, std::int64_t* counts) {
  const auto stride = static_cast<std::size_t>(edges.counters());
  if constexpr (std::is_same_v<T, c10::BFloat16>) {  // which are not fetched in order
    constexpr std::size_t kBlock = 256;
    float block[kBlock];
    for (std::size_t i = 0; i < n; i += kBlock) {
      const std::size_t size = std::min(kBlock, n - i);
      for (std::size_t j = 0; j < size; ++j) block[j] = static_cast<float>(x[i + j]);
      count_columns_of(block, size, edges, counts + i * stride);
    }
  } else if (!with_slots<T>(n, edges, [&](auto slots) HWY_ATTR {
               const std::int64_t bins = edges.bins();
               each_run<kColumns>(x, n, slots, [&](std::size_t i, auto* counters, std::size_t run) HWY_ATTR {
                 to_counters(counters, run, bins);
                 // Local copies: a counter might be the captured ones, which would be read again after each.
                 const std::size_t size = std::min(run, n - i), step = stride;
                 std::int64_t* to = counts + i * step;
#pragma GCC unroll 4
                 for (std::size_t j = 0; j < size; ++j, to += step) ++to[counters[j]];
               });
             })) {
    for (std::size_t i = 0; i < n; ++i)
      ++counts[i * stride + static_cast<std::size_t>(edges.counter_of(widened(x[i])))];
  }
}

void count_bins(c10::ScalarType type, const void* x, std::size_t n, const BinEdges& edges,
                std::int64_t* counts) {
  with_type(type, [&](auto* typed) {
    count_bins_of(static_cast<decltype(typed)>(const_cast<void*>(x)), n, edges, counts);
  });
}

void count_columns(c10::ScalarType type, const void* x, std::size_t n, const BinEdges& edges,
                   std::int64_t* counts) {
  with_type(type, [&](auto* typed) {
    count_columns_of(static_cast<decltype(typed)>(const_cast<void*>(x)), n, edges, counts);
  });
}

}  // namespace torchtap::reductions::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
