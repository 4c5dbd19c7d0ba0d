#pragma once

/// Applies a callable to each sample before a reduction.

#include <torchtap/statistics/map.hpp>
