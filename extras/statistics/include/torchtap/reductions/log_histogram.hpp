#pragma once

/// Counts values in bins whose width grows with the value, without a given range.

#include <torchtap/statistics/log_histogram.hpp>
