#pragma once

/// Declares the list of reductions that text can name.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torchtap/reductions/parse.hpp>

namespace torchtap::reductions::detail {

/// The arguments of a reduction in text: "64", "-4" and "4" in "histogram:64:-4:4".
using Arguments = std::vector<std::string>;

/// A reduction that has a name. To add one, add a line to the list in catalogue.cpp.
struct Named {
  CatalogueEntry entry;
  std::size_t least, most;  ///< number of arguments
  std::function<Any(const Arguments&, const ParseOptions&)> make;
  std::function<Any()> blank;  ///< of any configuration: for `restore`, which reads it with the state
};

const std::vector<Named>& all_named();

/// The number that an argument is. Throws `c10::ValueError` if the argument is no whole number.
std::int64_t whole_number(const std::string& argument);

}  // namespace torchtap::reductions::detail
