#pragma once

/// Names the inputs and outputs of modules that reductions get beside a sample (`RecorderOptions::with`).

#include <torchtap/statistics/companion.hpp>
