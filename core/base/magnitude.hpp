#pragma once

// Magnitudes of complex numbers.

#include <ATen/Functions.h>
#include <c10/core/ScalarType.h>

namespace torchtap::base {

/// The magnitudes of a complex tensor. Those of `at::abs` are infinite where a square leaves the dtype.
inline at::Tensor magnitude(const at::Tensor& complex) {
  const at::Tensor wide = complex.to(at::kComplexDouble);
  return at::hypot(at::real(wide), at::imag(wide)).to(c10::toRealValueType(complex.scalar_type()));
}

}  // namespace torchtap::base
