// Replay: every operation gives the same bits again, and an altered tensor is found at its writer and
// readers.
#include <boost/test/unit_test.hpp>

#include <torchtap/views/trace/detail/graph.hpp>
#include <torchtap/views/trace/detail/logged_pass.hpp>

#include "support.hpp"
#include "tests/convolves.hpp"

BOOST_AUTO_TEST_SUITE(validation)

namespace {

using namespace support;
using torchtap_test::says;
using Names = std::vector<std::string>;

void check(const trace::History& history, const std::string& what) {
  const auto validation = history.validate();
  BOOST_TEST(bool(validation), what << ": " << text(validation));
  BOOST_TEST(validation.confirmed > 0, what);
}

struct Cube : torch::autograd::Function<Cube> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0] * 3 * context->get_saved_variables()[0].square()};
  }
};

template <class Model, class Function>
trace::History pass(Model& model, const at::Tensor& x, Function&& function) {
  trace::Tracer tracer(*model, trace::TraceOptions().save(trace::Save::all));
  tracer.input(x);
  tracer.run([&] { function(model->forward(x)); });
  return tracer.finish();
}

BOOST_AUTO_TEST_CASE(models_in_train_and_eval_with_backward_and_inference) {
  torch::manual_seed(0);
  ResNet model;
  const auto x = torch::rand({2, 3, 64, 64});
  const auto nothing = [](const at::Tensor&) {};
  check(pass(model, x, nothing), "train");
  const auto with_backward = pass(model, x, [](const at::Tensor& y) { y.sum().backward(); });
  BOOST_TEST(with_backward.operations() > 80);
  check(with_backward, "train with backward");
  model->eval();
  check(pass(model, x, nothing), "eval");
  const c10::InferenceMode mode;
  check(pass(model, x, nothing), "inference mode");
}

BOOST_AUTO_TEST_CASE(recurrent_nets_and_transformers_with_dropout_and_autocast) {
  torch::manual_seed(0);
  nn::LSTM lstm(nn::LSTMOptions(4, 5).num_layers(2).dropout(0.3));
  trace::Tracer tracer(*lstm, trace::TraceOptions().save(trace::Save::all));
  tracer.run([&] { lstm->forward(torch::rand({7, 2, 4})); });
  const auto history = tracer.finish();
  check(history, "LSTM");
  BOOST_TEST(history.validate().random >= 2);
  nn::TransformerEncoderLayer layer(nn::TransformerEncoderLayerOptions(16, 4).dropout(0.1));
  const auto transformer = [&] {
    trace::Tracer traced(*layer, trace::TraceOptions().save(trace::Save::all));
    traced.run([&] { layer->forward(torch::rand({7, 2, 16})); });
    return traced.finish();
  };
  check(transformer(), "transformer in train");
  if (!torchtap_test::convolves(at::kBFloat16)) return;
  const auto cast = [&] {
    const Autocast autocast;
    return transformer();
  }();
  check(cast, "with autocast");
  bool half = false;
  for (const auto& node : cast) half = half || node.dtype() == at::kBFloat16;
  BOOST_TEST(half);
}

BOOST_AUTO_TEST_CASE(odd_operations) {
  torch::manual_seed(0);
  check(logged([] {
          auto z = torch::zeros({4});
          z.select(0, 1).fill_(2);
          auto y = z + 1;
          y.random_(10);
          y.normal_();
          torch::randperm(5);
          torch::multinomial(torch::ones({4}), 2);
          torch::empty({3});
          z.resize_({2});
          torch::rrelu(torch::randn({5}), 0.1, 0.3, true);
          y.index_put_({torch::zeros({1}, at::kLong)}, 1.0);
          torch::max(y, 0);
          torch::bernoulli(torch::full({9}, 0.5));
          torch::normal(0.0, 1.0, {3});
          torch::manual_seed(7);  // by the program, between two operations
          torch::rand({3});
          auto w = torch::rand({2}).requires_grad_();
          Cube::apply(w).sum().backward();
          torch::zeros({3}) * torch::rand({3});
          torch::where(torch::ones({2}, at::kBool), torch::rand({2}), torch::rand({2}));
        }),
        "odd operations");
}

BOOST_AUTO_TEST_CASE(the_generator_is_as_before) {
  torch::manual_seed(5);
  const auto history = logged([] { torch::rand({100}); });
  torch::manual_seed(6);
  const auto expected = torch::rand({4});
  torch::manual_seed(6);
  history.validate();
  BOOST_TEST(torch::rand({4}).equal(expected));
}

BOOST_AUTO_TEST_CASE(an_altered_tensor_is_found_at_its_writer_and_its_readers) {
  const auto x = torch::rand({50});
  const auto history = logged([&] {
    auto y = x.exp();  // kept as a copy, since it is overwritten
    auto a = y.sin();
    auto b = y.cos();
    y.mul_(2);
    auto c = y.tan();  // of the product
    (a + b).add(c);
  });
  BOOST_TEST(bool(history.validate()), text(history.validate()));
  history["exp_1"].tensor()[3] += 0.5;
  const auto validation = history.validate();
  Names found;
  for (const auto& finding : validation.findings) {
    found.push_back(finding.label);
    BOOST_TEST((finding.kind == trace::Fault::Kind::differs), finding.message);
  }
  BOOST_TEST(found == (Names{"exp_1_1", "sin_1_2", "cos_1_3", "mul_1_4"}), boost::test_tools::per_element());
  BOOST_TEST(text(validation).find("exp_1_1 (aten::exp) differs: result 0 differs by up to 0.5") !=
                 std::string::npos,
             text(validation));
}

BOOST_AUTO_TEST_CASE(memory_that_was_changed_after_the_pass_is_an_error_where_it_is_read) {
  const auto x = torch::rand({3});
  const auto history = logged([&] { x.exp().sin(); });
  x.add_(1);
  BOOST_CHECK_EXCEPTION(history["outside_1"].tensor(), c10::ValueError,
                        says({"outside_1_0", "in place", "clone"}));
  const auto validation = history.validate();
  BOOST_REQUIRE(validation.findings.size() == 1U);
  BOOST_TEST(validation.findings[0].label == "exp_1_1");
  BOOST_TEST((validation.findings[0].kind == trace::Fault::Kind::changed));
  BOOST_TEST(text(history["outside_1"]).find("was changed") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_confirmed_is_no_mistake) {
  const auto sure = [](const auto& run) {
    const auto validation = logged(run).validate();
    BOOST_TEST(bool(validation), text(validation));
    BOOST_TEST(validation.unconfirmed.empty(), text(validation));
    BOOST_TEST(validation.perturbed > 0);
  };
  auto zero = nn::Linear(4, 4);
  torch::nn::init::zeros_(zero->weight);
  sure([&] { zero(torch::rand({2, 4}).relu()); });                // zero-initialised
  sure([] { (torch::rand({3}) - 2).log() + torch::rand({3}); });  // NaN
  sure([] { torch::full({3}, 1e20) + torch::rand({3}); });        // saturated
  sure([] { (torch::rand({3}) * torch::zeros({3})) * torch::zeros({3}); });
  const auto unsure = [](const auto& run, const char* label) {
    const auto validation = logged(run).validate();
    BOOST_TEST(bool(validation), text(validation));
    BOOST_REQUIRE(validation.unconfirmed.size() == 1U);
    BOOST_TEST(validation.unconfirmed[0].label == label);
    BOOST_TEST((validation.unconfirmed[0].kind == trace::Fault::Kind::ignores_parent));
    BOOST_TEST(text(validation).find("Not confirmed, and no mistake") != std::string::npos, text(validation));
  };
  unsure([] { torch::rand({3, 1}).softmax(1); }, "softmax_1_1");
  unsure([] { torch::ones({3}, at::kInt).to(torch::rand({3})); }, "to_1_2");  // of which the dtype is read
}

BOOST_AUTO_TEST_CASE(wrong_parents_are_found) {
  trace::detail::LoggedPass recording(trace::TraceOptions().save(trace::Save::all));
  const auto x = torch::rand({2, 6});
  recording.input(x, "x");
  recording.start();
  const auto gates = (x * 2).chunk(3, 1);
  gates[0].sigmoid_();
  gates[1].tanh_();
  const auto sum = gates[0] + gates[2];
  recording.stop("");
  const auto graph = trace::detail::build_graph(recording.log());
  const trace::History history(graph);
  const auto right = history.validate();
  BOOST_TEST(bool(right), text(right));
  BOOST_TEST(right.followed > 2);
  const auto position = [&](const char* label) { return history[label].position(); };
  BOOST_TEST(labels(history["add_1"].parents()) == (Names{"chunk_3_4", "sigmoid_1_5"}),
             boost::test_tools::per_element());
  const auto altered = [&](const char* node, std::vector<std::int64_t> parents) {
    auto wrong = std::make_shared<trace::detail::Graph>(*graph);
    wrong->nodes[static_cast<std::size_t>(position(node))].parents = std::move(parents);
    return trace::History(wrong).validate();
  };
  const auto lacks = altered("add_1", {position("chunk_3")});
  BOOST_REQUIRE(lacks.findings.size() == 1U);
  BOOST_TEST((lacks.findings[0].kind == trace::Fault::Kind::lacks_parent));
  BOOST_TEST(text(lacks).find("add_1_7 (aten::add.Tensor) lacks a parent: it reads what sigmoid_1_5 wrote") !=
                 std::string::npos,
             text(lacks));
  const auto false_one = altered("add_1", {position("sigmoid_1"), position("tanh_1"), position("chunk_3")});
  BOOST_REQUIRE(false_one.findings.size() == 1U);
  BOOST_TEST((false_one.findings[0].kind == trace::Fault::Kind::false_parent));
  BOOST_TEST(text(false_one).find("its parent tanh_1_6") != std::string::npos, text(false_one));
}

BOOST_AUTO_TEST_CASE(needs_everything) {
  for (const auto& options : {trace::TraceOptions(), trace::TraceOptions().save({"exp*"}),
                              trace::TraceOptions().save(trace::Save::all).dtype(at::kHalf)}) {
    BOOST_CHECK_EXCEPTION(logged([] { torch::ones({2}).exp(); }, options).validate(), c10::ValueError,
                          says({"validate", "Save::all"}));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
