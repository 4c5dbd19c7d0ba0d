#pragma once

/// Covariance of the features of two tensors.

#include <torchtap/statistics/cross_covariance.hpp>
