// Calls without tensors, and tensors that cannot be kept.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/jit/api/module.h>

#include <sstream>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/mean.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <torchtap/storage/recording.hpp>

#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(no_tensors)

namespace tap = torchtap;
using namespace torchtap_test;
using tap::recorders::ForwardInput;
using tap::recorders::ForwardOutput;
using tap::recorders::ForwardPre;
using tap::recorders::RecorderOptions;

namespace {

/// A model as tracing makes it of stochastic depth: the forward of one module takes and returns nothing.
torch::jit::Module traced() {
  torch::jit::Module part("Part"), drop("Drop"), whole("Whole");
  part.define("def forward(self, x):\n    return x * 2\n");
  drop.define("def forward(self) -> None:\n    return None\n");
  whole.register_module("part", part);
  whole.register_module("drop", drop);
  whole.define(
      "def forward(self, x):\n    y = self.part.forward(x)\n    self.drop.forward()\n    return y + 1\n");
  return whole;
}

torch::jit::Module quantizing() {
  torch::jit::Module quantize("Quantize"), scale("Scale"), whole("Whole");
  quantize.define("def forward(self, x):\n    return torch.quantize_per_tensor(x, 0.5, 3, 13)\n");  // quint8
  scale.define("def forward(self, x):\n    return x * 2, torch.quantize_per_tensor(x, 0.5, 3, 13)\n");
  whole.register_module("quantize", quantize);
  whole.register_module("scale", scale);
  whole.define(
      "def forward(self, x):\n    y, q = self.scale.forward(x)\n    return "
      "self.quantize.forward(y).dequantize()\n");
  return whole;
}

}  // namespace

BOOST_AUTO_TEST_CASE(calls_without_tensors_are_left_out_and_counted) {
  auto model = traced();
  const auto x = at::arange(6.).reshape({2, 3});
  const auto expected = model.forward({x}).toTensor();
  ForwardOutput outputs, reduced(tap::reductions::Mean{}), all(RecorderOptions().all_tensors());
  ForwardInput inputs;
  ForwardPre pre(RecorderOptions().all_tensors());
  for (tap::recorders::Recorder* recorder :
       {static_cast<tap::recorders::Recorder*>(&outputs), static_cast<tap::recorders::Recorder*>(&reduced),
        static_cast<tap::recorders::Recorder*>(&all), static_cast<tap::recorders::Recorder*>(&inputs),
        static_cast<tap::recorders::Recorder*>(&pre)}) {
    recorder->modules(model);
  }
  for (int i = 0; i < 3; ++i) BOOST_TEST(at::equal(model.forward({x}).toTensor(), expected));
  BOOST_TEST(at::equal(outputs.at("part").tensors().at(2), x * 2));
  BOOST_TEST(at::equal(outputs.at("").tensors().at(2), expected));
  for (tap::recorders::Recorder* recorder :
       {static_cast<tap::recorders::Recorder*>(&outputs), static_cast<tap::recorders::Recorder*>(&reduced),
        static_cast<tap::recorders::Recorder*>(&all), static_cast<tap::recorders::Recorder*>(&inputs),
        static_cast<tap::recorders::Recorder*>(&pre)}) {
    BOOST_TEST(recorder->samples() == 6, recorder->kind());
    BOOST_TEST(recorder->at("part").without_tensors() == 0);
    const auto& drop = recorder->at("drop");
    BOOST_TEST(drop.samples() == 0);
    BOOST_TEST(drop.without_tensors() == 3);
    BOOST_TEST(drop.events() == 3);
    BOOST_TEST(drop.value().is_none());
  }
  const TemporaryDirectory folder;
  outputs.save(folder / "saved", tap::storage::SaveOptions().mkdir(true));
  const auto saved = tap::storage::load(folder / "saved");
  BOOST_TEST(saved.at("drop").samples() == 0);
  BOOST_TEST(saved.at("part").samples() == 3);
}

BOOST_AUTO_TEST_CASE(a_module_that_was_asked_for_alone_has_to_hand_over_tensors) {
  auto model = traced();
  const auto x = at::ones({2, 3});
  ForwardOutput one;
  one.modules(model, tap::selectors::names("drop"));
  std::string message;
  try {
    model.forward({x});
  } catch (const std::exception& error) {
    message = error.what();
  }
  BOOST_TEST(message.find("\"drop\" (Drop)") != std::string::npos, message);
  one.detach();
  std::vector<std::string> reported;
  ForwardOutput lenient(RecorderOptions().on_error(
      [&](const std::string& path, const std::exception_ptr&) { reported.push_back(path); }));
  lenient.modules(model, tap::selectors::names("drop"));
  model.forward({x});
  BOOST_TEST(reported == std::vector<std::string>{"drop"});
  // A slot that a module does not have is an error, however many were selected.
  lenient.detach();
  ForwardOutput second(RecorderOptions().slot(1));
  second.modules(model);
  BOOST_CHECK_THROW(model.forward({x}), std::exception);
}

BOOST_AUTO_TEST_CASE(counts_go_with_merge_reset_and_snapshots) {
  auto model = traced();
  const auto x = at::ones({2, 3});
  ForwardOutput one, other;
  one.modules(model);
  model.forward({x});
  other.modules(model);
  model.forward({x});
  one.merge(other);
  BOOST_TEST(one.at("drop").without_tensors() == 3);
  BOOST_TEST(one.at("drop").events() == 3);
  std::stringstream stream;
  one.snapshot(stream);
  one.reset();
  BOOST_TEST(one.at("drop").events() == 0);
  one.restore(stream);
  BOOST_TEST(one.at("drop").without_tensors() == 3);
  BOOST_TEST(one.at("part").samples() == 3);
}

BOOST_AUTO_TEST_CASE(nothing_is_waited_for_where_nothing_comes) {
  auto model = traced();
  ForwardOutput early;
  early.modules(model, tap::selectors::names("part", "drop"));
  BOOST_TEST(early.until_recorded([&] { model.forward({at::ones({2, 3})}); }));
}

BOOST_AUTO_TEST_CASE(quantized_tensors_are_refused_at_the_first_sample) {
  auto model = quantizing();
  const auto x = at::arange(6.);
  const auto expected = model.forward({x}).toTensor();
  std::vector<std::string> reported;
  ForwardOutput outputs(
      RecorderOptions().on_error([&](const std::string& path, const std::exception_ptr& error) {
        try {
          std::rethrow_exception(error);
        } catch (const c10::TypeError& known) {
          BOOST_TEST(says({"ForwardOutput \"quantize\" (Quantize)", "QUInt8", "dequantized"})(known));
        }
        reported.push_back(path);
      }));
  outputs.modules(model);
  BOOST_TEST(at::equal(model.forward({x}).toTensor(), expected));
  BOOST_TEST(reported == std::vector<std::string>{"quantize"});
  BOOST_TEST(outputs.at("").samples() == 1);
  BOOST_TEST(outputs.at("scale").samples() == 1);
  BOOST_TEST(outputs.at("quantize").samples() == 0);
  outputs.detach();

  ForwardOutput strict;
  strict.modules(model);
  BOOST_CHECK_THROW(model.forward({x}), std::exception);
  strict.detach();

  ForwardOutput values(RecorderOptions().transform(tap::recorders::dequantized).all_tensors());
  values.modules(model);
  model.forward({x});
  BOOST_TEST(at::equal(values.at("scale").slot(0).list().at(0).tensor(), x * 2));
  BOOST_TEST(at::equal(values.at("scale").slot(1).list().at(0).tensor(),
                       at::quantize_per_tensor(x, 0.5, 3, at::kQUInt8).dequantize()));
  BOOST_TEST(at::equal(values.at("quantize").slot(0).list().at(0).tensor(), expected));
  BOOST_TEST(tap::recorders::dequantized(at::ones({2}, at::kLong)).scalar_type() == at::kLong);
}

BOOST_AUTO_TEST_CASE(conditions_see_all_tensors_of_an_event) {
  auto model = quantizing();
  std::vector<std::int64_t> sizes;
  const auto no_quantized = [&](const tap::recorders::Sample& sample) {
    if (sample.path() == "scale") sizes.push_back(sample.slots());
    BOOST_CHECK_THROW(sample.tensor(sample.slots()), c10::IndexError);
    BOOST_TEST(sample.tensor(0).is_same(sample.tensor()));
    for (std::int64_t i = 0; i < sample.slots(); ++i) {
      if (sample.tensor(i).is_quantized()) return false;
    }
    return true;
  };
  ForwardOutput all(RecorderOptions().all_tensors().condition(no_quantized));
  ForwardOutput first(RecorderOptions().condition(no_quantized));
  all.modules(model);
  model.forward({at::arange(6.)});
  BOOST_TEST(all.at("scale").samples() == 0);
  BOOST_TEST(all.at("").samples() == 1);
  all.detach();
  first.modules(model);
  model.forward({at::arange(6.)});
  BOOST_TEST(first.at("scale").samples() == 1);
  BOOST_TEST(sizes == (std::vector<std::int64_t>{2, 1}));
}

BOOST_AUTO_TEST_SUITE_END()
