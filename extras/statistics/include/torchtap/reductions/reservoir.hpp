#pragma once

/// Keeps a uniform random choice of k samples.

#include <torchtap/statistics/reservoir.hpp>
