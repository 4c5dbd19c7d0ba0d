#pragma once

/// Keeps the distributions of up to 512 consecutive blocks of samples, which show how a distribution varies.

#include <torchtap/statistics/blocks.hpp>
