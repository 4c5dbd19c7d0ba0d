#pragma once

/// Applies a reduction to the rows of a sample joined with the rows of another tensor.

#include <torchtap/statistics/joint.hpp>
