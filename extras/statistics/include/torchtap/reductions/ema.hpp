#pragma once

/// Computes the exponential moving average of the samples.

#include <torchtap/statistics/ema.hpp>
