#pragma once

/// Includes what the component statistics adds to recorders. Where it was not built, there is no such file.

#include <torchtap/statistics/companion.hpp>
