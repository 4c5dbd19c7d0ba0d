// Recorders of the rows that a mask chooses: a device adds them up without waiting, also in graphs.
#include <thread>

#include <torchtap/reductions/reductions.hpp>
#include <torchtap/torchtap.hpp>

#include "../page_cases.hpp"
#include "on_pages.hpp"
#include "tests/support.hpp"

using namespace torchtap;
using namespace torchtap_test;
namespace nn = torch::nn;

BOOST_AUTO_TEST_SUITE(cuda_masks)

BOOST_AUTO_TEST_CASE(results_are_those_of_the_cpu) {
  const OnPages pages;
  at::manual_seed(3);
  for (const MaskCase& one : kMaskCases) {
    for (const auto& text : kMaskedReductions) {
      for (const bool mask_there : {true, false}) {
        BOOST_TEST_CONTEXT(one.name << ", " << text << ", mask there: " << mask_there) {
          nn::Sequential model{Same()};
          recorders::ForwardOutput recorder(chosen(text, one.over));
          recorder.attach(model, selectors::names("0"));
          reductions::Any on_cpu = reductions::where("mask", parsed(text, one.over));
          const std::int64_t before = fake::launches();
          for (int i = 0; i < 5; ++i) {
            const auto [x, mask] = one.batch(i);
            const core::Context named("mask", mask_there ? fake::on_device(mask) : mask);
            model->forward(fake::on_device(x));
            feed(on_cpu, x, mask);
          }
          BOOST_TEST(fake::launches() == before + 5);
          BOOST_TEST(recorder[0].samples() == 5);
          check_same(recorder[0].results(), on_cpu.results());
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(half_precision_is_read_as_it_is) {
  const OnPages pages;
  at::manual_seed(5);
  nn::Sequential model{Same()};
  recorders::ForwardOutput recorder(chosen("moments, min, max", {0}));
  recorder.attach(model, selectors::names("0"));
  reductions::Any on_cpu = reductions::where("mask", parsed("moments, min, max", {0}));
  for (int i = 0; i < 3; ++i) {
    const at::Tensor mask = at::rand({8, 70}).lt(0.5), x = at::randn({8, 70, 40}).to(at::kBFloat16);
    const core::Context named("mask", fake::on_device(mask));
    model->forward(fake::on_device(x));
    feed(on_cpu, x, mask);
  }
  check_same(recorder[0].results(), on_cpu.results());
}

BOOST_AUTO_TEST_CASE(nothing_waits_for_the_device) {
  const OnPages pages;
  nn::Sequential model{Same()};
  recorders::ForwardOutput recorder(chosen("moments, min, max, count", {0}).defer(1 << 20));
  recorder.attach(model, selectors::names("0"));
  const at::Tensor x = fake::on_device(at::randn({50, 4})), mask = fake::on_device(at::rand({50}).lt(0.5));
  const core::Context named("mask", mask);
  model->forward(x);
  fake::run();
  const auto before = fake::counters();
  for (int i = 0; i < 3; ++i) model->forward(x);
  BOOST_TEST(fake::counters().synchronizations == before.synchronizations);
  BOOST_TEST(recorder[0].samples() == 4);
}

/// A sample whose mask might change does not wait.
BOOST_AUTO_TEST_CASE(a_deferred_recorder_reads_the_mask_of_the_forward) {
  const OnPages pages;
  nn::Sequential model{Same()};
  recorders::ForwardOutput recorder(chosen("sum", {0}).defer(1 << 20));
  recorder.attach(model, selectors::names("0"));
  const at::Tensor x = fake::on_device(at::ones({5, 2})), mask = fake::on_device(at::arange(5).gt(0));
  const core::Context named("mask", mask);
  struct Outer : nn::Module {
    Outer(nn::Sequential inner, at::Tensor of)
        : inner_(register_module("inner", inner)), mask_(std::move(of)) {}
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = inner_->forward(x);
      mask_.zero_();
      return y;
    }
    nn::Sequential inner_;
    at::Tensor mask_;
  };
  for (int i = 0; i < 3; ++i) {
    mask.copy_(at::arange(5).gt(i));
    Outer(model, mask).forward(x);
  }
  BOOST_TEST(recorder[0].left_out() == 0);
  BOOST_TEST(recorder[0].tensor("value").cpu().equal(at::full({2}, 4.0F + 3 + 2)));
  BOOST_TEST(recorder[0].tensor("mask.left_out").cpu().item<std::int64_t>() == 1 + 2 + 3);
}

BOOST_AUTO_TEST_CASE(replays_read_the_mask_of_their_time) {
  const OnPages pages;
  at::manual_seed(6);
  for (const auto& text : kMaskedReductions) {
    for (const auto& over : {std::vector<std::int64_t>{0}, std::vector<std::int64_t>{}}) {
      BOOST_TEST_CONTEXT(text << ", " << over) {
        nn::Sequential model{Same()};
        recorders::ForwardOutput recorder(chosen(text, over));
        recorder.attach(model, selectors::names("0"));
        reductions::Any on_cpu = reductions::where("mask", parsed(text, over));
        const at::Tensor input = fake::on_device(at::zeros({20, 60, 35})),
                         mask = fake::on_device(at::zeros({20, 60}, at::kBool));
        const auto next = [&](int i) {
          const at::Tensor now = at::rand({20, 60}).lt(i % 7 == 3 ? 0 : 0.5), x = at::randn({20, 60, 35});
          mask.copy_(now);
          input.copy_(spoiled(x, now));
          feed(on_cpu, x, now);
        };
        const core::Context named("mask", mask);
        next(0);
        model->forward(input);
        fake::begin_capture();
        model->forward(input);
        const fake::Graph graph = fake::end_capture();
        for (int i = 1; i < 12; ++i) {
          next(i);
          fake::replay(graph);
        }
        next(0);
        model->forward(input);
        BOOST_TEST(recorder.samples() == 13);
        check_same(recorder[0].results(), on_cpu.results());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(what_pages_do_not_serve_is_chosen_as_before) {
  const OnPages pages;
  at::manual_seed(7);
  using reductions::Any;
  const std::vector<Any> all{
      reductions::where("mask", parsed("ema:0.5", {0})),  // weights follow the chosen rows
      reductions::where("mask", parsed("quantiles", {0})),
      reductions::where("mask", reductions::where("other", parsed("sum", {0}))),
      reductions::Series(reductions::where("mask", parsed("sum", {0})), parsed("mean", {0})),
      reductions::Series(parsed("mean", {0}), reductions::where("mask", parsed("sum", {0}))),
      reductions::by("key", reductions::where("mask", parsed("sum", {0})))};
  for (const Any& one : all) {
    BOOST_TEST_CONTEXT(one.describe()) {
      nn::Sequential model{Same()};
      recorders::ForwardOutput recorder{one};
      recorder.attach(model, selectors::names("0"));
      Any on_cpu = one;
      const std::int64_t before = fake::launches();
      const auto there = [](core::Context::Names names) {
        for (auto& name : names) name.second = fake::on_device(name.second);
        return names;
      };
      const auto forward = [&](const at::Tensor& x, const core::Context::Names& names) {
        const core::Context named(names);
        model->forward(x);
      };
      const auto names = [&](std::int64_t rows) {
        return core::Context::Names{{"mask", at::rand({rows}).lt(0.5)},
                                    {"other", at::rand({rows}).lt(0.5)},
                                    {"key", at::randint(3, {rows}, at::kLong)}};
      };
      for (int i = 0; i < 4; ++i) {
        const at::Tensor x = at::randn({40, 3});
        const auto now = names(40);
        forward(fake::on_device(x), there(now));
        const core::Context named(now);
        on_cpu.update(x);
      }
      BOOST_TEST(fake::launches() == before);
      for (const auto& [name, tensor] : on_cpu.results())
        BOOST_TEST(close(recorder[0].tensor(name).cpu(), tensor, 1e-6), name);
      const auto now = there(names(40));
      const at::Tensor x = fake::on_device(at::randn({40, 3}));
      fake::begin_capture();
      BOOST_CHECK_EXCEPTION(forward(x, now), c10::NotImplementedError,
                            says({"\"0\" (Same)", "captures a graph"}));
      fake::end_capture();
      BOOST_TEST(recorder[0].samples() == 4);
    }
  }
}

BOOST_AUTO_TEST_CASE(what_pages_do_not_serve_is_not_kept) {
  const OnPages pages;
  nn::Sequential model{Same()};
  recorders::ForwardOutput recorder(chosen("sum", {0}));
  recorder.attach(model, selectors::names("0"));
  const at::Tensor x = fake::on_device(at::ones({5, 2}, at::kLong)),
                   mask = fake::on_device(at::arange(5).gt(1));
  const auto uses = x.use_count(), of_mask = mask.use_count();
  {
    const core::Context named("mask", mask);
    model->forward(x);
  }
  BOOST_TEST(x.use_count() == uses);
  BOOST_TEST(mask.use_count() == of_mask);
  BOOST_TEST(recorder[0].tensor("value").cpu().equal(at::full({2}, 3, at::kLong)));
}

BOOST_AUTO_TEST_CASE(threads_name_masks_of_their_own) {
  const OnPages pages;
  nn::Sequential model{Same()};
  recorders::ForwardOutput recorder(chosen("sum, count", {0}));
  recorder.attach(model, selectors::names("0"));
  const at::Tensor x = fake::on_device(at::ones({8, 3}));
  std::vector<at::Tensor> masks;
  for (int t = 0; t < 4; ++t) masks.push_back(fake::on_device(at::arange(8).lt(t)));
  std::vector<std::thread> threads;
  for (const at::Tensor& mask : masks) {
    threads.emplace_back([&] {
      const core::Context named("mask", mask);
      for (int i = 0; i < 50; ++i) model->forward(x);
    });
  }
  for (auto& thread : threads) thread.join();
  BOOST_TEST(recorder.samples() == 200);
  BOOST_TEST(recorder[0].tensor("sum.value").cpu().equal(at::full({3}, 50.0F * (0 + 1 + 2 + 3))));
  BOOST_TEST(recorder[0].tensor("mask.left_out").cpu().item<std::int64_t>() == 50 * (8 + 7 + 6 + 5));
}

BOOST_AUTO_TEST_CASE(errors_name_what_is_wrong_and_count_nothing) {
  const OnPages pages;
  nn::Sequential model{Same()};
  recorders::ForwardOutput recorder(chosen("sum", {0}));
  recorder.attach(model, selectors::names("0"));
  const at::Tensor x = fake::on_device(at::ones({5, 2})), mask = at::arange(5).gt(1),
                   there = fake::on_device(mask);
  const auto forward = [&](const at::Tensor& named) {
    const core::Context context("mask", named);
    model->forward(x);
  };
  BOOST_CHECK_EXCEPTION(model->forward(x), c10::ValueError,
                        says({"\"0\" (Same)", "nothing is called \"mask\""}));
  BOOST_CHECK_EXCEPTION(forward(fake::on_device(mask.to(at::kByte))), c10::TypeError,
                        says({"\"0\" (Same)", "has dtype Byte", "to(torch::kBool)"}));
  BOOST_CHECK_EXCEPTION(forward(fake::on_device(mask.slice(0, 1))), c10::ValueError,
                        says({"\"mask\" has shape [4] and the sample [5, 2]"}));
  BOOST_CHECK_EXCEPTION(forward(fake::on_device(mask, 1)), c10::ValueError,
                        says({"is on", ":1 and the sample on"}));
  BOOST_TEST(recorder.samples() == 0);
  forward(there);
  fake::begin_capture();
  BOOST_CHECK_EXCEPTION(forward(mask), c10::NotImplementedError,
                        says({"\"0\" (Same)", "\"mask\" on the CPU", "name a mask on"}));
  fake::end_capture();
  BOOST_TEST(recorder.samples() == 1);
  BOOST_TEST(recorder[0].tensor("value").cpu().equal(at::full({2}, 3.0F)));
  BOOST_TEST(recorder[0].tensor("mask.left_out").cpu().item<std::int64_t>() == 2);
}

BOOST_AUTO_TEST_CASE(a_name_that_is_taken_is_an_error_of_the_first_sample) {
  const OnPages pages;
  nn::Sequential model{Same()};
  struct LeftOut : reductions::Sum {
    LeftOut() : Sum(reductions::SumOptions().over({0})) {}
    core::Results results() const { return {{"mask.left_out", value()}}; }
  };
  recorders::ForwardOutput recorder(
      recorders::RecorderOptions().reduction(reductions::where("mask", LeftOut())));
  recorder.attach(model, selectors::names("0"));
  const core::Context named("mask", fake::on_device(at::ones({4}, at::kBool)));
  BOOST_CHECK_EXCEPTION(model->forward(fake::on_device(at::ones({4, 2}))), c10::ValueError,
                        says({"\"0\" (Same)", "\"mask.left_out\" is a result of", "use another name"}));
  BOOST_TEST(recorder.samples() == 0);
}

BOOST_AUTO_TEST_CASE(samples_of_no_chosen_row_are_counted_and_saved) {
  const OnPages pages;
  const TemporaryDirectory folder;
  nn::Sequential model{Same()};
  recorders::ForwardOutput recorder(chosen("moments", {0}));
  recorder.attach(model, selectors::names("0"));
  const at::Tensor x = fake::on_device(at::randn({5, 2}));
  const core::Context named("mask", fake::on_device(at::zeros({5}, at::kBool)));
  for (int i = 0; i < 3; ++i) model->forward(x);
  BOOST_TEST(recorder[0].samples() == 3);
  BOOST_TEST(recorder[0].results().names() == std::vector<std::string>{"mask.left_out"},
             boost::test_tools::per_element());
  recorder.save(folder / "saved", storage::SaveOptions().mkdir(true));
  const auto saved = storage::load(folder / "saved");
  BOOST_TEST(saved.at("0").tensor().item<std::int64_t>() == 15);
  recorder.reset();
  {
    const core::Context all("mask", fake::on_device(at::ones({5}, at::kBool)));
    model->forward(x);
  }
  model->forward(x);
  BOOST_TEST(recorder[0].samples() == 2);
  BOOST_TEST(recorder[0].tensor("mask.left_out").cpu().item<std::int64_t>() == 5);
  BOOST_TEST(close(recorder[0].tensor("mean").cpu(), x.cpu().to(at::kDouble).mean(0), 1e-10));
}

BOOST_AUTO_TEST_SUITE_END()
