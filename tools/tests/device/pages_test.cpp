// Recorders with fused kernels add samples up on the device, and say what they say of them on the CPU.
#include <boost/test/data/test_case.hpp>
#include <torch/torch.h>

#include <torchtap/torchtap.hpp>

#include "extras/cuda/tests/page_cases.hpp"
#include "on_device.hpp"
#include "tests/support.hpp"

using namespace torchtap;
using namespace torchtap_test;
namespace nn = torch::nn;

BOOST_AUTO_TEST_SUITE(device_pages, *boost::unit_test::precondition(has_device))

BOOST_DATA_TEST_CASE(results_are_those_of_the_cpu, boost::unit_test::data::make(ways()), fused) {
  const Fused way(fused);
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const PageCase& one : page_cases()) {
      for (const auto& text : kPageReductions) {
        BOOST_TEST_CONTEXT(text << ", " << one.name << ", " << dtype) {
          nn::Sequential model{nn::Identity()};
          recorders::ForwardOutput recorder(reducing(text, one.over)), again(reducing(text, one.over));
          recorder.attach(model, selectors::names("0"));
          again.attach(model, selectors::names("0"));
          auto on_cpu = parsed(text, one.over);
          {
            const NoWaiting strict;
            for (const auto& sample : one.samples) {
              const at::Tensor x = sample.to(dtype);
              at::Tensor there = at::empty_strided(x.sizes(), x.strides(), x.options().device(device()));
              there.copy_(x, /*non_blocking=*/true);
              model->forward(there);
              on_cpu.update(x.to(at::kDouble));
            }
          }
          BOOST_TEST(recorder[0].samples() == 3);
          const auto want = on_cpu.results(), got = recorder[0].results(), same = again[0].results();
          BOOST_TEST(got.names() == want.names(), boost::test_tools::per_element());
          for (const auto& [name, tensor] : want) {
            const at::Tensor here = got.at(name).cpu();
            const bool exact = !here.is_floating_point() || name.find("min.") == 0 || name.find("max.") == 0;
            const double rtol = exact ? 0 : !fused ? 2e-5 : here.scalar_type() == at::kDouble ? 1e-9 : 1e-6;
            BOOST_TEST(close(here, tensor.to(here.scalar_type()), rtol, exact ? 0 : 1e-9), name);
            if (fused) BOOST_TEST(close(here, same.at(name).cpu(), 0, 0), name);  // to the bit, in each run
          }
        }
      }
    }
  }
}

BOOST_DATA_TEST_CASE(rows_that_a_mask_chooses_are_those_of_the_cpu, boost::unit_test::data::make(ways()),
                     fused) {
  const Fused way(fused);
  at::manual_seed(3);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const MaskCase& one : kMaskCases) {
      for (const auto& text : kMaskedReductions) {
        BOOST_TEST_CONTEXT(text << ", " << one.name << ", " << dtype) {
          nn::Sequential model{nn::Identity()};
          recorders::ForwardOutput recorder(chosen(text, one.over));
          recorder.attach(model, selectors::names("0"));
          reductions::Any on_cpu = reductions::where("mask", parsed(text, one.over));
          for (int i = 0; i < 5; ++i) {
            const auto [batch, mask] = one.batch(i);
            const at::Tensor x = batch.to(dtype), there = x.to(device());
            const core::Context named("mask", mask.to(device()));
            if (fused) {
              const NoWaiting strict;
              model->forward(there);
            } else {
              model->forward(there);
            }
            feed(on_cpu, x, mask);
          }
          const auto want = on_cpu.results(), got = recorder[0].results();
          BOOST_TEST(got.names() == want.names(), boost::test_tools::per_element());
          for (const auto& [name, tensor] : want) {
            const at::Tensor here = got.at(name).cpu();
            const double rtol = !here.is_floating_point()           ? 0
                                : !fused                            ? 2e-5
                                : here.scalar_type() == at::kDouble ? 1e-9
                                                                    : 1e-6;
            BOOST_TEST(close(here, tensor.to(here.scalar_type()), rtol, 1e-9), name);
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
