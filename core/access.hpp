#pragma once

/// Gives the library access to members of reductions that users do not need.

#include <string>
#include <utility>

namespace torchtap::core {

/// Reaches the members of a reduction that the library needs and users do not, if the reduction names this
/// struct a friend:
/// - `recipe`, the expression from which `reductions::restore` makes the reduction anew;
/// - `sink` and `into_sink` of a reduction that holds another.
struct Access {
  /// The expression of a reduction.
  template <class R>
  static auto recipe(const R& reduction) -> decltype(std::string{reduction.recipe()}) {
    return reduction.recipe();
  }
  /// The sink inside a reduction that holds one.
  template <class R>
  static auto sink(R& reduction) -> decltype((reduction.sink())) {
    return reduction.sink();
  }
  /// A sink made of a reduction that knows how, in place of a `SinkOf` around it.
  template <class R>
  static auto into_sink(R reduction) -> decltype(std::move(reduction).into_sink()) {
    return std::move(reduction).into_sink();
  }
};

}  // namespace torchtap::core
