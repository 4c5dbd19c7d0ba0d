#pragma once

/// A reduction for each key: statistics by class, by expert.

#include <torchtap/statistics/by.hpp>
