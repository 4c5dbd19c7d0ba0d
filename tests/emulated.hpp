#pragma once

#include <ATen/ATen.h>

#include <cstdlib>

namespace torchtap_test {

/// Whether the processor is emulated: programs that a test starts, as Python, run on another one.
inline bool is_emulated() {
  return std::getenv("TORCHTAP_TEST_EMULATED") != nullptr;
}

/// Whether these are the bits that Python computed. On a processor of another kind its libraries add in
/// another order: then floating-point numbers are close.
inline bool as_python(const at::Tensor& got, const at::Tensor& want) {
  if (!is_emulated() || !want.is_floating_point()) return at::equal(got, want);
  return got.scalar_type() == want.scalar_type() && got.sizes() == want.sizes() &&
         at::allclose(got, want, 1e-4, 1e-5, /*equal_nan=*/true);
}

}  // namespace torchtap_test
