#pragma once

/// Adds reductions to those that `parse` and `restore` know.

#include <torchtap/statistics/extend/named.hpp>
