// TorchScript models, compared with what Python sees of the same models when it runs them eagerly.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <numeric>
#include <utility>
#include <vector>

#include "support.hpp"
#include "tests/emulated.hpp"

namespace {

using namespace support;

std::string file(const std::string& name) {
  return std::string(TORCHTAP_TEST_TRACE_MODELS) + "/" + name + ".pt";
}

struct Case {
  std::string model, level;
  std::size_t operations;  // 0: as many as Python sees
};
std::ostream& operator<<(std::ostream& out, const Case& one) {
  return out << one.model << " at " << one.level << " level";
}

const Case cases[]{{"alexnet", "program", 22}, {"resnet18", "program", 69}, {"mobilenet", "program", 157},
                   {"loop", "leaf", 0},        {"lstm", "leaf", 0},         {"vit", "leaf", 0},
                   {"transformer", "leaf", 0}};

/// Newer versions of Python's indexing make no view of a whole dimension, which TorchScript does.
bool is_whole_slice(const trace::Node& node) {
  return node.type() == "slice" && node.tensor().sizes() == node.parents().at(0).tensor().sizes();
}

BOOST_DATA_TEST_CASE(a_scripted_model_has_the_operations_and_bits_of_the_eager_one,
                     boost::unit_test::data::make(cases), one) {
  at::set_num_threads(1);
  const torch::NoGradGuard no_grad;
  const auto model = torch::jit::load(file(one.model));
  const auto expected = torchtap::storage::load_value(file(one.model + "." + one.level + ".expected"));
  std::vector<c10::IValue> inputs;
  for (const at::Tensor& input : expected.at("inputs").tensors()) inputs.emplace_back(input);
  const auto level =
      one.level == "leaf" ? trace::TraceOptions::Level::leaf : trace::TraceOptions::Level::program;
  const auto history =
      trace::log_forward_pass(model, inputs, trace::TraceOptions().save(trace::Save::all).level(level));
  const auto tensors = expected.at("tensors").tensors();
  if (one.operations > 0) BOOST_TEST(tensors.size() == one.operations);
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  const auto name_of = [&](std::size_t i) {
    return expected.at("names").at(static_cast<std::int64_t>(i)).text();
  };
  const auto is = [&](const trace::Node& node, std::size_t i) {
    return node.type() == name_of(i) && node.tensor().sizes() == tensors[i].sizes() &&
           torchtap_test::as_python(node.tensor(), tensors[i]);
  };
  std::size_t next = 0;
  for (const trace::Node& node : history) {
    if (node.kind() != trace::NodeKind::operation) continue;
    BOOST_REQUIRE_MESSAGE(next < tensors.size(), node.label() << " is more than Python saw");
    // In which order a call's arguments are computed is the compiler's choice, and processors differ in it.
    if (torchtap_test::is_emulated() && next + 1 < order.size() && !is(node, order[next]) &&
        is(node, order[next + 1]))
      std::swap(order[next], order[next + 1]);
    const std::size_t same = order[next];
    const std::string name = name_of(same);
    if (is_whole_slice(node) && name != "slice") continue;
    BOOST_TEST(node.type() == name, node.label() << ", which Python calls " << name);
    BOOST_TEST(node.tensor().sizes() == tensors[same].sizes(), node.label());
    BOOST_TEST(torchtap_test::as_python(node.tensor(), tensors[same]), node.label() << " has other values");
    ++next;
  }
  BOOST_TEST(next == tensors.size());
  const auto validation = history.validate();
  BOOST_TEST(bool(validation), text(validation));
}

BOOST_AUTO_TEST_CASE(alexnet_in_torchscript_has_modules_parameters_and_labels) {
  const torch::NoGradGuard no_grad;
  const auto history = trace::log_forward_pass(
      torch::jit::load(file("alexnet")), {torch::rand({1, 3, 224, 224})}, trace::TraceOptions().source(true));
  BOOST_TEST(history.size() == 24);
  BOOST_TEST(history["features.6"].label() == "conv2d_3_7");
  BOOST_TEST(history.unreached_modules().empty());
  BOOST_TEST(history.model() == "AlexNet");
  BOOST_TEST(history["features.6"].parameters().at(0).path == "features.6.weight");
  const trace::Node convolution = history["conv2d_3_7"];
  const auto& modules = convolution.modules();
  BOOST_REQUIRE(modules.size() == 2U);
  BOOST_TEST(modules[0].path == "features");
  BOOST_TEST(modules[1].path == "features.6");
  BOOST_TEST(history["conv2d_3_7"].source().find("conv.py:") != std::string::npos,
             history["conv2d_3_7"].source());
  BOOST_TEST(history["classifier"].label() == "linear_3_22");
}

BOOST_AUTO_TEST_CASE(a_resnet_has_layers_of_one_pass_and_a_loop_has_passes) {
  const torch::NoGradGuard no_grad;
  const auto resnet =
      trace::log_forward_pass(torch::jit::load(file("resnet18")), {torch::rand({1, 3, 64, 64})});
  for (const trace::Node& node : resnet) BOOST_TEST(node.passes() == 1, node.label());
  const auto loop = trace::log_forward_pass(torch::jit::load(file("loop")), {torch::rand({5, 2, 4})});
  BOOST_TEST_MESSAGE(text(loop));
  BOOST_TEST(loop["tanh_1:5"].passes() == 5);
  BOOST_TEST(loop["into:3"].pass() == 3);
  BOOST_CHECK_EXCEPTION(loop["into"], c10::IndexError, torchtap_test::says({"into", "5 nodes", "into:1"}));
  BOOST_CHECK_EXCEPTION(loop["tanh_1"], c10::IndexError, torchtap_test::says({"tanh_1:1", "pass"}));
  BOOST_TEST(loop.passes(loop["tanh_1:1"].layer()).size() == 5U);
}

BOOST_AUTO_TEST_CASE(inputs_inside_of_containers_have_names) {
  auto module = torch::jit::Module("m");
  module.define(R"(
    def forward(self, x: List[Tensor], y: Dict[str, Tensor]):
        return {"sum": x[0] + x[1], "product": x[0] * y["k"]}
  )");
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("k", torch::rand({2}));
  const auto history =
      trace::log_forward_pass(module, {c10::List<at::Tensor>({torch::rand({2}), torch::rand({2})}), dict});
  BOOST_TEST(history.inputs().size() == 3U);
  BOOST_TEST(history["input.0.1"].position() == 1);
  BOOST_TEST(labels(history["input.1.k"].children()) == (std::vector<std::string>{"mul_1_4"}),
             boost::test_tools::per_element());
  BOOST_TEST(labels(history["output.0.sum"].parents()) == (std::vector<std::string>{"add_1_3"}),
             boost::test_tools::per_element());
}

#ifndef __SANITIZE_THREAD__  // see extras/torchscript/tests/script/values_test.cpp
BOOST_AUTO_TEST_CASE(forks_are_in_the_log) {
  const auto history = trace::log_forward_pass(torch::jit::load(file("fork")), {torch::rand({2})},
                                               trace::TraceOptions().save(trace::Save::all));
  BOOST_TEST(history.find("tanh*").size() == 2U);
  BOOST_TEST(history["mul_1"].parents().size() == 2U);
  BOOST_TEST(bool(history.validate()));
}
#endif

}  // namespace
