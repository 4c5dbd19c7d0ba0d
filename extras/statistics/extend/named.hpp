#pragma once

/// Adds a reduction of another library to those that text can name.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/statistics/parse.hpp>

namespace torchtap::reductions::extend {

/// The arguments of a reduction in text: "64", "-4" and "4" in "histogram:64:-4:4".
using Arguments = std::vector<std::string>;

/// A reduction that has a name.
struct Named {
  CatalogueEntry entry;
  std::size_t least, most;  ///< number of arguments
  std::function<Any(const Arguments&, const ParseOptions&)> make;
  std::function<Any()> blank;  ///< of any configuration: for `restore`, which reads it with the state
};

/// From now on `parse`, `restore` and `catalogue` know the reduction. Call it while no other thread uses
/// them, as when the library is loaded.
TORCHTAP_API void add_to_catalogue(Named named);

/// The number that an argument is. Throws `c10::ValueError` if the argument is no whole number.
TORCHTAP_API std::int64_t whole_number(const std::string& argument);

}  // namespace torchtap::reductions::extend
