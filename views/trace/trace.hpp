#pragma once

/// Includes all public headers of views/trace/.

#include <torchtap/views/trace/draw_options.hpp>
#include <torchtap/views/trace/history.hpp>
#include <torchtap/views/trace/log_forward_pass.hpp>
#include <torchtap/views/trace/node.hpp>
#include <torchtap/views/trace/options.hpp>
#include <torchtap/views/trace/tracer.hpp>
#include <torchtap/views/trace/validation.hpp>
