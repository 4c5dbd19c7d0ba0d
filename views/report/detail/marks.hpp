#pragma once

// What looks wrong with modules.

#include <torchtap/views/report/results.hpp>

namespace torchtap::views::report::detail {

/// Fills in `gradient_ratio` and `marks` of all rows. `ran` and `ran_backward`: whether anything did.
void mark(ModuleRow& root, bool ran, bool ran_backward);

}  // namespace torchtap::views::report::detail
