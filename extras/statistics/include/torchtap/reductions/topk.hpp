#pragma once

/// Keeps the k largest or smallest values, and the indices of the samples that they came from.

#include <torchtap/statistics/topk.hpp>
