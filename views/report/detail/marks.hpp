#pragma once

// What looks wrong with modules.

#include <torchtap/views/report/measurements.hpp>

namespace torchtap::views::report::detail {

/// Fills in `gradient_ratio`, which holds the root mean square of the gradient before, and `marks` of all
/// rows. `ran`: whether there was a recording.
void mark(ModuleRow& root, bool ran);

}  // namespace torchtap::views::report::detail
