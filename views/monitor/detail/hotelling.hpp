#pragma once

// Hotelling's T² of weighted blocks: the coordinates in which blocks vary alike, and the quantiles that T² is
// compared with.

#include <cstddef>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::views::monitor::detail {

/// The value that chi-squared with `d` degrees of freedom exceeds with probability `alpha`.
TORCHTAP_API double chi_squared_limit(double alpha, double d);
/// The value that F with `d1` and `d2` degrees of freedom exceeds with probability `alpha`.
TORCHTAP_API double f_limit(double alpha, double d1, double d2);

/// The eigenvalues, ascending, and eigenvectors, one after the other, of a symmetric matrix [n, n].
struct Eigen {
  std::vector<double> values, vectors;
};
TORCHTAP_API Eigen eigen(std::vector<double> matrix, std::size_t n);

}  // namespace torchtap::views::monitor::detail
