// Recordings of models that Python exported, compared with what Python's own hooks saw.
#include <boost/test/data/test_case.hpp>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/selectors/selectors.hpp>

#include "tests/emulated.hpp"
#include "tests/script/support.hpp"

BOOST_AUTO_TEST_SUITE(values)

namespace tap = torchtap;
using namespace torchtap_test;

namespace {

struct Case {
  const char* name;
  const char* how;
  bool gradients;
};
std::ostream& operator<<(std::ostream& stream, const Case& one) {
  return stream << one.name << "." << one.how;
}

const Case kCases[] = {
    {"resnet18", "script", false},
    {"resnet18", "trace", false},
    {"mobilenet", "script", false},
    {"mobilenet", "trace", false},
    {"transformer", "script", true},
    {"tagger", "script", true},
    {"detector", "script", false},
    {"values", "script", false},
    {"siamese", "script", true},
    {"siamese", "trace", true},
    {"interfaced", "script", false},
#ifndef __SANITIZE_THREAD__
    // LibTorch is not instrumented, so ThreadSanitizer does not see the reference count that guards the
    // result of a fork, which one of two threads frees, and reports a race, with hooks and without.
    {"forked", "script", false},
    {"hooked", "script", true},
#endif
};

/// "PATH#CALL#SLOT" to a tensor.
std::map<std::string, at::Tensor> expected(const std::string& name, const std::string& kind) {
  std::map<std::string, at::Tensor> result;
  const auto value = tap::storage::load_value(file(name + ".expected"));
  for (const auto& [key, tensor] : value.dict()) {
    if (key.compare(0, kind.size() + 1, kind + " ") == 0)
      result[key.substr(kind.size() + 1)] = tensor.tensor();
  }
  return result;
}

/// Compares the recording of one forward with what Python saw of it.
void compare(tap::recorders::Recorder& recorder, const Case& one, const std::string& kind) {
  const auto wanted = expected(one.name, kind);
  BOOST_TEST(!wanted.empty());
  std::size_t compared = 0;
  for (const auto& [key, tensor] : wanted) {
    const auto first = key.find('#');
    const auto second = key.find('#', first + 1);
    const std::string path = key.substr(0, first);
    const auto call = std::stoul(key.substr(first + 1, second - first - 1));
    const auto slot = std::stol(key.substr(second + 1));
    const auto& subrecorder = recorder.at(path);
    BOOST_TEST_REQUIRE(slot < subrecorder.slots(), kind << " " << key);
    const auto list = subrecorder.slot(slot).tensors();
    BOOST_TEST_REQUIRE(list.size() == static_cast<std::size_t>(subrecorder.samples()), kind << " " << key);
    BOOST_TEST_REQUIRE(call < list.size(), kind << " " << key);
    BOOST_TEST(as_python(list[call], tensor), kind << " " << key << " differs");
    ++compared;
  }
  BOOST_TEST(compared == wanted.size());
}

tap::recorders::RecorderOptions all() {
  return tap::recorders::RecorderOptions().all_tensors();
}

std::vector<at::Tensor> gradients_of(const torch::jit::Module& model, const c10::IValue& result) {
  for (auto parameter : model.parameters()) parameter.mutable_grad() = at::Tensor();
  backward(result);
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : model.parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

}  // namespace

BOOST_DATA_TEST_CASE(are_those_that_python_hooks_see, boost::unit_test::data::make(kCases), one) {
  auto model = load(std::string(one.name) + "." + one.how);
  const auto inputs = arguments(one.name);
  tap::recorders::ForwardOutput outputs(all());
  tap::recorders::ForwardPre pre(all());
  tap::recorders::ForwardInput after(all());
  outputs.modules(model);
  pre.modules(model);
  after.modules(model);
  const auto result = model.forward(inputs);
  compare(outputs, one, "out");
  compare(pre, one, "pre");
  for (std::int64_t i = 0; i < pre.size(); ++i) BOOST_TEST(after[i].samples() == pre[i].samples());

  // The profiling executor optimises after some runs; the values stay the same.
  for (int i = 0; i < 3; ++i) {
    outputs.reset();
    model.forward(inputs);
    compare(outputs, one, "out");
  }
}

BOOST_DATA_TEST_CASE(of_gradients_too, boost::unit_test::data::make(kCases), one) {
  if (!one.gradients) return;
  auto model = load(std::string(one.name) + "." + one.how);
  const auto inputs = arguments(one.name);
  // Python's gradients arrive by call, a recorder's in the order of backward.
  std::map<std::string, at::Tensor> outputs, alone;
  std::vector<tap::hooks::Handle> handles;
  const auto note = [](std::map<std::string, at::Tensor>& into) {
    return [&into](tap::hooks::Event& event) {
      into[c10::str(event.path(), "#", event.call_index(), "#", event.slot())] = event.gradient().clone();
    };
  };
  for (const auto& module : tap::selectors::modules(model)) {
    if (!module.has_forward()) continue;
    handles.push_back(tap::hooks::attach(module, tap::hooks::Kind::backward_output, note(outputs)));
    handles.push_back(tap::hooks::attach(module, tap::hooks::Kind::backward_input, note(alone)));
  }
  for (int i = 0; i < 4; ++i) {
    outputs.clear();
    alone.clear();
    backward(model.forward(inputs));
    for (const auto& [key, tensor] : expected(one.name, "gout")) {
      BOOST_TEST_REQUIRE(outputs.count(key) == 1, key << " in run " << i);
      BOOST_TEST(at::allclose(outputs[key], tensor, 1e-5, 1e-6), key << " in run " << i);
    }
    for (const auto& [key, tensor] : expected(one.name, "gin")) {
      BOOST_TEST_REQUIRE(alone.count(key) == 1, key << " in run " << i);
      BOOST_TEST(at::allclose(alone[key], tensor, 1e-5, 1e-6), key << " in run " << i);
    }
  }
}

BOOST_DATA_TEST_CASE(of_the_model_do_not_change, boost::unit_test::data::make(kCases), one) {
  const std::string name = std::string(one.name) + "." + one.how;
  auto plain = load(name);
  auto model = load(name);
  const auto inputs = arguments(one.name);
  const std::string code = model.get_method("forward").graph()->toString();
  tap::recorders::ForwardPre a(all());
  tap::recorders::ForwardOutput b(all());
  tap::recorders::BackwardOutput c(all());
  for (tap::recorders::Recorder* recorder : std::initializer_list<tap::recorders::Recorder*>{&a, &b, &c}) {
    recorder->modules(model);
  }
  for (const bool optimized : {false, true}) {
    const torch::jit::GraphOptimizerEnabledGuard guard(optimized);
    // Sixteen runs of a ResNet take an emulator half an hour. Four do: one as written, and three in which
    // LibTorch's executor gets warm.
    const int runs = !torchtap_test::is_emulated() ? 4 : optimized ? 3 : 1;
    for (const bool train : {false, true}) {
      if (torchtap_test::is_emulated() && train != optimized) continue;
      plain.train(train);
      model.train(train);
      for (int i = 0; i < runs; ++i) {
        at::manual_seed(i);
        const auto wanted = plain.forward(inputs);
        at::manual_seed(i);
        const auto result = model.forward(inputs);
        BOOST_TEST(same(flat(result), flat(wanted)), "run " << i << (train ? " in training" : ""));
        BOOST_TEST(result.type()->str() == wanted.type()->str());
        const auto gradients = gradients_of(model, result);
        const auto wanted_gradients = gradients_of(plain, wanted);
        BOOST_TEST_REQUIRE(gradients.size() == wanted_gradients.size());
        for (std::size_t p = 0; p < gradients.size(); ++p) {
          BOOST_TEST(gradients[p].defined() == wanted_gradients[p].defined());
          if (!gradients[p].defined()) continue;
          // Once warm, LibTorch's executor differentiates runs of operations as a whole, with other rounding
          // than in its own first run; hooks split these runs.
          const bool is_same = optimized ? at::allclose(gradients[p], wanted_gradients[p], 1e-4, 1e-5)
                                         : at::equal(gradients[p], wanted_gradients[p]);
          BOOST_TEST(is_same, "parameter " << p << " in run " << i);
        }
        torch::NoGradGuard no_grad;
        at::manual_seed(i);
        const auto quiet = flat(model.forward(inputs));
        at::manual_seed(i);
        BOOST_TEST(same(quiet, flat(plain.forward(inputs))));
      }
    }
  }
  BOOST_TEST(model.get_method("forward").graph()->toString() == code);
}

BOOST_AUTO_TEST_SUITE_END()
