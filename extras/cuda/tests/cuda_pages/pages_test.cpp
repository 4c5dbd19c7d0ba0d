// Recorders add samples of a device up there, and say what they say of the same samples on the CPU.
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/torchtap.hpp>

#include "../page_cases.hpp"
#include "on_pages.hpp"
#include "tests/support.hpp"

using namespace torchtap;
using namespace torchtap_test;
namespace nn = torch::nn;

BOOST_AUTO_TEST_SUITE(cuda_pages)

BOOST_AUTO_TEST_CASE(results_are_those_of_the_cpu) {
  const OnPages pages;
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const PageCase& one : page_cases()) {
      for (const auto& text : kPageReductions) {
        BOOST_TEST_CONTEXT(text << ", " << one.name << ", " << dtype) {
          nn::Sequential model{Same()};
          recorders::ForwardOutput recorder(reducing(text, one.over));
          recorder.attach(model, selectors::names("0"));
          auto on_cpu = parsed(text, one.over);
          const std::int64_t before = fake::launches();
          for (const auto& sample : one.samples) {
            const at::Tensor x = sample.to(dtype);
            at::Tensor there = fake::on_device(at::empty_strided(x.sizes(), x.strides(), x.options()));
            there.copy_(x);
            model->forward(there);
            on_cpu.update(x.to(at::kDouble));  // the CPU's kernels sum groups of small numbers in float32
          }
          BOOST_TEST(fake::launches() > before);
          BOOST_TEST(recorder[0].samples() == 3);
          check_same(recorder[0].results(), on_cpu.results());
        }
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
