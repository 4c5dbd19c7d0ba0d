// Hooks on packages: what they see and replace, their exceptions, and what is refused.
#include <fstream>
#include <stdexcept>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/selectors/selectors.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(hooks)

namespace tap = torchtap;
using namespace torchtap_test;
using tap::exported::Model;
using tap::hooks::Kind;
using tap::recorders::ForwardOutput;
using tap::recorders::RecorderOptions;

BOOST_AUTO_TEST_CASE(see_inputs_and_outputs_of_one_call, *boost::unit_test::precondition(on_the_cpu)) {
  const Reference reference("tagger");
  Model model(file("tagger.pt2"));
  std::vector<std::string> order;
  std::vector<tap::hooks::Handle> handles;
  for (const auto& module : model.modules()) {
    for (const auto kind : {Kind::forward_pre, Kind::forward, Kind::forward_output}) {
      handles.push_back(tap::hooks::attach(module, kind, [&order](tap::hooks::Event& event) {
        order.push_back(c10::str(static_cast<int>(event.kind()), event.path()));
        if (event.kind() == Kind::forward && event.path() == "lstm") {
          BOOST_TEST(event.inputs().size() == 1);
          BOOST_TEST(event.outputs().size() == 3);
        }
      }));
    }
  }
  model.run(reference.inputs());
  const std::vector<std::string> expected{"0",     "0embed", "1embed", "2embed", "0lstm", "1lstm",
                                          "2lstm", "0tag",   "1tag",   "2tag",   "1",     "2"};
  BOOST_TEST(order == expected, boost::test_tools::per_element());
  handles.clear();
  order.clear();
  model.run(reference.inputs());
  BOOST_TEST(order.empty());
}

BOOST_AUTO_TEST_CASE(replace_outputs_and_inputs) {
  const Reference reference("replaceable");
  Model model(file("replaceable.pt2"));
  const auto before = model.run(reference.inputs());
  ForwardOutput norm, c;
  norm.modules(model, tap::selectors::names("norm"));
  c.modules(model, tap::selectors::names("c"));
  {
    const auto handle = tap::hooks::attach(model, "b", Kind::forward_output, [](tap::hooks::Event& event) {
      event.outputs()[0] = at::zeros_like(event.outputs()[0]);
    });
    model.run(reference.inputs());
    const at::Tensor y = reference.seen("out", "act");
    BOOST_TEST(at::allclose(norm[0].tensors()[0], at::layer_norm(y, {32}), 1e-4, 1e-5));
  }
  {
    const auto handle = tap::hooks::attach(model, "c", Kind::forward_pre,
                                           [](tap::hooks::Event& event) { event.inputs()[0].fill_(1.0); });
    const auto ones = model.run(reference.inputs())[0];
    BOOST_TEST(at::equal(ones[0], ones[1]));
    BOOST_TEST(at::equal(c[0].tensors()[1][0], c[0].tensors()[1][3]));
  }
  {
    const auto handle = tap::hooks::attach(model, "c", Kind::forward_output, [](tap::hooks::Event& event) {
      event.outputs()[0] = at::zeros({2}, package_device());
    });
    BOOST_CHECK_EXCEPTION(model.run(reference.inputs()), c10::ValueError,
                          says({"\"c\" (Linear)", "[4, 8]", "[2]", "same shape"}));
  }
  BOOST_TEST(identical(model.run(reference.inputs()), before));
  const c10::InferenceMode inference;
  const auto handle = tap::hooks::attach(model, "c", Kind::forward_output, [](tap::hooks::Event& event) {
    event.outputs()[0] = at::zeros_like(event.outputs()[0]);
  });
  BOOST_TEST(at::allclose(model.run(reference.inputs())[0], at::full({4, 8}, 1 / 8.0, package_device())));
}

BOOST_AUTO_TEST_CASE(replace_what_the_model_gets_and_returns) {
  const Reference reference("mlp");
  Model model(file("mlp.pt2"));
  const at::Tensor zeros = at::zeros({4, 16}, package_device());
  const auto of_zeros = model.run({zeros});
  const auto in = tap::hooks::attach(model, Kind::forward_pre,
                                     [&](tap::hooks::Event& event) { event.inputs()[0] = zeros; });
  BOOST_TEST(identical(model.run(reference.inputs()), of_zeros));
  const auto out = tap::hooks::attach(
      model, Kind::forward, [&](tap::hooks::Event& event) { event.outputs()[0] = event.inputs()[0]; });
  BOOST_TEST(model.run(reference.inputs())[0].is_same(zeros));
}

BOOST_AUTO_TEST_CASE(that_write_to_what_is_only_read_are_refused) {
  const Reference reference("mlp");
  Model model(file("mlp.pt2"));
  {
    const auto handle = tap::hooks::attach(model, "b", Kind::forward_output, [](tap::hooks::Event& event) {
      event.outputs()[0] = at::zeros_like(event.outputs()[0]);
    });
    BOOST_CHECK_EXCEPTION(model.run(reference.inputs()), c10::NotImplementedError,
                          says({"replaced", "\"b\" (Linear)", "replace=True"}));
  }
  const auto handle = tap::hooks::attach(model, "b", Kind::forward_output,
                                         [](tap::hooks::Event& event) { event.outputs()[0].zero_(); });
  BOOST_CHECK_EXCEPTION(model.run(reference.inputs()), c10::NotImplementedError,
                        says({"wrote to", "\"b\" (Linear)", "replace=True"}));
}

BOOST_AUTO_TEST_CASE(that_throw_reach_the_caller_and_stop_the_others) {
  const Reference reference("mlp");
  Model model(file("mlp.pt2"));
  const auto expected = model.run(reference.inputs());
  struct Mine : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  ForwardOutput late;
  late.modules(model, tap::selectors::names("c"));
  {
    const auto handle = tap::hooks::attach(model, "act", Kind::forward_output,
                                           [](tap::hooks::Event&) { throw Mine("from the hook"); });
    BOOST_CHECK_THROW(model.run(reference.inputs()), Mine);
    BOOST_TEST(late.samples() == 0);
  }
  BOOST_TEST(identical(model.run(reference.inputs()), expected));
  BOOST_TEST(late.samples() == 1);
}

BOOST_AUTO_TEST_CASE(stop_until_recorded) {
  const Reference reference("mlp");
  Model model(file("mlp.pt2"));
  ForwardOutput wanted, late;
  wanted.modules(model, tap::selectors::names("act"));
  late.modules(model, tap::selectors::names("c"));
  BOOST_TEST(wanted.until_recorded([&] { model.run(reference.inputs()); }));
  BOOST_TEST(wanted.samples() == 1);
  BOOST_TEST(late.samples() == 0);
  model.run(reference.inputs());
  BOOST_TEST(late.samples() == 1);
}

BOOST_AUTO_TEST_CASE(may_run_another_model) {
  const Reference reference("mlp");
  Model outer(file("mlp.pt2")), inner(file("mlp.pt2"));
  ForwardOutput of_outer, of_inner;
  of_outer.modules(outer, tap::selectors::names("c"));
  of_inner.modules(inner, tap::selectors::names("a"));
  const auto handle = tap::hooks::attach(outer, "a", Kind::forward_output, [&](tap::hooks::Event&) {
    inner.run({at::zeros({4, 16}, package_device())});
  });
  outer.run(reference.inputs());
  BOOST_TEST(of_outer.samples() == 1);
  BOOST_TEST(of_inner.samples() == 1);
  BOOST_TEST(close(of_outer[0].tensors()[0], reference.seen("out", "c")));
  BOOST_TEST(!close(of_inner[0].tensors()[0], reference.seen("out", "a")));
}

BOOST_AUTO_TEST_CASE(of_kinds_that_cannot_be_are_errors) {
  Model model(file("mlp.pt2"));
  for (const auto kind : {"BackwardInput", "BackwardOutput"}) {
    auto recorder = tap::recorders::make(kind, RecorderOptions());
    BOOST_CHECK_EXCEPTION(recorder->attach(model.modules(), tap::selectors::names("a")), c10::ValueError,
                          says({"\"a\" (Linear)", "no gradients", "forward alone"}));
    BOOST_TEST(recorder->empty());
  }
  tap::recorders::ForwardPre inputs;
  BOOST_CHECK_EXCEPTION(inputs.modules(model, tap::selectors::names("a")), c10::ValueError,
                        says({"inputs of \"a\"", "inputs=True"}));
  ForwardOutput alias(RecorderOptions().capture(tap::recorders::Capture::alias));
  BOOST_CHECK_EXCEPTION(alias.modules(model, tap::selectors::names("a")), c10::ValueError,
                        says({"Capture::alias", "memory", "Capture::copy"}));
  alias.modules(model, tap::selectors::names(""));  // what the model returns is the caller's
  ForwardOutput unknown;
  BOOST_CHECK_EXCEPTION(unknown.modules(model, tap::selectors::names("layer9")), c10::Error,
                        says({"layer9", "\"a\""}));
}

BOOST_AUTO_TEST_CASE(find_bad_files_and_inputs) {
  BOOST_CHECK_EXCEPTION(Model("nowhere.pt2"), c10::ValueError,
                        says({"nowhere.pt2", "torchtap.export.compile"}));
  const TemporaryDirectory folder;
  std::ofstream(folder / "text.pt2") << "no package";
  BOOST_CHECK_EXCEPTION(Model(folder / "text.pt2"), c10::ValueError, says({"text.pt2", "not a zip archive"}));
  std::ofstream(folder / "cut.pt2") << "PK\3\4, and what was written before the disk was full";
  BOOST_CHECK_EXCEPTION(Model(folder / "cut.pt2"), c10::ValueError, says({"cut.pt2", "damaged"}));
  Model model(file("mlp.pt2")), dynamic(file("dynamic.pt2"));
  BOOST_CHECK_EXCEPTION(model.run({}), c10::ValueError,
                        says({"1 inputs", "given 0", "pass the flattened inputs"}));
  BOOST_CHECK_EXCEPTION(model.run({at::zeros({4, 15}, package_device())}), c10::ValueError,
                        says({"[4, 16] float32", "[4, 15] float32"}));
  BOOST_CHECK_EXCEPTION(model.run({at::zeros({4, 16}, at::device(package_device()).dtype(at::kDouble))}),
                        c10::ValueError, says({"float64", "pass a tensor like the exported one"}));
  BOOST_CHECK_EXCEPTION(dynamic.run({at::zeros({3, 15}, package_device())}), c10::ValueError,
                        says({", 16] float32"}));
  BOOST_CHECK_EXCEPTION(model.run({at::zeros({4, 16}, package_device().is_cpu() ? at::kMeta : at::kCPU)}),
                        c10::ValueError, says({"[4, 16] float32 on ", "and [4, 16] float32 on "}));
  BOOST_CHECK_EXCEPTION(tap::model::find(model, "nowhere"), c10::IndexError,
                        says({"\"nowhere\"", "the nearest are"}));
  BOOST_CHECK_EXCEPTION(model.calls("nowhere"), c10::IndexError, says({"\"nowhere\"", "modules() lists"}));
}

BOOST_AUTO_TEST_SUITE_END()
