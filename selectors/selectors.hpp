#pragma once

/// Includes all public headers of selectors/.

#include <torchtap/selectors/regex.hpp>
#include <torchtap/selectors/selector.hpp>
#include <torchtap/selectors/walk.hpp>
