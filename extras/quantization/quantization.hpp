#pragma once

/// Includes all public headers of quantization/.

#include <torchtap/quantization/calibration.hpp>
#include <torchtap/quantization/fake_quantize.hpp>
#include <torchtap/quantization/formats.hpp>
#include <torchtap/quantization/int8.hpp>
#include <torchtap/quantization/parameters.hpp>
#include <torchtap/quantization/sensitivity.hpp>
