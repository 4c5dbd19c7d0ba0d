#pragma once

/// Includes all public headers of cuda/.

#include <torchtap/cuda/fused_kernels.hpp>
