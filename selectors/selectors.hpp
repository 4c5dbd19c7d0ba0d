#pragma once

/// All of selectors/.

#include <torchtap/selectors/regex.hpp>
#include <torchtap/selectors/selector.hpp>
#include <torchtap/selectors/walk.hpp>
