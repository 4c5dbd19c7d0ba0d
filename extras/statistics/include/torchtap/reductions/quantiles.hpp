#pragma once

/// Estimates quantiles in bounded memory with the KLL sketch.

#include <torchtap/statistics/quantiles.hpp>
