#pragma once

/// Applies a reduction to the rows that a mask chooses.

#include <torchtap/statistics/where.hpp>
