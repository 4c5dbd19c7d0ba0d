#pragma once

#include <ATen/ATen.h>
#include <boost/test/unit_test.hpp>

#include <exception>

namespace torchtap_test {

/// Whether LibTorch computes convolutions of this dtype: on 64-bit ARM its oneDNN lacks those of bfloat16,
/// and they throw.
inline bool convolves(at::ScalarType dtype) {
  const auto ones = [&](at::IntArrayRef sizes) { return at::ones(sizes, at::TensorOptions().dtype(dtype)); };
  try {
    at::conv2d(ones({1, 4, 8, 8}), ones({4, 4, 3, 3}));
  } catch (const std::exception& error) {
    BOOST_TEST_MESSAGE("no convolution of " << dtype << ", as LibTorch says: " << error.what());
    return false;
  }
  return true;
}

}  // namespace torchtap_test
