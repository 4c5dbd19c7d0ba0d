/// Finds the slots of vectors of values.

// Highway includes this file once per instruction set.
#if defined(TORCHTAP_REDUCTIONS_FAST_KERNELS_SLOTS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TORCHTAP_REDUCTIONS_FAST_KERNELS_SLOTS_INL_HPP
#undef TORCHTAP_REDUCTIONS_FAST_KERNELS_SLOTS_INL_HPP
#else
#define TORCHTAP_REDUCTIONS_FAST_KERNELS_SLOTS_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include <torchtap/reductions/fast/bin_edges.hpp>
#include <torchtap/reductions/fast/kernels_lanes-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace torchtap::reductions::detail::HWY_NAMESPACE {

/// Finds slots by an `EvenRuler`.
template <class L>
class EvenSlots {
 public:
  using Lane = L;
  static constexpr int kFraction = 0;
  static constexpr hwy::MakeUnsigned<L> kMask =
      (hwy::MakeUnsigned<L>{1} << (std::numeric_limits<L>::digits - 1)) - 1;

  explicit EvenSlots(const BinEdges& edges)
      : ruler_(edges.rulers<L>().even), bins_(static_cast<hwy::MakeUnsigned<L>>(edges.bins())) {}

  /// Computes the slots of two vectors of neighbouring elements, in any order, in the bits kMask above
  /// kFraction.
  template <class D, class T>
  HWY_INLINE void operator()(D d, const T* x, hn::Vec<hn::RebindToUnsigned<D>>& a,
                             hn::Vec<hn::RebindToUnsigned<D>>& b) {
    const hn::RebindToSigned<D> integers;
    const hn::RebindToUnsigned<D> bits;
    auto va = hn::Undefined(d), vb = va;
    fetch(d, x, va, vb);
    const auto scale = hn::Set(d, ruler_.scale), offset = hn::Set(d, ruler_.offset);
    const auto first = hn::Set(d, ruler_.first), width = hn::Set(d, ruler_.width),
               low = hn::Set(d, ruler_.low), high = hn::Set(d, ruler_.high);
    const auto find = [&](auto v) HWY_ATTR {
      const auto rounded = hn::BitCast(integers, hn::MulAdd(v, scale, offset));
      const auto place = hn::BitCast(d, hn::Max(rounded, hn::BitCast(integers, first)));
      const auto edge = hn::MulAdd(hn::Sub(place, first), width, low);
      const auto below = hn::RebindMask(bits, hn::Lt(v, edge));
      return hn::Sub(hn::BitCast(bits, place),
                     hn::IfThenElseZero(below, hn::Set(bits, hwy::MakeUnsigned<L>{1})));
    };
    a = find(va);
    b = find(vb);
    if (HWY_LIKELY(hn::AllTrue(d, hn::And(hn::Lt(va, high), hn::Lt(vb, high))))) return;
    a = correct(d, va, a);
    b = correct(d, vb, b);
  }

 private:
  /// Corrects slots of values that are not below the upper edge, and of NaN.
  template <class D, class B = hn::Vec<hn::RebindToUnsigned<D>>>
  HWY_INLINE B correct(D d, hn::Vec<D> v, B found) const {
    const hn::RebindToUnsigned<D> bits;
    const auto is_below = hn::RebindMask(bits, hn::Lt(v, hn::Set(d, ruler_.high)));
    const auto is_above = hn::RebindMask(bits, hn::Ge(v, hn::Set(d, ruler_.last)));
    const auto is_nan = hn::RebindMask(bits, hn::IsNaN(v));
    found = hn::IfThenElse(is_below, found, hn::Set(bits, bins_));
    found = hn::IfThenElse(is_above, hn::Set(bits, bins_ + 1), found);
    return hn::IfThenElse(is_nan, hn::Set(bits, bins_ + 2), found);
  }

  const EvenRuler<L>& ruler_;
  hwy::MakeUnsigned<L> bins_;
};

/// Finds slots by a `NearRuler`. Values are often near one or two edges, such as zeros near the edge 0: so
/// two edges are remembered, and values near them are compared with them. Values near others are compared
/// with a table's edges.
template <class L, class R>
class NearSlots {
 public:
  using Lane = L;
  using Word = typename R::Word;
  static constexpr int kFraction = R::kFraction;
  static constexpr Word kMask = R::kMask;

  NearSlots(const BinEdges& edges, const R& ruler)
      : ruler_(ruler),
        boundaries_(edges.rulers<L>().boundaries.data()),
        nan_(static_cast<Word>(edges.bins() + 2) << kFraction) {}

  /// Finds slots as `EvenSlots` does.
  template <class D, class T>
  HWY_INLINE void operator()(D d, const T* x, hn::Vec<hn::RebindToUnsigned<D>>& a,
                             hn::Vec<hn::RebindToUnsigned<D>>& b) {
    const hn::RebindToSigned<D> integers;
    const hn::RebindToUnsigned<D> bits;
    auto va = hn::Undefined(d), vb = va;
    fetch(d, x, va, vb);
    const auto scale = hn::Set(d, ruler_.scale), offset = hn::Set(d, ruler_.offset);
    const auto least = hn::Set(integers, ruler_.least), most = hn::Set(integers, ruler_.most);
    const auto place = [&](auto v) HWY_ATTR {
      const auto found = hn::BitCast(integers, hn::MulAdd(v, scale, offset));
      return hn::BitCast(bits, hn::Min(hn::Max(found, least), most));
    };
    a = place(va);
    b = place(vb);
    const auto tolerance = hn::Set(bits, ruler_.tolerance), distance = hn::Set(bits, ruler_.distance);
    const auto is_near = [&](auto found) HWY_ATTR {
      return hn::Eq(hn::And(hn::Add(found, tolerance), distance), hn::Zero(bits));
    };
    const auto near_a = is_near(a), near_b = is_near(b);
    const auto is_nan = hn::RebindMask(bits, hn::Or(hn::IsNaN(va), hn::IsNaN(vb)));
    if (HWY_LIKELY(hn::AllFalse(bits, hn::Or(hn::Or(near_a, near_b), is_nan)))) return;
    compare(d, va, vb, near_a, near_b, a, b);
  }

 private:
  struct Edge {
    Word place = 0;  // in the bits of the ruler; 0: none
    L least = 0;
  };

  /// Corrects the places of values near an edge, and of NaN.
  template <class D, class U = hn::RebindToUnsigned<D>>
  HWY_INLINE void compare(D d, hn::Vec<D> va, hn::Vec<D> vb, hn::Mask<U> near_a, hn::Mask<U> near_b,
                          hn::Vec<U>& a, hn::Vec<U>& b) {
    const U bits;
    const auto first_a = is_near(bits, a, first_), first_b = is_near(bits, b, first_);
    near_a = hn::AndNot(first_a, near_a);
    near_b = hn::AndNot(first_b, near_b);
    if (HWY_LIKELY(hn::AllFalse(bits, hn::Or(near_a, near_b)))) {
      a = with_nan(d, va, compare_with(d, va, first_, first_a, a));
      b = with_nan(d, vb, compare_with(d, vb, first_, first_b, b));
      return;
    }
    const auto other_a = is_near(bits, a, other_), other_b = is_near(bits, b, other_);
    near_a = hn::AndNot(other_a, near_a);
    near_b = hn::AndNot(other_b, near_b);
    if (HWY_LIKELY(hn::AllFalse(bits, hn::Or(near_a, near_b)))) {
      a = with_nan(d, va, compare_with(d, va, other_, other_a, compare_with(d, va, first_, first_a, a)));
      b = with_nan(d, vb, compare_with(d, vb, other_, other_b, compare_with(d, vb, first_, first_b, b)));
      return;
    }
    remember(bits, near_a, a);
    remember(bits, near_b, b);
    a = with_nan(d, va, compare_with_nearest(d, va, a));
    b = with_nan(d, vb, compare_with_nearest(d, vb, b));
  }

  template <class U>
  HWY_INLINE hn::Mask<U> is_near(U bits, hn::Vec<U> found, const Edge& edge) const {
    const auto nearest = hn::And(hn::Add(found, hn::Set(bits, ruler_.tolerance)),
                                 hn::Set(bits, static_cast<Word>(~(2 * ruler_.tolerance - 1))));
    return hn::Eq(nearest, hn::Set(bits, edge.place));
  }

  template <class D, class U = hn::RebindToUnsigned<D>>
  HWY_INLINE hn::Vec<U> compare_with(D d, hn::Vec<D> v, const Edge& edge, hn::Mask<U> near,
                                     hn::Vec<U> found) const {
    const U bits;
    constexpr Word kOne = Word{1} << kFraction;
    const auto below = hn::RebindMask(bits, hn::Lt(v, hn::Set(d, edge.least)));
    const auto place = hn::IfThenElse(below, hn::Set(bits, edge.place - kOne), hn::Set(bits, edge.place));
    return hn::IfThenElse(near, place, found);
  }

  template <class D, class U = hn::RebindToUnsigned<D>>
  HWY_INLINE hn::Vec<U> compare_with_nearest(D d, hn::Vec<D> v, hn::Vec<U> found) const {
    const hn::RebindToSigned<D> integers;
    const U bits;
    const auto one = hn::Set(bits, Word{1});
    const auto rounded = hn::Add(found, hn::Set(bits, Word{1} << (kFraction - 1)));
    const auto upper = hn::And(hn::ShiftRight<kFraction>(rounded), hn::Set(bits, kMask));
    const auto edge = hn::GatherIndex(d, boundaries_, hn::BitCast(integers, hn::Sub(upper, one)));
    const auto below = hn::RebindMask(bits, hn::Lt(v, edge));
    return hn::ShiftLeft<kFraction>(hn::Sub(upper, hn::IfThenElseZero(below, one)));
  }

  template <class D, class U = hn::RebindToUnsigned<D>>
  HWY_INLINE hn::Vec<U> with_nan(D /*d*/, hn::Vec<D> v, hn::Vec<U> found) const {
    const U bits;
    return hn::IfThenElse(hn::RebindMask(bits, hn::IsNaN(v)), hn::Set(bits, nan_), found);
  }

  /// Remembers the edge that the first of these places is near to. The first edge of all is most likely
  /// frequent, so the other one makes room.
  template <class U>
  HWY_INLINE void remember(U bits, hn::Mask<U> near, hn::Vec<U> found) {
    const auto lane = hn::FindFirstTrue(bits, near);
    if (lane < 0) return;
    HWY_ALIGN Word places[HWY_MAX_BYTES / sizeof(Word)];
    hn::Store(found, bits, places);
    Edge& edge = first_.place == 0 ? first_ : other_;
    edge.place = (places[lane] + (Word{1} << (kFraction - 1))) & ~((Word{1} << kFraction) - 1);
    edge.least = boundaries_[(edge.place >> kFraction & kMask) - 1];
  }

  const R& ruler_;
  const L* boundaries_;
  Word nan_;
  Edge first_, other_;
};

template <int kBits, class V>
HWY_INLINE V shifted(V v) {
  if constexpr (kBits >= 0) {
    return hn::ShiftLeft<kBits>(v);
  } else {
    return hn::ShiftRight<-kBits>(v);
  }
}

/// Slots below 256 as bytes, in any order: one value per byte of the vector.
template <class D, class T, class F, std::size_t... kPair>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> find_bytes(D d, const T* x, F& find,
                                                       std::index_sequence<kPair...>) {
  const hn::RebindToUnsigned<D> bits;
  using Word = hn::TFromD<decltype(bits)>;
  const std::size_t lanes = hn::Lanes(d);
  auto result = hn::Zero(bits);
  const auto add = [&](auto pair) HWY_ATTR {
    constexpr int kAt = 16 * static_cast<int>(decltype(pair)::value);
    auto a = hn::Undefined(bits), b = a;
    find(d, x + 2 * decltype(pair)::value * lanes, a, b);
    a = hn::And(shifted<kAt - F::kFraction>(a), hn::Set(bits, Word{0xFF} << kAt));
    b = hn::And(shifted<kAt + 8 - F::kFraction>(b), hn::Set(bits, Word{0xFF} << (kAt + 8)));
    result = hn::Or(result, hn::Or(a, b));
  };
  (add(std::integral_constant<std::size_t, kPair>()), ...);
  return result;
}

}  // namespace torchtap::reductions::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
