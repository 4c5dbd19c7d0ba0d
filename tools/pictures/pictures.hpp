#pragma once

/// Tensors as pictures.

#include "colours.hpp"
#include "histogram.hpp"
#include "image.hpp"
#include "maps.hpp"
#include "text.hpp"
