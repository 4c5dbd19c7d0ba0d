#pragma once

#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <set>
#include <string>
#include <vector>

#include <torchtap/core/context.hpp>
#include <torchtap/core/saved_sink.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "tests/fake_device/fake_device.hpp"
#include "tests/support.hpp"

/// What the tests of rows that are chosen on a device need.
namespace torchtap_test {

using namespace torchtap::reductions;
using torchtap::core::Context;
using torchtap::core::Results;

/// Reductions of rows, each of another kind.
inline std::vector<Any> several() {
  return {Mean(MeanOptions().over({0})),
          Moments(MomentsOptions().over({0})),
          Min(MinOptions().over({0})),
          Count(CountOptions().over({0})),
          LogHistogram(LogHistogramOptions().over_all(true)),
          Histogram(HistogramOptions(8, -3, 3).over_all(true)),
          Quantiles(QuantilesOptions().over({0})),
          Series(Mean(MeanOptions().over({0})), Count(CountOptions().over({0}))),
          every(2, Sum(SumOptions().over({0}))),
          torchtap::core::any_shape([](const at::Tensor& most, const at::Tensor& x) {
            return at::maximum(most.amax(0, true), x.amax(0, true));
          })};
}

inline at::Tensor here(const at::Tensor& tensor) {
  return fake::on_device(tensor);
}

/// What a reduction knows without the elements of samples, and `by` and `where` of their rows.
inline bool is_number(const std::string& name) {
  static const std::set<std::string> numbers{"rows", "elements",  "count.rows",   "count.elements", "levels",
                                             "key",  "key.count", "key.left_out", "mask.left_out"};
  return numbers.count(name) != 0;
}

/// The results are on the device, and those of the CPU: whole numbers to the bit.
inline void check_same(const Results& got, const Results& want) {
  BOOST_TEST(got.names() == want.names(), boost::test_tools::per_element());
  for (const auto& [name, tensor] : want) {
    if (!got.contains(name)) continue;
    BOOST_TEST_CONTEXT("result " << name) {
      const at::Tensor& found = got.at(name);
      BOOST_TEST(found.device() == (is_number(name) ? at::Device(at::kCPU) : fake::device()));
      BOOST_TEST(found.scalar_type() == tensor.scalar_type());
      BOOST_TEST(close(found.cpu(), tensor, at::isIntegralType(tensor.scalar_type(), true) ? 0 : 1e-6));
    }
  }
}

inline std::string state_of(const Any& reduction) {
  return torchtap::core::save(*torchtap::core::make_sink(reduction))->bytes;
}

/// Keeps where its samples lie.
struct Places {
  std::vector<const void*> places;
  std::int64_t rows = 0;
  void update(const at::Tensor& sample) {
    places.push_back(sample.data_ptr());
    rows += sample.size(0);
  }
  void merge(const Places& other) { rows += other.rows; }
  std::int64_t count() const { return rows; }
  Results results() const { return {}; }
};

}  // namespace torchtap_test
