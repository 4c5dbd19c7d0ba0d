#pragma once

#include <ATen/ATen.h>
#include <boost/test/unit_test.hpp>

#include "../support.hpp"

using torchtap_test::close;

/// The same values in a tensor that kernels and loops do not read, so that ATen's operations do. Of types
/// without negative numbers it is merely not contiguous.
inline at::Tensor by_operations(const at::Tensor& x) {
  if (x.scalar_type() == at::kBool || x.scalar_type() == at::kByte)
    return at::stack({x, x}, -1).select(-1, 0);
  const at::Tensor view = at::_neg_view(at::neg(x));
  BOOST_REQUIRE(view.is_neg());
  return view;
}
