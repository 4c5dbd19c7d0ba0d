// Tracers and options: what is kept, passes that throw, and what is left of a trace.
#include <boost/test/unit_test.hpp>

#include <torchtap/hooks/nn.hpp>
#include <torchtap/model/walk.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(tracer)

namespace {

using namespace support;
using torchtap_test::says;
using Names = std::vector<std::string>;

Names kept(const trace::History& history) {
  Names names;
  for (const trace::Node& node : history) {
    if (node.saved()) names.push_back(node.label());
  }
  return names;
}

nn::Sequential small() {
  torch::manual_seed(0);
  return nn::Sequential(nn::Linear(4, 4), nn::ReLU(true), nn::Linear(4, 4), nn::ReLU(true), nn::Linear(4, 2));
}

struct CatchingModelImpl : nn::Module {
  torchtap::nn::Linear fails = register_module("fails", torchtap::nn::Linear(5, 5));
  torchtap::nn::Linear works = register_module("works", torchtap::nn::Linear(4, 4));

  at::Tensor forward(const at::Tensor& x) {
    try {
      return fails->forward(x);
    } catch (const c10::Error&) {
      return works->forward(x);
    }
  }
};
TORCHTAP_MODULE(CatchingModel);

BOOST_AUTO_TEST_CASE(keeps_what_names_patterns_positions_and_predicates_say) {
  auto model = small();
  const auto x = torch::rand({3, 4});
  const auto log = [&](const trace::TraceOptions& options) {
    return trace::log_forward_pass(*model, {x}, options);
  };
  const auto all = log(trace::TraceOptions().save(trace::Save::all));
  const Names everything{"input_1_0", "linear_1_1", "relu_1_2",  "linear_2_3",
                         "relu_2_4",  "linear_3_5", "output_1_6"};
  BOOST_TEST(kept(all) == everything, boost::test_tools::per_element());
  BOOST_TEST(kept(log({})).empty());
  const auto some = [&](const std::vector<std::string>& names, const Names& expected) {
    const auto history = log(trace::TraceOptions().save(names));
    BOOST_TEST(kept(history) == expected, boost::test_tools::per_element());
    for (const auto& label : expected) BOOST_TEST(history[label].tensor().equal(all[label].tensor()), label);
    BOOST_TEST(history.labels() == all.labels(), boost::test_tools::per_element());
  };
  some({"linear_2_3"}, {"linear_2_3"});
  some({"linear_2"}, {"linear_2_3"});
  some({"relu*"}, {"relu_1_2", "relu_2_4"});
  some({"lin"}, {"linear_1_1", "linear_2_3", "linear_3_5"});
  some({"2", "4"}, {"linear_2_3", "linear_3_5"});  // paths of modules come before positions
  some({"-7", "-1"}, {"input_1_0", "output_1_6"});
  some({"input_1", "relu_1"}, {"input_1_0", "relu_1_2"});
  const auto predicate = log(trace::TraceOptions().save([](const trace::Candidate& candidate) {
    return candidate.type == "relu" && candidate.module == "1" && candidate.tensor.dim() == 2;
  }));
  BOOST_TEST(kept(predicate) == (Names{"relu_1_2"}), boost::test_tools::per_element());
  BOOST_CHECK_EXCEPTION(predicate["linear_1"].tensor(), c10::ValueError,
                        says({"linear_1_1", "not kept", "save"}));
}

// They are called under the log's lock, so what they run is not logged, and they cannot end the pass.
BOOST_AUTO_TEST_CASE(predicates_and_transforms_may_run_the_model, *boost::unit_test::timeout(120)) {
  auto model = small();
  const auto x = torch::rand({3, 4});
  const auto plain = trace::log_forward_pass(*model, {x}, trace::TraceOptions().save(trace::Save::all));
  std::unique_ptr<trace::Tracer> tracer;
  int refused = 0;
  const auto asks = [&] {
    model->forward(x);
    refused += torchtap_test::error_of([&] { tracer->finish(); }).empty() ? 0 : 1;
    tracer->stop();  // does nothing, as it may not throw
  };
  tracer =
      std::make_unique<trace::Tracer>(*model, trace::TraceOptions()
                                                  .save([&](const trace::Candidate&) { return asks(), true; })
                                                  .transform([&](const at::Tensor& t) { return asks(), t; }));
  tracer->input(x);
  tracer->run([&] { tracer->output(model->forward(x)); });
  const auto history = tracer->finish();
  BOOST_TEST(history.labels() == plain.labels(), boost::test_tools::per_element());
  BOOST_TEST(kept(history) == kept(plain), boost::test_tools::per_element());
  BOOST_TEST(refused > 0);
}

BOOST_AUTO_TEST_CASE(a_name_that_finds_nothing_is_an_error_and_nothing_is_lost) {
  auto model = small();
  const auto x = torch::rand({3, 4});
  trace::Tracer tracer(*model, trace::TraceOptions().save({"relu_9"}));
  tracer.input(x);
  tracer.run([&] { tracer.output(model->forward(x)); });
  BOOST_CHECK_EXCEPTION(tracer.finish(), c10::IndexError, says({"relu_9", "relu_1_2"}));
  tracer.options().save({"relu_1"});
  BOOST_TEST(kept(tracer.finish()) == (Names{"relu_1_2"}), boost::test_tools::per_element());
  BOOST_CHECK_EXCEPTION(tracer.finish(), c10::ValueError, says({"finish", "already"}));
  BOOST_CHECK_EXCEPTION(tracer.start(), c10::ValueError, says({"start", "new Tracer"}));
}

BOOST_AUTO_TEST_CASE(a_real_dtype_of_complex_tensors_is_an_error) {
  torch::nn::Sequential model(
      torch::nn::Functional([](const at::Tensor& x) { return at::complex(x, x + 1); }));
  const auto x = torch::rand({3});
  const auto all = [] { return trace::TraceOptions().save(trace::Save::all); };
  BOOST_CHECK_EXCEPTION(trace::log_forward_pass(*model, {x}, all().dtype(at::kFloat)), c10::TypeError,
                        says({"complex", "Float", "imaginary", "at::real"}));
  const auto wide = trace::log_forward_pass(*model, {x}, all().dtype(at::kComplexDouble));
  const auto parts =
      trace::log_forward_pass(*model, {x}, all().dtype(at::kDouble).transform([](const at::Tensor& t) {
        return t.is_complex() ? at::imag(t) : t;
      }));
  for (const auto* history : {&wide, &parts}) {
    const at::Tensor kept = (*history)["complex_1"].tensor().to(at::kComplexDouble);
    const at::Tensor wanted = (x + 1).to(at::kComplexDouble);
    BOOST_TEST((history == &wide ? at::imag(kept) : at::real(kept)).equal(at::real(wanted)));
  }
}

BOOST_AUTO_TEST_CASE(transforms_dtypes_and_devices_apply_to_what_is_kept) {
  auto model = small();
  const auto x = torch::rand({3, 4});
  const auto plain = trace::log_forward_pass(*model, {x}, trace::TraceOptions().save(trace::Save::all));
  const auto history = trace::log_forward_pass(
      *model, {x},
      trace::TraceOptions().save(trace::Save::all).dtype(at::kDouble).transform([](const at::Tensor& t) {
        return t.mean(0);
      }));
  for (const auto& node : history) {
    const auto expected = plain[node.position()].tensor().detach().mean(0).to(at::kDouble);
    BOOST_TEST(node.tensor().equal(expected), node.label());
    BOOST_TEST(node.dtype() == at::kFloat);  // of the model's tensor
  }
  // A row shares memory with the tensor, which is overwritten.
  const auto rows = trace::log_forward_pass(
      *model, {x},
      trace::TraceOptions().save(trace::Save::all).transform([](const at::Tensor& t) { return t[0]; }));
  for (const auto& node : rows)
    BOOST_TEST(node.tensor().equal(plain[node.position()].tensor()[0]), node.label());
}

BOOST_AUTO_TEST_CASE(keeps_gradients_of_the_next_backward) {
  auto model = small();
  const auto x = torch::rand({3, 4});
  trace::Tracer tracer(*model, trace::TraceOptions().save(trace::Save::all).gradients(true));
  tracer.input(x);
  at::Tensor y;
  tracer.run([&] { tracer.output(y = model->forward(x)); });
  const auto history = tracer.finish();
  BOOST_TEST(!history["linear_3"].has_gradient());
  BOOST_CHECK_EXCEPTION(history["linear_3"].gradient(), c10::ValueError, says({"gradient", "backward"}));
  y.pow(2).sum().backward();
  BOOST_TEST(history["linear_3"].gradient().equal(2 * y.detach()));
  const auto weights = model->named_parameters();
  const auto expected = torch::mm(2 * y.detach(), weights["4.weight"].detach());
  BOOST_TEST(history["relu_2"].gradient().allclose(expected));
  const auto masked = expected * (history["relu_2"].tensor() > 0);
  BOOST_TEST(history["linear_2"].gradient().allclose(masked));
  BOOST_TEST(weights["4.bias"].grad().allclose((2 * y.detach()).sum(0)));
}

BOOST_AUTO_TEST_CASE(keeps_gradients_of_inputs) {
  auto model = small();
  const auto leaf = torch::rand({3, 4}).requires_grad_();
  const auto middle = (leaf * 2).detach().requires_grad_() * 1;  // an input that has a node of its own
  for (const at::Tensor& x : {leaf, middle}) {
    // Of a graph of its own: from LibTorch 2 on, hooks of tensors run in torch::autograd::grad, too.
    const auto expected = torch::autograd::grad({model->forward(x).pow(2).sum()}, {x})[0];
    const auto uses = x.use_count();
    {
      const auto options = trace::TraceOptions().save(trace::Save::all).gradients(true);
      trace::Tracer tracer(*model, options);
      tracer.input(x, "x");
      at::Tensor y;
      tracer.run([&] { tracer.output(y = model->forward(x)); });
      const auto history = tracer.finish();
      BOOST_TEST(!history["x"].has_gradient());
      y.pow(2).sum().backward({}, /*retain_graph=*/true);
      BOOST_REQUIRE(history["x"].has_gradient());
      BOOST_TEST(history["x"].gradient().allclose(expected));
    }
    BOOST_TEST(x.use_count() == uses);
  }
}

BOOST_AUTO_TEST_CASE(a_memory_budget_drops_or_throws) {
  const auto x = torch::rand({256});  // 1 KiB
  const auto run = [&] { x.exp().sin().cos(); };
  const auto dropped =
      logged(run, trace::TraceOptions().save(trace::Save::all).memory_budget(2100, trace::OverBudget::drop));
  BOOST_TEST(dropped.saved() == 2);
  BOOST_TEST(dropped.dropped() == 2);
  trace::Tracer tracer(trace::TraceOptions().save(trace::Save::all).memory_budget(2100));
  BOOST_CHECK_EXCEPTION(tracer.run(run), c10::Error, says({"1024 bytes", "budget is 2100"}));
  const auto history = tracer.finish();
  BOOST_TEST(history.saved() == 2);
  BOOST_TEST(history.error().find("budget") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_pass_that_throws_leaves_its_log) {
  auto model = nn::Sequential(nn::Linear(4, 4), nn::ReLU(), nn::Linear(5, 2));
  const auto x = torch::rand({3, 4});
  trace::Tracer tracer(*model, trace::TraceOptions().save(trace::Save::all));
  tracer.input(x);
  BOOST_CHECK_THROW(tracer.run([&] { tracer.output(model->forward(x)); }), c10::Error);
  const auto history = tracer.finish();
  BOOST_TEST(history["relu_1"].tensor().defined());
  BOOST_TEST(history.outputs().empty());
  BOOST_TEST(history.error().find("in \"2\"") != std::string::npos, history.error());
  BOOST_TEST(history.error().find("aten::") != std::string::npos, history.error());
  BOOST_TEST(text(history).find("ended early:") != std::string::npos);
  BOOST_TEST(bool(history.validate()));
  BOOST_CHECK_THROW(trace::log_forward_pass(*model, {x}), c10::Error);
}

BOOST_AUTO_TEST_CASE(an_exception_that_the_model_catches_is_no_end) {
  const auto history = logged([] {
    const auto x = torch::ones({2, 3});
    try {
      torch::mm(x, x);
    } catch (const c10::Error&) {
    }
    x.exp();
  });
  BOOST_TEST(history.error() == "");
  BOOST_TEST(history.labels() == (Names{"ones_1_0", "exp_1_1"}), boost::test_tools::per_element());
}

// The call of `fails` never returns; what follows is not inside of it.
BOOST_AUTO_TEST_CASE(a_call_that_throws_is_around_none_that_come_later) {
  CatchingModel model;
  const auto history = trace::log_forward_pass(*model, {torch::rand({3, 4})});
  std::vector<std::string> path;
  for (const auto& call : history["linear_1"].modules()) path.push_back(call.path);
  BOOST_TEST(path == Names{"works"}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(goes_on_after_a_stop) {
  trace::Tracer tracer;
  const auto x = torch::ones({2});
  at::Tensor y;
  tracer.run([&] { y = x.exp(); });
  y.sin();  // not seen
  tracer.start();
  BOOST_CHECK_EXCEPTION(tracer.start(), c10::ValueError, says({"start", "stop()"}));
  y.cos();
  tracer.stop();
  tracer.stop();
  const auto history = tracer.finish();
  BOOST_TEST(history.labels() == (Names{"outside_1_0", "exp_1_1", "cos_1_2"}),
             boost::test_tools::per_element());
  BOOST_TEST(labels(history["cos_1"].parents()) == (Names{"exp_1_1"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(results_gradients_and_statistics_are_the_same_bits) {
  const auto x = torch::rand({2, 3, 64, 64});
  const auto run = [&](bool traced) {
    torch::manual_seed(1);
    ResNet model;
    at::Tensor y;
    if (traced) {
      trace::Tracer tracer(*model, trace::TraceOptions().save(trace::Save::all).gradients(true).source(true));
      tracer.run([&] {
        y = model->forward(x);
        y.pow(2).sum().backward();
      });
      tracer.finish();
    } else {
      y = model->forward(x);
      y.pow(2).sum().backward();
    }
    std::vector<at::Tensor> all{y, torch::rand({3})};
    for (const auto& parameter : model->parameters()) all.push_back(parameter.grad());
    for (const auto& buffer : model->buffers()) all.push_back(buffer);
    return all;
  };
  const auto plain = run(false), traced = run(true);
  BOOST_REQUIRE(plain.size() == traced.size());
  for (std::size_t i = 0; i < plain.size(); ++i) BOOST_TEST(plain[i].equal(traced[i]), "value " << i);
}

BOOST_AUTO_TEST_CASE(nothing_is_left_of_a_trace) {
  auto model = small();
  const auto x = torch::rand({3, 4});
  const auto uses = x.use_count();
  const auto weight = model->parameters()[0];
  const auto weight_uses = weight.use_count();
  {
    auto history = trace::log_forward_pass(*model, {x}, trace::TraceOptions().save(trace::Save::all));
    BOOST_TEST(history.saved() == 7);
    int calls = 0;
    model->forward(x);
    for (const auto& node : history) calls += node.kind() == trace::NodeKind::operation ? 1 : 0;
    BOOST_TEST(calls == 5);  // the second forward is not in it
  }
  BOOST_TEST(x.use_count() == uses);
  BOOST_TEST(weight.use_count() == weight_uses);
  BOOST_TEST(x.grad_fn() == nullptr);
  auto script = torch::jit::Module("m");
  script.define("def forward(self, x):\n    return torch.tanh(x) + 1\n");
  const auto before = script.get_method("forward").graph()->toString();
  trace::log_forward_pass(script, {x});
  BOOST_TEST(script.get_method("forward").graph()->toString() == before);
}

BOOST_AUTO_TEST_CASE(says_which_modules_could_not_be_hooked) {
  torch::manual_seed(0);
  ResNet model;
  model->eval();
  const auto history = trace::log_forward_pass(*model, {torch::rand({1, 3, 64, 64})});
  const auto& missing = history.unreached_modules();
  BOOST_TEST((std::find(missing.begin(), missing.end(), "conv") != missing.end()));
  BOOST_TEST(text(history).find("not hooked:") != std::string::npos);
  BOOST_TEST(history["blocks.0"].type() == "relu");
  for (const auto& node : history) BOOST_TEST(node.passes() == 1, node.label());
  BOOST_TEST(history.operations() == 1 + 1 + 1 + 1 + 4 * 7 + 2 * 9 + 3);
}

BOOST_AUTO_TEST_CASE(a_forward_of_another_arity_is_an_error) {
  auto model = small();
  BOOST_CHECK_EXCEPTION(trace::log_forward_pass(*model->ptr<nn::LinearImpl>(0), {}), c10::ValueError,
                        says({"log_forward_pass", "0 tensors", "Tracer"}));
}

BOOST_AUTO_TEST_CASE(modules_that_are_called_several_times_have_passes) {
  torch::manual_seed(0);
  auto cell = nn::Sequential(nn::Linear(3, 3), nn::Tanh());
  const auto x = torch::rand({2, 3});
  trace::Tracer tracer(*cell, trace::TraceOptions().save(trace::Save::all));
  tracer.input(x);
  tracer.run([&] {
    auto h = x;
    for (int i = 0; i < 4; ++i) h = cell->forward(h);
    tracer.output(h);
  });
  const auto history = tracer.finish();
  BOOST_TEST(
      history.labels() == (Names{"input_1_0", "linear_1_1:1", "tanh_1_2:1", "linear_1_1:2", "tanh_1_2:2",
                                 "linear_1_1:3", "tanh_1_2:3", "linear_1_1:4", "tanh_1_2:4", "output_1_3"}),
      boost::test_tools::per_element());
  BOOST_TEST(history["linear_1:3"].pass() == 3);
  BOOST_TEST(history.layers() == 4);
  BOOST_TEST(text(history).find("recurrent, a layer has up to 4 passes") != std::string::npos);
  BOOST_TEST(text(history["linear_1:3"]).find("pass 3 of 4") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
