#pragma once

// What hooks and scopes cost that no pair of time stamps encloses.

#include <torchtap/views/report/detail/ledger.hpp>

namespace torchtap::views::report::detail {

/// Measured once in a process, for either kind of model.
Calibration calibration(bool scripted);

}  // namespace torchtap::views::report::detail
