#pragma once

#include <ATen/ATen.h>
#include <boost/test/unit_test.hpp>

/// Whether `got` has the shape and, within `rtol`, the values of `want`; NaN equals NaN. On failure the
/// message states the difference.
inline boost::test_tools::assertion_result close(const at::Tensor& got, const at::Tensor& want, double rtol,
                                                 double atol = 0.0) {
  boost::test_tools::assertion_result result(false);
  if (got.sizes() != want.sizes()) {
    result.message() << "got shape " << got.sizes() << ", want " << want.sizes();
    return result;
  }
  const auto wide = got.is_complex() || want.is_complex() ? at::kComplexDouble : at::kDouble;
  const auto a = got.to(wide);
  const auto b = want.to(wide);
  if (at::allclose(a, b, rtol, atol == 0.0 ? rtol : atol, /*equal_nan=*/true)) return true;
  result.message() << "got " << got.toString() << got.sizes() << ", want " << want.toString() << want.sizes();
  if (got.numel() != 0) {
    result.message() << ", max |got-want| = " << (a - b).abs().max().item<double>() << " (rtol " << rtol
                     << ")";
    if (got.numel() <= 16) result.message() << "\ngot " << a << "\nwant " << b;
  }
  return result;
}

/// The same values in a tensor that kernels and loops do not read, so that ATen's operations do. Of types
/// without negative numbers it is merely not contiguous.
inline at::Tensor by_operations(const at::Tensor& x) {
  if (x.scalar_type() == at::kBool || x.scalar_type() == at::kByte)
    return at::stack({x, x}, -1).select(-1, 0);
  const at::Tensor view = at::_neg_view(at::neg(x));
  BOOST_REQUIRE(view.is_neg());
  return view;
}
