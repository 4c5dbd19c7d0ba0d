#pragma once

/// Includes all public headers of hooks/ but nn.hpp, which defines a hundred module types.

#include <torchtap/hooks/attach.hpp>
#include <torchtap/hooks/event.hpp>
#include <torchtap/hooks/forward.hpp>
#include <torchtap/hooks/hooked.hpp>
#include <torchtap/hooks/register_value.hpp>
#include <torchtap/hooks/values.hpp>
