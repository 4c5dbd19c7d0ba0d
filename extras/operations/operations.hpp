#pragma once

/// Includes all public headers of operations/.

#include <torchtap/operations/event.hpp>
#include <torchtap/operations/inside.hpp>
#include <torchtap/operations/scope.hpp>
