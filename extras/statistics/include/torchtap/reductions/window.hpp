#pragma once

/// Applies a reduction to the last n samples.

#include <torchtap/statistics/window.hpp>
