#pragma once

/// Computes the mean, covariance and correlation of features, and Gram matrices.

#include <torchtap/statistics/covariance.hpp>
