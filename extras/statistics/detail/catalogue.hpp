#pragma once

/// Declares the list of reductions that text can name.

#include <vector>

#include <torchtap/statistics/extend/named.hpp>

namespace torchtap::statistics::detail {

/// Those of the kernel and of this library, in catalogue.cpp, then those of other libraries.
const std::vector<reductions::extend::Named>& all_named();

}  // namespace torchtap::statistics::detail
