#pragma once

#include <ATen/ATen.h>
#include <boost/test/unit_test.hpp>

#include <sstream>

#include <torchtap/reductions/any.hpp>

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

/// The reduction, saved, and loaded into one without samples.
inline torchtap::reductions::Any reloaded(const torchtap::reductions::Any& one) {
  std::stringstream stream;
  {
    torchtap::core::OutputArchive archive(stream);
    archive(one);
  }
  torchtap::core::InputArchive archive(stream);
  torchtap::reductions::Any again = one.fresh();
  archive(again);
  return again;
}
