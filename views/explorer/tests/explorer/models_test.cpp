// TorchScript models, beside the edges that edges.py finds in Python.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <torch/script.h>

#include <fstream>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(models)

using namespace support;

namespace {

struct Case {
  const char* name;
  const char* how;
  bool from_python = true;  // whether edges.py wrote the model itself
};
std::ostream& operator<<(std::ostream& out, const Case& one) {
  return out << one.name << "." << one.how;
}

const Case cases[] = {
    {"resnet18", "script", false},
    {"resnet18", "trace", false},
    {"mobilenet", "script", false},
    {"mobilenet", "trace", false},
    {"transformer", "script", false},  // attention
    {"tagger", "script", false},       // loops and branches
    {"detector", "script", false},     // lists and dicts
    {"values", "script", false},       // None, optionals, named tuples
    {"siamese", "script", false},      // one module called several times
    {"siamese", "trace", false},
    {"shufflenet", "script"},
    {"shufflenet", "trace"},
    {"mixed", "script"},
    {"mixed", "trace"},
    {"gates", "script"},  // writes to parts of one tensor
    {"gates", "trace"},
};

std::string file(const Case& one, const std::string& end) {
  const bool mine = one.from_python || end == ".edges";
  return std::string(mine ? TORCHTAP_TEST_EXPLORER_MODELS : TORCHTAP_TEST_MODELS) + "/" + one.name + end;
}

std::set<std::string> edges_in_python(const Case& one) {
  std::ifstream lines(file(one, ".edges"));
  std::set<std::string> edges;
  for (std::string line; std::getline(lines, line);) edges.insert(line);
  return edges;
}

std::vector<c10::IValue> arguments(const Case& one) {
  const auto holder = torch::jit::load(file(one, ".arguments.pt"));
  return holder.attr("arguments").toTupleRef().elements().vec();
}

torch::jit::Module load(const Case& one) {
  return torch::jit::load(file(one, std::string(".") + one.how + ".pt"));
}

}  // namespace

/// Runs the model a few times in one mode and compares its edges.
void check_edges(const Case& one, bool optimised, const std::set<std::string>& expected) {
  torch::jit::Module net = load(one);
  const auto given = arguments(one);
  for (int i = 0; i < 3 && optimised; ++i) net.forward(given);
  explorer::Explorer watched;
  watched.attach(net);
  net.forward(given);
  check_same(edges_of(watched, Mode::eval), expected);
  check_no_errors(watched);
}

BOOST_DATA_TEST_CASE(torchscript_has_the_edges_that_python_finds, boost::unit_test::data::make(cases), one) {
  auto expected = edges_in_python(one);
  BOOST_REQUIRE(expected.size() > 10);
  const std::string name = one.name;
  if (name == "values") {
    // Python gave hooks another tensor: what a call returns unchanged comes from that call from then on.
    BOOST_TEST(expected.erase("net: In3 -> join#1.2") == 1U);
    expected.insert("net: join.2 -> join#1.2");
  }
  for (const bool optimised : {false, true}) {
    BOOST_TEST_CONTEXT((optimised ? "optimised" : "first run")) {
      check_edges(one, optimised, expected);
      if (name == "transformer") continue;  // is one operation without gradients
      const torch::NoGradGuard no_grad;
      check_edges(one, optimised, expected);
      const c10::InferenceMode inference;
      check_edges(one, optimised, expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_module_behind_an_interface_is_a_call) {
  const Case one{"interfaced", "script", false};
  torch::jit::Module net = load(one);
  explorer::Explorer watched;
  watched.attach(net);
  net.forward(arguments(one));
  check_same(edges_of(watched, Mode::eval),
             {"net: In0 -> layer.0", "layer: In0 -> Out0", "net: layer.0 -> Out0"});
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(a_module_that_two_others_share_is_called_inside_of_each) {
  torch::jit::Module shared("Shared"), a("A"), b("B"), net("Net");
  shared.define("def forward(self, x):\n  return x + 1\n");
  for (torch::jit::Module* const module : {&a, &b}) {
    module->register_module("inner", shared);
    module->define("def forward(self, x):\n  return self.inner.forward(x) * 2\n");
  }
  net.register_module("a", a);
  net.register_module("b", b);
  net.define("def forward(self, x):\n  return self.b.forward(self.a.forward(x))\n");
  explorer::Explorer watched;
  watched.attach(net);
  net.forward({torch::ones({2})});
  check_same(edges_of(watched, net.is_training() ? Mode::train : Mode::eval),
             {"net: In0 -> a.0", "a: In0 -> inner.0", "a.inner: In0 -> Out0", "a: inner.0 -> Out0",
              "net: a.0 -> b.0", "b: In0 -> inner#1.0", "a.inner#1: In0 -> Out0", "b: inner#1.0 -> Out0",
              "net: b.0 -> Out0"});
  check_no_errors(watched);
}

#ifndef __SANITIZE_THREAD__  // see extras/torchscript/tests/script/values_test.cpp
BOOST_AUTO_TEST_CASE(calls_that_torchscript_forks_compute_the_same) {
  const Case one{"forked", "script", false};
  torch::jit::Module net = load(one);
  const auto given = arguments(one);
  const at::Tensor expected = net.forward(given).toTensor();
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(net);
  // It is not recorded where it waits for a fork: another thread goes on with it then.
  for (int i = 0; i < 20; ++i) BOOST_TEST(net.forward(given).toTensor().equal(expected));
  check_no_errors(watched);
}
#endif

BOOST_AUTO_TEST_SUITE_END()
