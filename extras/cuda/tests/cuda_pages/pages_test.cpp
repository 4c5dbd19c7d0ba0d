// Recorders add samples of a device up there, and say what they say of the same samples on the CPU.
#include <thread>
#include <tuple>

#include <torchtap/cuda/detail/proof.hpp>
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

BOOST_AUTO_TEST_CASE(the_order_in_which_blocks_run_changes_no_bit) {
  const OnPages pages;
  for (const PageCase& one : page_cases()) {
    BOOST_TEST_CONTEXT(one.name) {
      const char* const text = "moments, histogram:8:-1:1, log_histogram, ema:0.5";
      std::vector<core::Results> results;
      for (const bool reversed : {false, true}) {
        nn::Sequential model{Same()};
        recorders::ForwardOutput recorder(reducing(text, one.over));
        recorder.attach(model, selectors::names("0"));
        on_host::last_block_first = reversed;
        for (const auto& sample : one.samples) model->forward(fake::on_device(sample));
        results.push_back(recorder[0].results());
        on_host::last_block_first = false;
      }
      for (const auto& [name, tensor] : results[0])
        BOOST_TEST(close(tensor.cpu(), results[1].at(name).cpu(), 0, 0), name);
    }
  }
}

BOOST_AUTO_TEST_CASE(streams_wait_for_each_other) {
  const OnPages pages;
  nn::Sequential model{Same()};
  recorders::ForwardOutput recorder(reducing("sum, count"));
  recorder.attach(model, selectors::names("0"));
  const at::Tensor x = fake::on_device(at::ones({4, 3}));
  const auto before = fake::counters();
  for (int i = 0; i < 4; ++i) {
    const fake::OnStream stream(i % 2);
    model->forward(x);
  }
  {
    const fake::OnStream reading(2);
    BOOST_TEST(recorder[0].tensor("sum.value").cpu().eq(16).all().item<bool>());
  }
  const auto after = fake::counters();
  BOOST_TEST(after.blocked - before.blocked == 5);  // three changes of stream, and both before the result
  BOOST_TEST(after.recorded - before.recorded == 5);
  BOOST_TEST(after.events == before.events);
}

BOOST_AUTO_TEST_CASE(threads_add_to_one_page) {
  const OnPages pages;
  nn::Sequential model{Same()};
  recorders::ForwardOutput recorder(reducing("sum, count"));
  recorder.attach(model, selectors::names("0"));
  const at::Tensor x = fake::on_device(at::ones({4, 3}));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) model->forward(x);
    });
  }
  for (int i = 0; i < 20; ++i) (void)recorder[0].results();  // while they run
  for (auto& thread : threads) thread.join();
  BOOST_TEST(recorder.samples() == 200);
  BOOST_TEST(recorder[0].tensor("sum.value").cpu().eq(800).all().item<bool>());
  BOOST_TEST(recorder[0].tensor("count.rows").cpu().item<std::int64_t>() == 800);
}

BOOST_AUTO_TEST_CASE(all_tensors_have_a_page_each) {
  const OnPages pages;
  nn::Sequential model{Pair()};
  recorders::ForwardOutput recorder(reducing("sum", {}).all_tensors());
  recorder.attach(model, selectors::names("0"));
  const std::int64_t before = fake::launches();
  for (int i = 0; i < 3; ++i)
    model->forward<std::tuple<at::Tensor, at::Tensor>>(fake::on_device(at::ones({4, 3})));
  BOOST_TEST(fake::launches() == before + 3);  // both in one
  BOOST_TEST(recorder.samples() == 3);
  BOOST_TEST(recorder[0].slot(0).tensor().cpu().item<float>() == 36);
  BOOST_TEST(recorder[0].slot(1).tensor().cpu().item<float>() == 72);
}

BOOST_AUTO_TEST_CASE(work_that_the_device_refuses_is_an_error_and_counts_nothing) {
  const OnPages pages;
  nn::Sequential model{Same()};
  recorders::ForwardOutput recorder(reducing("sum, count"));
  recorder.attach(model, selectors::names("0"));
  const at::Tensor x = fake::on_device(at::ones({4, 3}));
  const auto refused = says({"\"0\" (Same)", "launches nothing"});
  fake::refuse_launches(true);
  BOOST_CHECK_EXCEPTION(model->forward(x), c10::Error, refused);  // the first one
  fake::refuse_launches(false);
  model->forward(x);
  fake::refuse_launches(true);
  BOOST_CHECK_EXCEPTION(model->forward(x), c10::Error, refused);
  BOOST_TEST(recorder.samples() == 1);
  BOOST_CHECK_EXCEPTION((void)recorder[0].results(), c10::Error, says({"launches nothing"}));
  fake::refuse_launches(false);
  model->forward(x);
  BOOST_TEST(recorder.samples() == 2);
  BOOST_TEST(recorder[0].tensor("sum.value").cpu().eq(8).all().item<bool>());
  BOOST_TEST(recorder[0].tensor("count.elements").cpu().item<std::int64_t>() == 24);
}

BOOST_AUTO_TEST_CASE(kernels_are_tried_before_they_are_used) {
  const OnPages pages;
  const std::int64_t before = fake::launches();
  cuda::detail::expect_right_numbers(fake::device(1));
  BOOST_TEST(fake::launches() > before);
  fake::lose_launches(true);
  BOOST_CHECK_EXCEPTION(cuda::detail::expect_right_numbers(fake::device()), c10::Error,
                        says({"enable_fused_kernels", "another", "than the CPU", "not used"}));
  fake::lose_launches(false);
}

BOOST_AUTO_TEST_CASE(what_pages_cannot_take_is_folded_without_them) {
  const OnPages pages;
  nn::Sequential model{Same()};
  recorders::ForwardOutput recorder(reducing("sum"));
  recorder.attach(model, selectors::names("0"));
  model->forward(fake::on_device(at::ones({4, 3})));
  model->forward(fake::on_device(at::ones({4, 3}, at::kInt)));  // of whole numbers
  model->forward(fake::on_device(at::ones({0, 3})));
  model->forward(fake::on_device(at::ones({4, 3})));
  BOOST_TEST(recorder.samples() == 4);
  BOOST_TEST(recorder[0].tensor().cpu().eq(12).all().item<bool>());
  BOOST_TEST(recorder[0].tensor().device() == fake::device());
}

BOOST_AUTO_TEST_SUITE_END()
