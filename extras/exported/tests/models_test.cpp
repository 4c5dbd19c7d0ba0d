// What recorders see of packages, compared with Python's hooks on the eager models.
#include <boost/test/data/test_case.hpp>

#include <torchtap/model/module_ref.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/by.hpp>
#include <torchtap/reductions/mean.hpp>
#include <torchtap/reductions/moments.hpp>
#include <torchtap/selectors/selectors.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(models)

namespace tap = torchtap;
using namespace torchtap_test;
using tap::exported::Model;
using tap::recorders::ForwardInput;
using tap::recorders::ForwardOutput;
using tap::recorders::ForwardPre;
using tap::recorders::RecorderOptions;

namespace {

/// Models whose results are float32; and one with an LSTM.
const std::vector<std::string> kFloat{"mlp", "dynamic", "replaceable", "transformer", "twice", "resnet18"};
const std::vector<std::string> kRecurrent =
    package_device().is_cpu() ? std::vector<std::string>{"tagger"} : std::vector<std::string>{};

/// Compares every sample of a recorder with what Python's hooks of this kind saw. Returns their number.
std::int64_t compare(const tap::recorders::Recorder& recorder, const Reference& reference,
                     const std::string& kind) {
  std::int64_t compared = 0;
  for (const auto& module : recorder) {
    for (std::int64_t slot = 0; slot < module.slots(); ++slot) {
      const tap::core::Value samples = module.slot(slot);
      for (std::size_t call = 0; call < samples.list().size(); ++call) {
        const tap::core::Value& sample = samples.list()[call];
        const at::Tensor expected =
            reference.seen(kind, module.path(), static_cast<std::int64_t>(call), slot);
        if (sample.is_none() || !sample.tensor().defined()) {
          BOOST_TEST(!expected.defined(),
                     kind << ' ' << module.path() << " call " << call << " slot " << slot);
          continue;
        }
        BOOST_TEST(close(sample.tensor(), expected),
                   kind << ' ' << module.path() << " call " << call << " slot " << slot);
        ++compared;
      }
    }
  }
  return compared;
}

}  // namespace

BOOST_DATA_TEST_CASE(give_what_python_hooks_see, boost::unit_test::data::make(kFloat) + kRecurrent + "half",
                     name) {
  const Reference reference(name);
  Model model(file(name + ".pt2"));
  ForwardOutput outputs(RecorderOptions().all_tensors(true));
  outputs.modules(model);
  BOOST_TEST(outputs.size() > 3);
  const auto result = model.run(reference.inputs());
  const std::int64_t compared = compare(outputs, reference, "out");
  BOOST_TEST(compared >= outputs.size());
  // Every call of every tapped module is there: as many samples as Python's hooks saw.
  for (const auto& module : outputs) {
    BOOST_TEST(module.samples() == model.calls(module.path()));
    BOOST_TEST(!reference.seen("out", module.path(), module.samples()).defined());
  }
  for (std::size_t i = 0; i < result.size(); ++i) BOOST_TEST(close(result[i], reference.outputs()[i]));
}

BOOST_DATA_TEST_CASE(give_inputs_before_and_after,
                     boost::unit_test::data::make(std::vector<std::string>{"dynamic", "twice"}) + kRecurrent,
                     name) {
  const Reference reference(name);
  Model model(file(name + ".pt2"));
  ForwardPre before(RecorderOptions().all_tensors(true));
  ForwardInput after(RecorderOptions().all_tensors(true));
  before.modules(model);
  after.modules(model);
  model.run(reference.inputs());
  BOOST_TEST(compare(before, reference, "pre") >= before.size());
  BOOST_TEST(compare(after, reference, "in") >= after.size());
}

BOOST_DATA_TEST_CASE(compute_the_same_bits_with_taps_and_with_recorders,
                     boost::unit_test::data::make(kFloat) + kRecurrent, name) {
  const Reference reference(name);
  Model plain(file(name + ".plain.pt2")), model(file(name + ".pt2"));
  BOOST_TEST(!plain.tapped());
  BOOST_TEST(model.tapped());
  const auto expected = plain.run(reference.inputs());
  BOOST_TEST(identical(model.run(reference.inputs()), expected));
  {
    ForwardOutput all;
    all.modules(model);
    BOOST_TEST(identical(model.run(reference.inputs()), expected));
  }
  BOOST_TEST(identical(model.run(reference.inputs()), expected));
}

/// By the expert that a module below gives, by the class that the model gives in the end, and by a number of
/// the module's own input.
BOOST_AUTO_TEST_CASE(pair_modules_of_one_forward, *boost::unit_test::precondition(on_the_cpu)) {
  using namespace tap::reductions;
  using tap::recorders::output;
  const Reference reference("experts");
  Model model(file("experts.pt2"));
  const auto by_key = [](const tap::recorders::Companion& key, std::int64_t n) {
    return RecorderOptions().with("key", key).reduction(by("key", n, Mean(MeanOptions().over({0}))));
  };
  const auto largest = [](const at::Tensor& y) { return y.argmax(1); };
  ForwardOutput by_expert(by_key(output(model, "./router", 1), 3)),
      by_class(by_key(output(model, "/").map(largest), 4)),
      by_input(by_key(tap::recorders::Companion(false, ".", 0, model.modules().vector()).map(largest), 8));
  const auto mixture = tap::selectors::names("mixture");
  by_expert.modules(model, mixture);
  by_class.modules(model, mixture);
  by_input.modules(model, mixture);
  BOOST_CHECK_EXCEPTION(
      ForwardOutput(by_key(output(model, "./rooter"), 3)).modules(model, mixture), c10::ValueError,
      [](const c10::Error& e) { return e.msg().find("mixture.router") != std::string::npos; });
  for (int i = 0; i < 3; ++i) model.run(reference.inputs());
  const at::Tensor y = reference.seen("out", "mixture");
  const auto check = [&](const tap::recorders::Recorder& recorder, const at::Tensor& keys, std::int64_t n) {
    const auto results = recorder.at("mixture").results();
    BOOST_TEST(recorder.at("mixture").unmatched() == 0);
    BOOST_TEST(at::equal(results.at("key.count"), 3 * keys.bincount({}, n)));
    for (std::int64_t key = 0; key < n; ++key) {
      const at::Tensor rows = y.index({keys == key});
      if (rows.size(0) == 0) continue;
      BOOST_TEST(close(results.at("value").select(0, key).to(y.scalar_type()), rows.mean(0)), key);
    }
  };
  check(by_expert, reference.seen("out", "mixture.router", 0, 1), 3);
  check(by_class, reference.seen("out", "").argmax(1), 4);
  check(by_input, reference.seen("pre", "mixture").argmax(1), 8);
}

BOOST_AUTO_TEST_CASE(have_the_modules_that_were_tapped) {
  const Model model(file("resnet18.pt2"));
  const auto modules = tap::selectors::modules(model).vector();
  BOOST_TEST(modules.front().path() == "");
  BOOST_TEST(modules.front().type() == "ResNet");
  BOOST_TEST(modules.front().exported());
  BOOST_TEST(!modules.front().scripted());
  BOOST_TEST(modules.size() == 1 + 1 + 4 + 4 * 2 + 16 + 16 + 8 + 3 * 3 + 1);
  BOOST_TEST(modules[1].path() == "conv1");
  BOOST_TEST(modules[2].path() == "layer1");
  BOOST_TEST(modules[3].path() == "layer1.0");
  BOOST_TEST(modules[4].path() == "layer1.0.conv1");
  BOOST_TEST(modules[1].type() == "Conv2d");
  BOOST_TEST(modules[1].qualified_type() == "torch.nn.modules.conv.Conv2d");
  BOOST_TEST(modules[1].leaf());
  BOOST_TEST(modules[1].index() == 1);
  BOOST_TEST((modules[1].root() == modules.front()));
  BOOST_CHECK_THROW(modules[1].module(), c10::TypeError);
  BOOST_CHECK_THROW(modules[1].script(), c10::TypeError);
  BOOST_TEST(tap::selectors::children(model).vector().size() == 6U);  // bn1 and others are not tapped
  ForwardOutput maps(tap::reductions::Moments{});
  maps.modules(model, tap::selectors::types("Conv2d") && tap::selectors::names("layer1.*"));
  BOOST_TEST(maps.size() == 4);
  maps.children(model, tap::selectors::indices({0}));
  BOOST_TEST(maps[4].path() == "conv1");
  maps.attach(model, tap::selectors::names("fc"));
  BOOST_TEST(maps.size() == 6);
}

BOOST_AUTO_TEST_CASE(list_a_shared_module_once_and_count_its_calls) {
  const Reference reference("twice");
  Model model(file("twice.pt2"));
  BOOST_TEST(model.calls("act") == 2);
  BOOST_TEST(model.calls("first") == 1);
  ForwardOutput outputs;
  outputs.modules(model, tap::selectors::names("same"));
  BOOST_TEST(outputs[0].path() == "act");
  std::vector<std::int64_t> calls;
  ForwardOutput second(RecorderOptions().condition([&](const tap::recorders::Sample& sample) {
    calls.push_back(sample.call_index());
    return sample.call_index() == 1;
  }));
  second.modules(model, tap::selectors::names("act"));
  for (int i = 0; i < 2; ++i) model.run(reference.inputs());
  BOOST_TEST(outputs.samples() == 4);
  BOOST_TEST((calls == std::vector<std::int64_t>{0, 1, 0, 1}));
  BOOST_TEST(second.samples() == 2);
  BOOST_TEST(close(second[0].tensors()[0], reference.seen("out", "act", 1)));
}

BOOST_AUTO_TEST_CASE(follow_dynamic_shapes) {
  Model model(file("dynamic.pt2")), plain(file("dynamic.plain.pt2"));
  BOOST_TEST(model.inputs().size() == 1U);
  BOOST_TEST(model.inputs()[0].dtype == "float32");
  BOOST_TEST(model.inputs()[0].shape[1] == "16");
  ForwardOutput outputs;
  outputs.modules(model, tap::selectors::names("b"));
  for (const std::int64_t batch : {2, 9, 64}) {
    const at::Tensor x = at::randn({batch, 16}, package_device());
    // With dynamic shapes on a device, plain and tapped code may add in different orders.
    BOOST_TEST((package_device().is_cpu() ? identical(model.run({x}), plain.run({x}))
                                          : close(model.run({x})[0], plain.run({x})[0])));
    BOOST_TEST((outputs[0].tensors().back().sizes() == at::IntArrayRef{batch, 32}));
  }
}

BOOST_AUTO_TEST_CASE(made_of_a_program_give_the_same) {
  const Reference reference("mlp");
  Model model(file("program.pt2"));
  ForwardOutput outputs;
  outputs.modules(model);
  BOOST_TEST(outputs.size() == 6);
  model.run(reference.inputs());
  BOOST_TEST(compare(outputs, reference, "out") == 6);
}

BOOST_AUTO_TEST_CASE(reduce_as_other_models) {
  const Reference reference("mlp");
  Model model(file("mlp.pt2"));
  ForwardOutput moments(tap::reductions::Moments(tap::reductions::MomentsOptions().over({0}))), kept;
  moments.modules(model, tap::selectors::names("b"));
  kept.modules(model, tap::selectors::names("b"));
  model.run(reference.inputs());
  model.run({at::randn({4, 16}, package_device())});
  const at::Tensor all = at::cat(kept[0].tensors());
  BOOST_TEST(at::allclose(moments[0].tensor("mean"), all.mean(0).to(moments[0].tensor("mean").dtype())));
  BOOST_TEST(
      at::allclose(moments[0].tensor("variance"), all.var(0, true).to(moments[0].tensor("mean").dtype())));
}

BOOST_AUTO_TEST_SUITE_END()
