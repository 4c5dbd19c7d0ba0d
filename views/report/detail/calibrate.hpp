#pragma once

// Measures the cost of hooks and scopes outside of any pair of time stamps.

#include <torchtap/views/report/detail/ledger.hpp>

namespace torchtap::views::report::detail {

/// Measured once in a process, for either kind of model.
Calibration calibration(bool scripted);

}  // namespace torchtap::views::report::detail
