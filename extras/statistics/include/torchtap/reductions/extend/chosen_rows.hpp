#pragma once

/// What reductions that feed rows of a sample to other reductions have in common.

#include <torchtap/statistics/extend/chosen_rows.hpp>
