// Attaching hooks to TorchScript models and removing them.
#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/api/function_impl.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/mean.hpp>
#include <torchtap/reductions/sum.hpp>
#include <torchtap/selectors/selectors.hpp>

#include "tests/script/support.hpp"
#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(models)

namespace tap = torchtap;
using namespace torchtap_test;
using tap::recorders::ForwardOutput;
using tap::recorders::ForwardPre;
using tap::recorders::RecorderOptions;

namespace {

const void* executed_graph(const torch::jit::Module& model) {
  return torch::jit::toGraphFunction(model.get_method("forward").function()).optimized_graph().get();
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(are_walked_like_others) {
  const auto model = load("resnet18.script");
  const auto modules = tap::selectors::modules(model);
  BOOST_TEST(modules.vector().size() == 68U);
  const auto& root = modules.vector().front();
  BOOST_TEST(root.path() == "");
  BOOST_TEST(root.type() == "ResNet");
  BOOST_TEST(root.scripted());
  BOOST_TEST(!root.frozen());
  const auto& conv = modules.vector()[1];
  BOOST_TEST(conv.path() == "conv1");
  BOOST_TEST(conv.type() == "Conv2d");
  BOOST_TEST(conv.qualified_type() == "__torch__.torch.nn.modules.conv.Conv2d");
  BOOST_TEST(conv.leaf());
  BOOST_TEST(conv.depth() == 1);
  BOOST_CHECK_THROW(conv.module(), c10::TypeError);
  BOOST_TEST(tap::selectors::children(model).vector().size() == 10U);

  ForwardOutput maps(tap::reductions::Mean(tap::reductions::MeanOptions().over({0})));
  maps.modules(model, tap::selectors::types("Conv2d") && tap::selectors::names("layer*"));
  BOOST_TEST(maps.size() == 19);
  ForwardOutput qualified;
  qualified.modules(model, tap::selectors::types("__torch__.torch.nn.modules.conv.Conv2d"));
  BOOST_TEST(qualified.size() == 20);
  ForwardOutput third;
  third.children(model, tap::selectors::indices({2}));
  BOOST_TEST(third[0].name() == "relu");
  BOOST_TEST(tap::model::find(model, "layer1.0.bn1").type() == "BatchNorm2d");
  BOOST_CHECK_THROW(tap::model::find(model, "layer1.0.bn3"), c10::IndexError);
}

BOOST_AUTO_TEST_CASE(list_a_shared_module_once) {
  const auto part = load("forked.script").attr("last").toModule();
  torch::jit::Module whole("Whole");
  whole.register_module("a", part);
  whole.register_module("b", part);
  whole.define("def forward(self, x):\n    return self.a.forward(x) + self.b.forward(x)\n");
  const auto shared = tap::model::find(whole, "b");
  BOOST_TEST(shared.path() == "a");
  BOOST_TEST((shared.aliases() == std::vector<std::string>{"b"}));
  ForwardOutput outputs;
  outputs.modules(whole, tap::selectors::types("Linear"));
  whole.forward(arguments("forked"));
  BOOST_TEST(outputs.samples() == 2);
}

BOOST_AUTO_TEST_CASE(reduce_and_stop_early) {
  auto model = load("resnet18.script");
  const auto inputs = arguments("resnet18");
  ForwardOutput mean(tap::reductions::Mean(tap::reductions::MeanOptions().over({0})));
  mean.modules(model, tap::selectors::names("layer1"));
  ForwardOutput kept, late;
  kept.modules(model, tap::selectors::names("layer1"));
  late.modules(model, tap::selectors::names("layer2"));
  BOOST_TEST(kept.until_recorded([&] { model.forward(inputs); }));
  BOOST_TEST(late.samples() == 0);
  BOOST_TEST(at::allclose(mean[0].tensor(), kept[0].tensors()[0].mean(0)));
  model.forward(inputs);
  BOOST_TEST(late.samples() == 1);
}

BOOST_AUTO_TEST_CASE(attach_before_and_after_the_first_run) {
  const auto inputs = arguments("resnet18");
  auto model = load("resnet18.script");
  const auto loaded = load("resnet18.script");
  for (int round = 0; round < 20; ++round) {
    ForwardOutput outputs;
    outputs.modules(model, tap::selectors::types(round % 2 == 0 ? "Conv2d" : "BatchNorm2d"));
    BOOST_TEST(outputs.samples() == 0);
    model.forward(inputs);
    BOOST_TEST(outputs.samples() == 20);
  }
  // One after the other, without a batch, and removed in another order.
  auto first = tap::hooks::attach(tap::model::find(model, "conv1"), tap::hooks::Kind::forward_output,
                                  [](tap::hooks::Event&) {});
  int calls = 0;
  auto second = tap::hooks::attach(tap::model::find(model, "layer1.0"), tap::hooks::Kind::forward_output,
                                   [&](tap::hooks::Event&) { ++calls; });
  model.forward(inputs);
  first.remove();
  model.forward(inputs);
  BOOST_TEST(calls == 2);
  BOOST_TEST(second.attached());
  second.remove();
  model.forward(inputs);
  BOOST_TEST(calls == 2);
}

BOOST_AUTO_TEST_CASE(are_as_before_once_detached) {
  const auto inputs = arguments("tagger");
  auto model = load("tagger.script");
  for (int i = 0; i < 3; ++i) model.forward(inputs);
  const void* warm = executed_graph(model);
  {
    ForwardOutput outputs;
    outputs.modules(model);
    BOOST_TEST(executed_graph(model) != warm);
    model.forward(inputs);
  }
  BOOST_TEST(executed_graph(model) == warm);
  BOOST_TEST(
      !has(torch::jit::toGraphFunction(model.get_method("forward").function()).optimized_graph()->toString(),
           "torchtap::"));
}

BOOST_AUTO_TEST_CASE(are_saved_and_cloned_without_a_trace) {
  const auto inputs = arguments("values");
  auto model = load("values.script");
  ForwardOutput outputs;
  outputs.modules(model);
  const auto result = flat(model.forward(inputs));
  const auto samples = outputs.samples();
  BOOST_TEST(samples > 0);

  TemporaryDirectory directory;
  model.save(directory / "saved.pt");
  std::ifstream stream(directory / "saved.pt", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  BOOST_TEST(!has(bytes, "ops.torchtap"));
  BOOST_TEST(same(flat(torch::jit::load(directory / "saved.pt").forward(inputs)), result));

  BOOST_TEST(same(flat(model.clone().forward(inputs)), result));
  BOOST_TEST(same(flat(model.deepcopy().forward(inputs)), result));
  BOOST_TEST(same(flat(load("values.script").forward(inputs)), result));
  BOOST_TEST(outputs.samples() == samples);  // none of these has hooks
  ForwardOutput of_copy;
  auto copy = model.deepcopy();
  of_copy.modules(copy, tap::selectors::names("join"));
  copy.forward(inputs);
  BOOST_TEST(of_copy.samples() == 2);
  BOOST_TEST(outputs.samples() == samples);
}

BOOST_AUTO_TEST_CASE(whose_instances_share_a_class_are_told_apart) {
  auto model = load("siamese.script");
  ForwardOutput twin;
  twin.modules(model, tap::selectors::names("twin.inner"));
  std::vector<std::int64_t> calls;
  auto handle = tap::hooks::attach(tap::model::find(model, "pair.inner"), tap::hooks::Kind::forward_output,
                                   [&](tap::hooks::Event& event) { calls.push_back(event.call_index()); });
  for (int i = 0; i < 2; ++i) model.forward(arguments("siamese"));
  BOOST_TEST(twin.samples() == 4);
  BOOST_TEST((calls == std::vector<std::int64_t>{0, 1, 2, 3, 0, 1, 2, 3}));
  auto traced = load("siamese.trace");
  BOOST_TEST(traced.attr("pair").toModule().find_method("forward1").has_value());
  calls.clear();
  auto other = tap::hooks::attach(tap::model::find(traced, "pair.inner"), tap::hooks::Kind::forward_output,
                                  [&](tap::hooks::Event& event) { calls.push_back(event.call_index()); });
  for (int i = 0; i < 2; ++i) traced.forward(arguments("siamese"));
  BOOST_TEST((calls == std::vector<std::int64_t>{0, 1, 2, 3, 0, 1, 2, 3}));
}

BOOST_AUTO_TEST_CASE(are_recorded_in_other_methods) {
  auto model = load("values.script");
  const auto x = at::randn({4, 6});
  ForwardOutput encoded, blocks, forwards;
  encoded.modules(model, tap::selectors::names(""), "encode");
  blocks.modules(model, tap::selectors::names("blocks"));
  forwards.modules(model, tap::selectors::names(""));
  const auto result = model.get_method("encode")({x}).toTensor();
  BOOST_TEST(at::equal(encoded[0].tensors().at(0), result));
  BOOST_TEST(at::equal(blocks[0].tensors().at(0), result));
  BOOST_TEST(forwards.samples() == 0);
  model.forward(arguments("values"));
  BOOST_TEST(encoded.samples() == 1);
  BOOST_TEST(forwards.samples() == 1);

  BOOST_CHECK_EXCEPTION(ForwardOutput().modules(model, tap::selectors::names(""), "decode"), c10::ValueError,
                        says({"no decode"}));
  BOOST_CHECK_THROW(ForwardOutput().modules(model, {}, ""), c10::ValueError);
}

BOOST_AUTO_TEST_CASE(that_cannot_be_hooked_say_why) {
  for (const std::string name : {"resnet18.frozen", "siamese.optimized"}) {
    auto model = load(name);
    BOOST_CHECK_EXCEPTION(ForwardOutput().modules(model, tap::selectors::types("Conv2d")), c10::ValueError,
                          says({"frozen", "Load the file as it was before"}));
    BOOST_CHECK_EXCEPTION(ForwardOutput().modules(model), c10::ValueError, says({"frozen"}));
    BOOST_CHECK_EXCEPTION(ForwardOutput().children(model), c10::ValueError, says({"frozen"}));
    ForwardOutput whole;
    whole.modules(model, tap::selectors::names(""));
    const auto result = model.forward(arguments(name.substr(0, name.find('.')))).toTensor();
    BOOST_TEST(at::equal(whole[0].tensors().at(0), result));
  }
  auto model = load("detector.script");
  BOOST_CHECK_EXCEPTION(ForwardOutput().modules(model, tap::selectors::names("heads")), c10::ValueError,
                        says({"heads", "ModuleDict", "no forward"}));
  BOOST_CHECK_EXCEPTION(ForwardOutput().modules(model, tap::selectors::names("head")), c10::ValueError,
                        says({"nearest", "heads"}));
}

BOOST_AUTO_TEST_CASE(get_what_hooks_put_in_place) {
  auto model = load("values.script");
  const auto inputs = arguments("values");
  const auto plain = flat(model.forward(inputs));
  const at::Tensor zeros = at::zeros({4, 6});
  {
    // The third input of join is a list that its caller also holds.
    auto handle = tap::hooks::attach(tap::model::find(model, "join"), tap::hooks::Kind::forward_pre,
                                     [&](tap::hooks::Event& event) {
                                       BOOST_TEST(event.inputs().size() == (event.call_index() == 0 ? 3 : 4));
                                       BOOST_TEST(event.inputs()[1].defined() == (event.call_index() == 1));
                                       for (int i = 2; i < event.inputs().size(); ++i)
                                         event.inputs()[i] = zeros;
                                     });
    const auto changed = model.forward(inputs);
    const auto& parts = changed.toTupleRef().elements();
    BOOST_TEST(at::equal(parts[2].toTensorVector()[0], zeros));
    BOOST_TEST(has(changed.type()->str(), "Parts"));
  }
  {
    auto handle = tap::hooks::attach(tap::model::find(model, "join"), tap::hooks::Kind::forward_output,
                                     [&](tap::hooks::Event& event) {
                                       if (event.call_index() == 1) event.outputs()[0] = zeros;
                                     });
    const auto changed = model.forward(inputs);
    BOOST_TEST(at::equal(changed.toTupleRef().elements()[0].toTensor(), zeros));
    BOOST_TEST(has(changed.type()->str(), "Parts"));
  }
  {
    auto handle = tap::hooks::attach(tap::model::find(model, "join"), tap::hooks::Kind::forward_pre,
                                     [&](tap::hooks::Event& event) {
                                       if (event.call_index() == 0)
                                         event.inputs()[1] = zeros;  // None was passed
                                     });
    BOOST_TEST(has(message_of([&] { model.forward(inputs); }), "holds an empty optional"));
  }
  BOOST_TEST(same(flat(model.forward(inputs)), plain));

  auto detector = load("detector.script");
  const auto images = arguments("detector");
  auto handle = tap::hooks::attach(tap::model::find(detector, "backbone"), tap::hooks::Kind::forward_output,
                                   [](tap::hooks::Event& event) {
                                     BOOST_TEST(event.outputs().size() == 2);
                                     event.outputs()[1] = at::zeros_like(event.outputs()[1]);
                                   });
  const auto found = flat(detector.forward(images));
  const auto weights = detector.attr("heads").toModule().attr("boxes").toModule().attr("regress").toModule();
  BOOST_TEST(at::allclose(found[0], weights.attr("bias").toTensor() * 32));
}

// See values_test.cpp.
#ifdef __SANITIZE_THREAD__
BOOST_AUTO_TEST_CASE(report_what_a_hook_throws, *boost::unit_test::disabled()) {
#else
BOOST_AUTO_TEST_CASE(report_what_a_hook_throws) {
#endif
  auto model = load("forked.script");
  const auto inputs = arguments("forked");
  const auto plain = flat(model.forward(inputs));
  tap::recorders::ForwardOutput outputs;
  outputs.modules(model);
  for (const char* name : {"left", "last"}) {
    auto handle =
        tap::hooks::attach(tap::model::find(model, name), tap::hooks::Kind::forward_pre,
                           [](tap::hooks::Event&) { TORCH_CHECK_VALUE(false, "the hook's own words"); });
    BOOST_TEST(has(message_of([&] { model.forward(inputs); }), "the hook's own words"));
  }
  outputs.reset();
  BOOST_TEST(same(flat(model.forward(inputs)), plain));
  BOOST_TEST(outputs.samples() == 4);
}

// Python's own hooks, attached after those that are in the file, are compared in values_test.
BOOST_AUTO_TEST_CASE(with_hooks_in_the_file_are_recorded_as_their_callers_see_them) {
  auto model = load("hooked.script");
  const auto inputs = arguments("hooked");
  ForwardOutput outputs;
  outputs.attach(model);
  const at::Tensor wanted = load("hooked.script").forward(inputs).toTensor();
  const auto seen = [&](const std::string& path) { return outputs.at(path).tensors(); };
  for (int run = 0; run < 3; ++run) {
    outputs.reset();
    BOOST_TEST(at::equal(model.forward(inputs).toTensor(), wanted));
    BOOST_TEST(at::equal(seen("nested.0.fc").at(0).tanh() * 2, seen("nested.0").at(0)));
    BOOST_TEST(at::equal(seen("nested.1").at(0) * 2, seen("nested").at(0)));
    BOOST_TEST(at::equal(seen("nested").at(0) + seen("forked").at(0), wanted));
    BOOST_TEST(seen("both").size() == 2U);
  }
  for (const auto& module : outputs) BOOST_TEST(module.note() == "");

  // One hook after the other, of either side, and none.
  outputs.detach();
  const std::string code = model.get_method("forward").graph()->toString();
  for (const auto* path : {"after", "both", "nested", "nested.0", "halves", "forked", "before"}) {
    for (const auto kind :
         {tap::hooks::Kind::forward_pre, tap::hooks::Kind::forward_output, tap::hooks::Kind::forward}) {
      int calls = 0;
      auto handle =
          tap::hooks::attach(tap::model::find(model, path), kind, [&](tap::hooks::Event&) { ++calls; });
      BOOST_TEST(at::equal(model.forward(inputs).toTensor(), wanted), path);
      BOOST_TEST(calls == (std::string(path) == "both" ? 2 : 1), path);
    }
  }
  BOOST_TEST(at::equal(model.forward(inputs).toTensor(), wanted));
  BOOST_TEST(model.get_method("forward").graph()->toString() == code);
}

BOOST_AUTO_TEST_CASE(with_hooks_in_the_file_pass_on_what_hooks_put_in_place) {
  auto model = load("hooked.script");
  const auto inputs = arguments("hooked");
  const auto module = tap::model::find(model, "after");  // y * 2, then + x
  ForwardOutput outputs;
  ForwardPre next;
  outputs.attach(model, tap::selectors::names({"after", "after.fc"}));
  next.attach(model, tap::selectors::names("list.0"));
  {
    auto handle = tap::hooks::attach(module, tap::hooks::Kind::forward_pre, [](tap::hooks::Event& event) {
      event.inputs()[0] = at::full({4, 6}, 7.F);
    });
    model.forward(inputs);
    // The file's hook adds what forward was given.
    const at::Tensor wanted = outputs.at("after.fc").tensors().at(0).tanh() * 2 + 7;
    BOOST_TEST(at::equal(outputs.at("after").tensors().at(0), wanted));
  }
  auto handle = tap::hooks::attach(module, tap::hooks::Kind::forward_output, [](tap::hooks::Event& event) {
    event.outputs()[0] = at::full({4, 6}, 5.F);
  });
  model.forward(inputs);
  BOOST_TEST(at::equal(next.at("list.0").tensors().at(1), at::full({4, 6}, 5.F)));
}

// A program calls the root itself, by `forward` without the file's hooks, by `operator()` with them.
BOOST_AUTO_TEST_CASE(with_hooks_of_the_root_in_the_file_say_that_these_run_outside) {
  auto model = load("hooked_root.script");
  const auto inputs = arguments("hooked");
  const at::Tensor x = inputs.at(0).toTensor();
  const at::Tensor plain = model.forward(inputs).toTensor(), called = model(inputs).toTensor();
  ForwardOutput outputs;
  ForwardPre pre;
  outputs.attach(model);
  pre.attach(model);
  BOOST_TEST(at::equal(model.forward(inputs).toTensor(), plain));
  BOOST_TEST(at::equal(outputs.at("").tensors().at(0), plain));
  BOOST_TEST(at::equal(model(inputs).toTensor(), called));
  BOOST_TEST(at::equal(pre.at("").tensors().at(1), x + 1));
  BOOST_TEST(at::equal(outputs.at("").tensors().at(1) * 2 + (x + 1), called));
  BOOST_TEST(has(outputs.at("").note(), "hooks of this model compiled in"), outputs.at("").note());
  BOOST_TEST(outputs.at("after").note() == "");
}

// The code of a module has operators before forward, after it or both, as its hooks need.
BOOST_AUTO_TEST_CASE(have_hooks_that_see_different_sides) {
  using tap::hooks::Event;
  using tap::hooks::Handle;
  using tap::hooks::Kind;
  using Indices = std::vector<std::int64_t>;
  torch::jit::Module leaf("SidesLeaf");
  leaf.define("def forward(self, x, y: Optional[Tensor] = None):\n    return x * 2\n");
  torch::jit::Module root("SidesRoot");
  root.register_module("leaf", leaf);
  root.define("def forward(self, x):\n    return self.leaf.forward(self.leaf.forward(x), x)\n");
  const auto module = tap::model::find(root, "leaf");
  const torch::NoGradGuard no_grad;
  const auto run = [&] { return root.forward({at::ones({1})}).toTensor().item<double>(); };
  BOOST_TEST(run() == 4);

  Indices outputs, inputs, both;
  double halves = 0;
  Handle after = tap::hooks::attach(module, Kind::forward_output, [&](Event& event) {
    outputs.push_back(event.call_index());
    BOOST_TEST(event.outputs().size() == 1);
  });
  BOOST_TEST(run() == 4);
  BOOST_TEST(outputs == (Indices{0, 1}), boost::test_tools::per_element());

  Handle before = tap::hooks::attach(module, Kind::forward_pre, [&](Event& event) {
    inputs.push_back(event.call_index());
    BOOST_TEST(event.inputs().size() == 2);
    event.inputs()[0] = event.inputs()[0] + 1;
  });
  BOOST_TEST(run() == 10);
  after.remove();
  BOOST_TEST(run() == 10);
  BOOST_TEST(inputs == (Indices{0, 1, 0, 1}), boost::test_tools::per_element());
  BOOST_TEST(outputs == (Indices{0, 1, 0, 1}), boost::test_tools::per_element());
  before.remove();
  BOOST_TEST(run() == 4);

  // Attached while code runs that has no operators before forward: the hook sees later forwards, and those
  // that were there before see all.
  inputs.clear();
  outputs.clear();
  Handle around;
  after = tap::hooks::attach(module, Kind::forward_output, [&](Event& event) {
    outputs.push_back(event.call_index());
    if (around.attached()) return;
    around = tap::hooks::attach(module, Kind::forward, [&](Event& inner) {
      both.push_back(inner.call_index());
      halves += (inner.outputs()[0] / inner.inputs()[0]).item<double>();
    });
  });
  BOOST_TEST(run() == 4);
  BOOST_TEST(outputs == (Indices{0, 1}), boost::test_tools::per_element());
  BOOST_TEST(both.empty());
  BOOST_TEST(run() == 4);
  BOOST_TEST(outputs == (Indices{0, 1, 0, 1}), boost::test_tools::per_element());
  BOOST_TEST(both == (Indices{0, 1}), boost::test_tools::per_element());
  BOOST_TEST(halves == 4);
}

BOOST_AUTO_TEST_CASE(are_called_through_interfaces) {
  auto model = load("interfaced.script");
  ForwardOutput outputs;
  outputs.modules(model);
  const auto result = model.forward(arguments("interfaced")).toTensor();
  BOOST_TEST(at::equal(outputs.at("layer").tensors().at(0) + 1, result));
}

BOOST_AUTO_TEST_CASE(are_put_together_in_cpp) {
  auto part = load("siamese.script");
  torch::jit::Module whole("Whole");
  whole.register_module("part", part);
  whole.define("def forward(self, x):\n    return self.part.forward(x) * 2\n");
  const auto inputs = arguments("siamese");
  const auto plain = whole.forward(inputs).toTensor();
  ForwardOutput outputs;
  outputs.modules(whole);
  BOOST_TEST(at::equal(whole.forward(inputs).toTensor(), plain));
  BOOST_TEST(at::equal(outputs.at("part").tensors().at(0) * 2, plain));
  BOOST_TEST(outputs.at("part.pair.inner.0").samples() == 4);
  // The part is also a model of its own.
  part.forward(inputs);
  BOOST_TEST(outputs.at("part.pair.inner.0").samples() == 8);
}

// `freeze` copies the model, and removes methods of the copy from the code that both share.
BOOST_AUTO_TEST_CASE(attach_after_a_frozen_copy_was_made) {
  torch::jit::Module part("Part"), whole("Whole");
  part.define("def forward(self, x):\n    return x + 1\n");
  whole.register_module("part", part);
  whole.define(
      "def unused(self, x):\n    return x\ndef forward(self, x):\n    return self.part.forward(x) * 2\n");
  whole.eval();
  torch::jit::Module frozen = torch::jit::freeze(whole);
  ForwardOutput outputs;
  outputs.attach(whole);
  BOOST_TEST(whole.forward({torch::ones({1})}).toTensor().item<float>() == 4);
  BOOST_TEST(outputs.at("part").tensors().at(0).item<float>() == 2);
  BOOST_TEST(frozen.forward({torch::ones({1})}).toTensor().item<float>() == 4);
  BOOST_TEST(outputs.samples() == 2);
}

BOOST_AUTO_TEST_CASE(run_under_autocast) {
  const auto cast = [](bool on) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
    at::autocast::set_autocast_enabled(at::kCPU, on);
#else
    at::autocast::set_cpu_enabled(on);
#endif
    if (!on) at::autocast::clear_cache();
  };
  auto model = load("siamese.script");
  auto plain = load("siamese.script");
  const auto inputs = arguments("siamese");
  ForwardOutput outputs;
  outputs.modules(model, tap::selectors::types("Linear"));
  torch::NoGradGuard no_grad;
  for (int i = 0; i < 3; ++i) {
    cast(true);
    const auto result = model.forward(inputs).toTensor();
    const auto wanted = plain.forward(inputs).toTensor();
    cast(false);
    BOOST_TEST(result.scalar_type() == wanted.scalar_type());
    // Newer executors fuse half-precision operations once they are warm, without rounding in between.
    const bool is_same = i == 0 ? at::equal(result, wanted) : at::allclose(result, wanted, 0.02, 0.02);
    BOOST_TEST(is_same, "run " << i);
    BOOST_TEST(at::equal(model.forward(inputs).toTensor(), plain.forward(inputs).toTensor()));
  }
  BOOST_TEST(outputs.samples() == 6 * 6);
}

BOOST_AUTO_TEST_CASE(die_before_and_after_their_recorders) {
  const auto inputs = arguments("siamese");
  ForwardOutput outputs;
  {
    auto model = load("siamese.script");
    outputs.modules(model);
    model.forward(inputs);
  }
  const auto samples = outputs.samples();
  BOOST_TEST(samples > 0);
  outputs.detach();
  for (int i = 0; i < 5; ++i) {
    auto model = load("siamese.script");
    auto handle = std::make_unique<ForwardOutput>();
    handle->modules(model);
    model.forward(inputs);
    if (i % 2 == 0) handle.reset();
    model = torch::jit::Module();
  }
  BOOST_TEST(outputs.samples() == samples);
}

BOOST_AUTO_TEST_CASE(take_released_hooks_along) {
  std::vector<std::weak_ptr<int>> alive;
  constexpr int kModels = 200;
  for (int i = 0; i < kModels; ++i) {
    torch::jit::Module model("model");
    torch::jit::Module part("part");
    part.define("def forward(self, x):\n  return x + 1\n");
    model.register_module("part", part);
    model.define("def forward(self, x):\n  return self.part.forward(x)\n");
    auto state = std::make_shared<int>(0);
    alive.push_back(state);
    for (const auto& module : tap::model::walk_modules(model)) {
      auto handle = tap::hooks::attach(module, tap::hooks::Kind::forward_output,
                                       [state](tap::hooks::Event&) { ++*state; });
      handle.release();
    }
    model.forward({at::ones({1})});
    BOOST_TEST(*state == 2);
  }
  const auto left = std::count_if(alive.begin(), alive.end(), [](const auto& one) { return !one.expired(); });
  BOOST_TEST(left < kModels / 4);
}

BOOST_AUTO_TEST_CASE(run_in_several_threads) {
  const auto inputs = arguments("siamese");
  auto model = load("siamese.script");
  const auto plain = flat(model.forward(inputs));
  constexpr int kThreads = 4, kRuns = 50;
  ForwardOutput sums(tap::reductions::Sum{});
  sums.modules(model);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRuns; ++i) wrong += same(flat(model.forward(inputs)), plain) ? 0 : 1;
    });
  }
  for (auto& thread : threads) thread.join();
  BOOST_TEST(wrong.load() == 0);
  BOOST_TEST(sums.at("").samples() == kThreads * kRuns);
  BOOST_TEST(sums.at("pair.inner.0").samples() == kThreads * kRuns * 4);
}

BOOST_AUTO_TEST_CASE(attach_and_detach_while_others_run) {
  const auto inputs = arguments("siamese");
  auto model = load("siamese.script");
  const auto plain = flat(model.forward(inputs));
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop) wrong += same(flat(model.forward(inputs)), plain) ? 0 : 1;
    });
  }
  for (int round = 0; round < 60; ++round) {
    ForwardOutput outputs(tap::reductions::Sum{});
    outputs.modules(model, tap::selectors::types(round % 3 == 0   ? "Linear"
                                                 : round % 3 == 1 ? "Tanh"
                                                                  : "Pair"));
    const auto before = outputs.samples();
    while (outputs.samples() < before + 20) std::this_thread::yield();
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  BOOST_TEST(wrong.load() == 0);
}

// Nothing else is recorded of the module, so nothing else asks for its calls.
BOOST_AUTO_TEST_CASE(record_gradients_of_outputs_alone) {
  torch::jit::Module inner("Inner"), model("Outer");
  inner.define("def forward(self, x):\n  return x * 2\n");
  model.register_module("inner", inner);
  model.define("def forward(self, x):\n  return self.inner.forward(x) * 3\n");
  tap::recorders::BackwardOutput outputs;
  outputs.attach(model, "inner");
  for (int run = 0; run < 3; ++run) {
    model.forward({torch::ones({2}, torch::requires_grad())}).toTensor().sum().backward();
  }
  BOOST_REQUIRE(outputs[0].samples() == 3);
  for (const auto& sample : outputs[0].tensors()) BOOST_TEST(sample.equal(torch::full({2}, 3.0)));
}

// MobileNetV3 computes with functions that change their input in place and keep a copy of it.
BOOST_AUTO_TEST_CASE(record_gradients_of_inputs_that_are_changed_in_place) {
  const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
  auto model = load("mobilenet.script");
  const auto run = [&] {
    auto inputs = arguments("mobilenet");
    const at::Tensor image = inputs[0].toTensor().detach().requires_grad_();
    model.forward({image}).toTensor().sum().backward();
    return image.grad();
  };
  const at::Tensor plain = run();
  tap::recorders::BackwardInput inputs;
  tap::recorders::BackwardOutput outputs;
  inputs.attach(model);
  outputs.attach(model);
  BOOST_TEST(at::allclose(run(), plain));
  for (const auto& subrecorder : inputs) {
    BOOST_TEST(subrecorder.left_out() == 0, subrecorder.path() << ": " << subrecorder.note());
    BOOST_TEST((subrecorder.samples() == outputs[0].samples() || subrecorder.type() == "Dropout"),
               subrecorder.path());
  }
  BOOST_TEST(at::allclose(inputs[0].tensors().at(0), plain));
  // Hardswish after a batch normalisation is given what that returns, and nothing else is.
  BOOST_TEST(inputs.at("features.0.2").type() == "Hardswish");
  BOOST_TEST(
      at::allclose(inputs.at("features.0.2").tensors().at(0), outputs.at("features.0.1").tensors().at(0)));
}

BOOST_AUTO_TEST_SUITE_END()
