// Defines the loops over small samples.
//
// Highway compiles this file once per instruction set and picks one at run time; the compiler makes vectors
// of the loops, whose branches are selections. Products are not fused with sums (-ffp-contract=off), so that
// all sets compute the same.

#include <type_traits>

#include <torchtap/reductions/fast/small.hpp>

#ifdef TORCHTAP_HAVE_HIGHWAY
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "torchtap/reductions/fast/small.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#else
#define HWY_NAMESPACE plain
#define HWY_ATTR
#define HWY_BEFORE_NAMESPACE() static_assert(true)
#define HWY_AFTER_NAMESPACE() static_assert(true)
#define HWY_ONCE 1
#endif

#ifndef TORCHTAP_REDUCTIONS_FAST_SMALL_ONCE
#define TORCHTAP_REDUCTIONS_FAST_SMALL_ONCE
namespace torchtap::reductions::detail {

/// The loops below, compiled for one instruction set.
struct Loops {
  Summary (*summarize)(const Memory& x, Needs needs);
  std::int64_t (*sum_integers)(const Memory& x);
  bool (*add)(const Memory& x, c10::ScalarType to, void* sum);
  bool (*copy)(const Memory& x, c10::ScalarType to, void* numbers);
  void (*take_extreme)(const Memory& x, Extreme which, void* state);
  std::int64_t (*extreme_integer)(const Memory& x, Extreme which);
  void (*add_power)(const Memory& x, double p, double* sum);
  double (*sum_of_powers)(const Memory& x, double p);
  void (*decay)(const Memory& x, double decay, double* state);
  void (*decay_all)(const Memory& x, double decay, double* state);
  void (*fold_variance)(const Memory& x, double count, double* mean, double* m2);
  void (*fold_moments)(const Memory& x, double count, double* mean, double* m2, double* m3, double* m4);
};

}  // namespace torchtap::reductions::detail
#endif

#include <torchtap/reductions/fast/small_all-inl.hpp>
#include <torchtap/reductions/fast/small_convert-inl.hpp>
#include <torchtap/reductions/fast/small_each-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace torchtap::reductions::detail::HWY_NAMESPACE {

const Loops* loops() {
  static const Loops all{summarize, sum_integers,  add,   copy,      take_extreme,  extreme_integer,
                         add_power, sum_of_powers, decay, decay_all, fold_variance, fold_moments};
  return &all;
}

}  // namespace torchtap::reductions::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace torchtap::reductions::detail {
namespace {

#ifdef TORCHTAP_HAVE_HIGHWAY
HWY_EXPORT(loops);
#endif

const Loops& best() {
#ifdef TORCHTAP_HAVE_HIGHWAY
  static const Loops* const loops = HWY_DYNAMIC_DISPATCH(loops)();
#else
  static const Loops* const loops = HWY_NAMESPACE::loops();
#endif
  return *loops;
}

}  // namespace

bool is_small_type(c10::ScalarType type) noexcept {
  switch (type) {
    case c10::ScalarType::Float:
    case c10::ScalarType::Double:
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16:
    case c10::ScalarType::Long:
    case c10::ScalarType::Int:
    case c10::ScalarType::Short:
    case c10::ScalarType::Char:
    case c10::ScalarType::Byte:
    case c10::ScalarType::Bool:
      return true;
    default:
      return false;
  }
}

Summary summarize(const Memory& x, Needs needs) {
  return best().summarize(x, needs);
}

std::int64_t sum_integers(const Memory& x) {
  return best().sum_integers(x);
}

bool add(const Memory& x, c10::ScalarType to, void* sum) {
  return best().add(x, to, sum);
}

bool copy(const Memory& x, c10::ScalarType to, void* numbers) {
  return best().copy(x, to, numbers);
}

void take_extreme(const Memory& x, Extreme which, void* state) {
  best().take_extreme(x, which, state);
}

std::int64_t extreme_integer(const Memory& x, Extreme which) {
  return best().extreme_integer(x, which);
}

void add_power(const Memory& x, double p, double* sum) {
  best().add_power(x, p, sum);
}

double sum_of_powers(const Memory& x, double p) {
  return best().sum_of_powers(x, p);
}

void decay(const Memory& x, double decay, double* state) {
  best().decay(x, decay, state);
}

void decay_all(const Memory& x, double decay, double* state) {
  best().decay_all(x, decay, state);
}

void fold_variance(const Memory& x, double count, double* mean, double* m2) {
  best().fold_variance(x, count, mean, m2);
}

void fold_moments(const Memory& x, double count, double* mean, double* m2, double* m3, double* m4) {
  best().fold_moments(x, count, mean, m2, m3, m4);
}

namespace {

template <class Number>
void take_extreme_number(Number number, c10::ScalarType type, Extreme which, void* state) {
  HWY_NAMESPACE::with_type(type, [&](auto* typed) {
    using T = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
    const T one = static_cast<T>(number);
    // A magnitude is its own.
    take_extreme(Memory{type, reinterpret_cast<const char*>(&one), 1},
                 which == Extreme::min ? which : Extreme::max, state);
  });
}

}  // namespace

void take_extreme(double number, c10::ScalarType type, Extreme which, void* state) {
  take_extreme_number(number, type, which, state);
}

void take_extreme(std::int64_t number, c10::ScalarType type, Extreme which, void* state) {
  take_extreme_number(number, type, which, state);
}

}  // namespace torchtap::reductions::detail
#endif
