#pragma once

/// All of hooks/.

#include <torchtap/hooks/attach.hpp>
#include <torchtap/hooks/event.hpp>
#include <torchtap/hooks/hooked.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/hooks/register_value.hpp>
#include <torchtap/hooks/values.hpp>
