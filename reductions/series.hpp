#pragma once

/// Folds one stream of samples into several reductions of known types.

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <torchtap/reductions/any_series.hpp>
#include <torchtap/reductions/detail/nested.hpp>

namespace torchtap::reductions {

/// Several reductions of one stream: `Series(Moments(), Min(), Max(), Count())`. An `AnySeries` whose members
/// the compiler knows by type.
template <class... Rs>
class Series : public AnySeries {
 public:
  static_assert(sizeof...(Rs) > 0, "Series takes at least one reduction");
  static_assert((core::detail::checked_reduction<Rs>() && ...), "Series takes reductions");

  /// Takes copies of these reductions, in this order.
  explicit Series(Rs... reductions) : AnySeries(members(std::move(reductions)...)) {}

  /// A member by index, or by type if that occurs once.
  template <std::size_t I>
  const auto& get() const& noexcept {
    return *this->at(I).template get<std::tuple_element_t<I, std::tuple<Rs...>>>();
  }
  /// For a temporary: returns by value.
  template <std::size_t I>
  auto get() && {
    return std::as_const(*this).template get<I>();
  }
  /// The member of a type that occurs once.
  template <class R>
  const R& get() const& noexcept {
    static_assert((std::is_same_v<R, Rs> + ...) == 1,
                  "reductions::Series::get<R> needs an R that occurs once among the members");
    std::size_t index = 0, found = 0;
    ((found = std::is_same_v<R, Rs> ? index : found, ++index), ...);
    return *this->at(found).template get<R>();
  }
  /// For a temporary: returns by value.
  template <class R>
  R get() && {
    return std::as_const(*this).template get<R>();
  }

  /// Merges member by member. Throws the error of any of them; the state of all is unchanged then.
  void merge(const Series& other) { AnySeries::merge(other); }
  Series fresh() const { return Series(AnySeries::fresh()); }

 private:
  friend struct core::Access;
  explicit Series(AnySeries members) : AnySeries(std::move(members)) {}
  /// Becomes an `AnySeries`, so that it merges with a restored one.
  std::unique_ptr<core::Sink> into_sink() && {
    return std::make_unique<core::SinkOf<AnySeries>>(static_cast<AnySeries&&>(*this));
  }
  static std::vector<Any> members(Rs... reductions) {
    std::vector<Any> all;
    all.reserve(sizeof...(Rs));
    (all.push_back(Any(std::move(reductions))), ...);
    return all;
  }
};

}  // namespace torchtap::reductions
