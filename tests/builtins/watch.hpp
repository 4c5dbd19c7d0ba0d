#pragma once

#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <map>
#include <string>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/model/walk.hpp>

#include "../hooks/support.hpp"
#include "outcome.hpp"

/// Hooks of all kinds on one module, and what they have to see.
namespace builtins {

namespace hooks = torchtap::hooks;
using hooks::Event;
using hooks::Handle;
using hooks::Kind;
using support::identical;

/// What the hooks saw of one call.
struct Seen {
  int pre = 0, forward = 0, output = 0;
  Tensors pre_inputs, inputs, outputs;
  std::map<std::int64_t, Tensors> backward_input, backward_output;
};

inline std::vector<Handle> watch(const torchtap::model::ModuleRef& module, Seen& seen) {
  const auto copy = [](hooks::Tensors& tensors) {
    Tensors all;
    for (std::int64_t i = 0; i < tensors.size(); ++i) {
      all.push_back(tensors[i].defined() ? tensors[i].detach() : at::Tensor());
    }
    return all;
  };
  std::vector<Handle> handles;
  handles.push_back(hooks::attach(module, Kind::forward_pre, [&seen, copy](Event& event) {
    ++seen.pre;
    seen.pre_inputs = copy(event.inputs());
  }));
  handles.push_back(hooks::attach(module, Kind::forward, [&seen, copy](Event& event) {
    ++seen.forward;
    seen.inputs = copy(event.inputs());
    seen.outputs = copy(event.outputs());
  }));
  handles.push_back(hooks::attach(module, Kind::forward_output, [&seen](Event&) { ++seen.output; }));
  handles.push_back(hooks::attach(module, Kind::backward_input, [&seen](Event& event) {
    seen.backward_input[event.slot()].push_back(event.gradient().clone());
  }));
  handles.push_back(hooks::attach(module, Kind::backward_output, [&seen](Event& event) {
    seen.backward_output[event.slot()].push_back(event.gradient().clone());
  }));
  return handles;
}

inline void check_same(const Outcome& got, const Outcome& want) {
  BOOST_TEST(identical(got.outputs, want.outputs), "outputs");
  BOOST_TEST(identical(got.input_gradients, want.input_gradients), "gradients of the inputs");
  BOOST_TEST(identical(got.parameter_gradients, want.parameter_gradients), "gradients of the parameters");
  BOOST_TEST(identical(got.buffers, want.buffers), "buffers");
}

// `slots`: as many as forward has parameters for, whether they were passed or left to their defaults.
inline void check_seen(const Seen& seen, const Tensors& inputs, const Outcome& want, std::size_t slots) {
  BOOST_TEST(seen.pre == 1);
  BOOST_TEST(seen.forward == 1);
  BOOST_TEST(seen.output == 1);
  BOOST_TEST(seen.pre_inputs.size() == slots);
  BOOST_REQUIRE(seen.pre_inputs.size() >= inputs.size());
  BOOST_REQUIRE(seen.inputs.size() == seen.pre_inputs.size());
  for (std::size_t i = 0; i < seen.pre_inputs.size(); ++i) {
    if (i >= inputs.size()) {
      BOOST_TEST(!seen.pre_inputs[i].defined(), "an argument that was left out keeps its place");
      continue;
    }
    BOOST_TEST(identical(seen.pre_inputs[i], inputs[i].detach()), "input " << i);
    const auto arrived = seen.backward_input.find(static_cast<std::int64_t>(i));
    if (want.input_gradients[i].defined()) {
      BOOST_REQUIRE((arrived != seen.backward_input.end()));
      BOOST_REQUIRE(arrived->second.size() == 1);
      BOOST_TEST(at::equal(arrived->second[0], want.input_gradients[i]), "gradient of input " << i);
    } else {
      BOOST_TEST((arrived == seen.backward_input.end()));
    }
  }
  BOOST_REQUIRE(seen.outputs.size() == want.outputs.size());
  for (std::size_t i = 0; i < want.outputs.size(); ++i) {
    BOOST_TEST(identical(seen.outputs[i], want.outputs[i], /*grad=*/false), "output " << i);
    const auto arrived = seen.backward_output.find(static_cast<std::int64_t>(i));
    if (want.outputs[i].defined() && want.outputs[i].requires_grad()) {
      BOOST_REQUIRE((arrived != seen.backward_output.end()));
      BOOST_REQUIRE(arrived->second.size() == 1);
      BOOST_TEST(at::equal(arrived->second[0], want.output_gradients[i]), "gradient of output " << i);
    } else {
      BOOST_TEST((arrived == seen.backward_output.end()));
    }
  }
}

/// Hooks the descendant at `path` around one call.
inline void check_hooked(const std::string& how, const Made& made, const std::string& path,
                         const std::string& type, const Tensors& inputs, const Outcome& want,
                         std::size_t slots) {
  BOOST_TEST_CONTEXT(how) {
    const auto module = torchtap::model::find(*made.module, path);
    if (!type.empty()) BOOST_TEST(module.type() == type);
    Seen seen;
    const auto handles = watch(module, seen);
    check_same(run(*made.module, inputs, made.forward), want);
    check_seen(seen, inputs, want, slots);
  }
}

/// How many tensors forward has parameters for, whether they are passed or left to their defaults.
inline std::size_t slots_of(const std::string& name, std::size_t passed) {
  static const std::map<std::string, std::size_t> kWithDefaults{{"LSTM", 3},
                                                                {"LSTMCell", 3},
                                                                {"RNN", 2},
                                                                {"GRU", 2},
                                                                {"RNNCell", 2},
                                                                {"GRUCell", 2},
                                                                {"EmbeddingBag", 3},
                                                                {"MultiheadAttention", 5},
                                                                {"TransformerEncoderLayer", 3},
                                                                {"Transformer", 8},
                                                                {"TransformerDecoder", 6},
                                                                {"TransformerDecoderLayer", 6},
                                                                {"TransformerEncoder", 3}};
  const auto counted = kWithDefaults.find(name);
  return counted == kWithDefaults.end() ? passed : counted->second;
}

}  // namespace builtins
