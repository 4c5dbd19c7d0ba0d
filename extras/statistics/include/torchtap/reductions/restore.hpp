#pragma once

/// Restores saved reductions.

#include <torchtap/statistics/restore.hpp>
