#pragma once

/// Makes reductions from text, as the command takes them, and lists them.

#include <torchtap/statistics/parse.hpp>
