// Samples that wait are added up in few launches, and never with other values than they had.
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/torchtap.hpp>

#include "on_pages.hpp"
#include "tests/support.hpp"

using namespace torchtap;
using namespace torchtap_test;
namespace nn = torch::nn;

namespace {

constexpr int kModules = 60;  // more than a launch has entries

/// Gives its input through all of its modules.
struct ManyImpl : nn::Module {
  ManyImpl() {
    for (int i = 0; i < kModules; ++i) all.push_back(register_module("same" + std::to_string(i), Same()));
  }
  at::Tensor forward(at::Tensor x) {
    for (int i = 0; i < kModules; ++i) {
      if (i == changed) {
        const at::Tensor y =
            all[static_cast<std::size_t>(i)]->forward(fake::on_device(at::full_like(x, 5, at::kCPU)));
        y.fill_(-1000);
      } else {
        all[static_cast<std::size_t>(i)]->forward(x);
      }
    }
    return x;
  }

  std::vector<Same> all;
  int changed = -1;
};
TORCHTAP_MODULE(Many);

/// No hook reaches it, only its modules.
struct UnreachedImpl : ManyImpl {};
TORCH_MODULE(Unreached);

recorders::RecorderOptions with(const std::string& text, std::int64_t bytes) {
  return recorders::RecorderOptions()
      .reduction(reductions::parse(text, reductions::ParseOptions().over({0})))
      .defer(bytes);
}

std::int64_t launches_of(Many& model, const at::Tensor& x) {
  const std::int64_t before = fake::launches();
  model->forward(x);
  return fake::launches() - before;
}

void check_all(recorders::Recorder& recorder, const std::string& text, const std::vector<at::Tensor>& seen) {
  auto on_cpu = reductions::parse(text, reductions::ParseOptions().over({0}));
  for (const auto& sample : seen) on_cpu.update(sample.to(at::kDouble));
  const auto want = on_cpu.results();
  for (const auto& subrecorder : recorder) {
    BOOST_TEST(subrecorder.samples() == static_cast<std::int64_t>(seen.size()));
    for (const auto& [name, tensor] : subrecorder.results()) {
      const at::Tensor here = tensor.cpu();
      BOOST_TEST(close(here, want.at(name).to(here.scalar_type()), 1e-6), name);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_deferred)

BOOST_AUTO_TEST_CASE(a_forward_takes_two_launches) {
  const OnPages pages;
  const char* const text = "moments, min, max, count";
  Many model;
  recorders::ForwardOutput recorder(with(text, 1 << 20));
  recorder.attach(model, selectors::types<SameImpl>());
  std::vector<at::Tensor> seen;
  for (int i = 0; i < 4; ++i) {
    seen.push_back(at::randn({30, 5}));
    const auto launches = launches_of(model, fake::on_device(seen.back()));
    BOOST_TEST(launches == (i == 0 ? kModules : 2), "forward " << i << ": " << launches);
  }
  check_all(recorder, text, seen);
}

BOOST_AUTO_TEST_CASE(kernels_may_be_enabled_after_a_recorder_was_attached) {
  Many model;
  recorders::ForwardOutput late(with("sum", 1 << 20));
  late.attach(model, selectors::types<SameImpl>());
  recorders::ForwardOutput paired(
      recorders::RecorderOptions()
          .reduction(reductions::where("mask", reductions::Sum(reductions::SumOptions().over({0}))))
          .with("mask", recorders::output("/same0").map(
                            [](const at::Tensor& x) { return x.cpu().select(1, 0) > 0; })));
  paired.attach(model, selectors::names("same1"));
  const OnPages pages;
  const at::Tensor x = at::randn({30, 5});
  for (int i = 0; i < 3; ++i) {
    const auto launches = launches_of(model, fake::on_device(x));
    BOOST_TEST(launches == (i == 0 ? kModules : 2) + 1, "forward " << i << ": " << launches);
  }
  check_all(late, "sum", {x, x, x});
  const at::Tensor chosen = x.index({x.select(1, 0) > 0}).to(at::kDouble).sum(0) * 3;
  BOOST_TEST(close(paired[0].tensor("value").cpu().to(at::kDouble), chosen, 1e-6));
}

BOOST_AUTO_TEST_CASE(no_more_bytes_wait_than_may) {
  const OnPages pages;
  Many model;
  const std::int64_t bytes = 30 * 5 * 4;
  recorders::ForwardOutput recorder(with("sum", 10 * bytes)), none(with("sum", 0)), one(with("sum", 1));
  std::vector<at::Tensor> seen;
  for (auto* each : {&recorder, &none, &one}) {
    each->attach(model, selectors::types<SameImpl>());
    seen.clear();
    for (int i = 0; i < 2; ++i) {
      seen.push_back(at::randn({30, 5}));
      const auto launches = launches_of(model, fake::on_device(seen.back()));
      if (i == 1) BOOST_TEST(launches == (each == &recorder ? (kModules + 10) / 11 : kModules));
    }
    check_all(*each, "sum", seen);
    each->detach();
  }
}

BOOST_AUTO_TEST_CASE(they_are_added_before_anything_is_read) {
  const OnPages pages;
  nn::Sequential model{Same(), Same()};  // whose end no one sees
  recorders::ForwardOutput recorder(with("sum", 1 << 20));
  recorder.attach(model, selectors::types<SameImpl>());
  const at::Tensor x = fake::on_device(at::ones({4, 3}));
  model->forward(x);
  const std::int64_t before = fake::launches();
  for (int i = 0; i < 3; ++i) model->forward(x);
  BOOST_TEST(fake::launches() == before);
  BOOST_TEST(recorder[0].tensor().cpu().eq(16).all().item<bool>());
  BOOST_TEST(recorder[1].tensor().cpu().eq(16).all().item<bool>());
  model->forward(x);
  recorder.reset();
  model->forward(x);
  BOOST_TEST(recorder[0].tensor().cpu().eq(4).all().item<bool>());
  BOOST_TEST(recorder[0].samples() == 1);
}

BOOST_AUTO_TEST_CASE(what_is_changed_in_the_first_forward_is_not_deferred) {
  const OnPages pages;
  Many model;
  model->changed = 7;
  recorders::ForwardOutput recorder(with("sum", 1 << 20));
  recorder.attach(model, selectors::types<SameImpl>());
  for (int i = 0; i < 4; ++i) model->forward(fake::on_device(at::ones({4, 3})));
  BOOST_TEST(recorder.at("same7").samples() == 4);
  BOOST_TEST(recorder.at("same7").left_out() == 0);
  BOOST_TEST(recorder.at("same7").tensor().cpu().eq(80).all().item<bool>());
  BOOST_TEST(recorder.at("same8").tensor().cpu().eq(16).all().item<bool>());
}

BOOST_AUTO_TEST_CASE(what_is_changed_later_is_left_out_and_said) {
  const OnPages pages;
  Many model;
  recorders::ForwardOutput recorder(with("sum", 1 << 20));
  recorder.attach(model, selectors::types<SameImpl>());
  for (int i = 0; i < 2; ++i) model->forward(fake::on_device(at::ones({4, 3})));
  model->changed = 7;
  for (int i = 0; i < 2; ++i) model->forward(fake::on_device(at::ones({4, 3})));
  BOOST_TEST(recorder.at("same7").left_out() == 1);  // the second one did not wait any more
  BOOST_TEST(recorder.at("same7").samples() == 3);
  BOOST_TEST(recorder.at("same7").events() == 4);
  BOOST_TEST(recorder.at("same7").note().find("changed it in place") != std::string::npos);
  BOOST_TEST(recorder.at("same7").tensor().cpu().eq(4 + 4 + 20).all().item<bool>());
  BOOST_TEST(recorder.at("same6").tensor().cpu().eq(16).all().item<bool>());
  BOOST_TEST(recorder.at("same6").left_out() == 0);
  model->forward(fake::on_device(at::ones({4, 3})));
  BOOST_TEST(recorder.at("same7").samples() == 4);
}

BOOST_AUTO_TEST_CASE(what_the_device_refuses_is_left_out_and_said) {
  const OnPages pages;
  Many model;
  recorders::ForwardOutput recorder(with("sum", 1 << 20));
  recorder.attach(model, selectors::types<SameImpl>());
  const at::Tensor x = fake::on_device(at::ones({4, 3}));
  model->forward(x);
  fake::refuse_launches(true);
  model->forward(x);
  fake::refuse_launches(false);
  model->forward(x);
  for (const auto& subrecorder : recorder) {
    BOOST_TEST(subrecorder.samples() == 2);
    BOOST_TEST(subrecorder.left_out() == 1);
    BOOST_TEST(subrecorder.note().find("refused") != std::string::npos, subrecorder.note());
    BOOST_TEST(subrecorder.tensor().cpu().eq(8).all().item<bool>());
  }
}

BOOST_AUTO_TEST_CASE(inference_tensors_do_not_wait) {
  const OnPages pages;
  const c10::InferenceMode inference;
  Many model;
  recorders::ForwardOutput recorder(with("sum", 1 << 20));
  recorder.attach(model, selectors::types<SameImpl>());
  std::vector<at::Tensor> seen;
  for (int i = 0; i < 3; ++i) {
    seen.push_back(at::ones({4, 3}));
    BOOST_TEST(launches_of(model, fake::on_device(seen.back())) == kModules);
  }
  check_all(recorder, "sum", seen);
}

BOOST_AUTO_TEST_CASE(a_graph_has_two_launches) {
  const OnPages pages;
  const char* const text = "moments, min, max, count";
  Many model;
  recorders::ForwardOutput recorder(with(text, 1 << 20));
  recorder.attach(model, selectors::types<SameImpl>());
  std::vector<at::Tensor> seen;
  const at::Tensor input = fake::on_device(at::zeros({30, 5}));
  const auto next = [&] {
    seen.push_back(at::randn({30, 5}) * 3);
    input.copy_(seen.back());
  };
  for (int i = 0; i < 2; ++i) {
    next();
    model->forward(input);
  }
  fake::begin_capture();
  BOOST_TEST(launches_of(model, input) == 2);
  const fake::Graph graph = fake::end_capture();
  BOOST_TEST(graph.jobs.size() == 2u);
  for (int i = 0; i < 5; ++i) {
    next();
    fake::replay(graph);
  }
  next();
  model->forward(input);
  check_all(recorder, text, seen);
}

BOOST_AUTO_TEST_CASE(a_graph_of_a_sequential_has_a_launch_for_each_module) {
  const OnPages pages;
  nn::Sequential model{Same(), Same()};
  recorders::ForwardOutput recorder(with("sum", 1 << 20));
  recorder.attach(model, selectors::types<SameImpl>());
  const at::Tensor input = fake::on_device(at::ones({4, 3}));
  for (int i = 0; i < 2; ++i) model->forward(input);
  fake::begin_capture();
  const std::int64_t before = fake::launches();
  model->forward(input);
  BOOST_TEST(fake::launches() - before == 2);
  const fake::Graph graph = fake::end_capture();
  BOOST_TEST(recorder.samples() == 4);  // one of each still waited when the capture began
  for (int i = 0; i < 3; ++i) fake::replay(graph);
  BOOST_TEST(recorder[0].samples() == 5);
  BOOST_TEST(recorder[0].tensor().cpu().eq(20).all().item<bool>());
}

BOOST_AUTO_TEST_CASE(without_a_hook_on_the_root_they_wait_for_a_reader) {
  const OnPages pages;
  Unreached model;
  recorders::ForwardOutput recorder(with("sum", 1 << 20));
  recorder.attach(*model, selectors::types<SameImpl>());
  const at::Tensor input = fake::on_device(at::ones({4, 3}));
  model->forward(input);
  const std::int64_t before = fake::launches();
  for (int i = 0; i < 3; ++i) model->forward(input);
  BOOST_TEST(fake::launches() == before);
  BOOST_TEST(recorder[0].tensor().cpu().eq(16).all().item<bool>());
  const std::int64_t captured = fake::launches();
  fake::begin_capture();
  model->forward(input);
  const fake::Graph graph = fake::end_capture();
  BOOST_TEST(fake::launches() == captured + kModules);
  fake::replay(graph);
  BOOST_TEST(recorder[kModules - 1].samples() == 5);
  BOOST_TEST(recorder[kModules - 1].tensor().cpu().eq(20).all().item<bool>());
}

BOOST_AUTO_TEST_CASE(a_negative_number_of_bytes_is_an_error) {
  BOOST_CHECK_EXCEPTION(recorders::RecorderOptions().defer(-1), c10::ValueError, says({"defer", "-1"}));
}

BOOST_AUTO_TEST_SUITE_END()
