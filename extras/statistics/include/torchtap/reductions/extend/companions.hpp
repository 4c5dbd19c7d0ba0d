#pragma once

/// What reductions that look up tensors beside a sample have in common.

#include <torchtap/statistics/extend/companions.hpp>
