#pragma once

/// Counts values in bins of equal width, whose range is fixed or grows with the data.

#include <torchtap/statistics/histogram.hpp>
