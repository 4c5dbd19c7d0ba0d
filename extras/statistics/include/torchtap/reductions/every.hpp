#pragma once

/// Applies a reduction to every n-th sample.

#include <torchtap/statistics/every.hpp>
