#pragma once
#pragma GCC system_header

// See pimpl.h beside this file.

#include_next <torch/nn/cloneable.h>

#include <torchtap/transparent/holder.hpp>
