// Errors for values of unknown types, and calls without tensors.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <torchtap/torchtap.hpp>

#include "../support.hpp"

namespace tap = torchtap;
using tap::recorders::BackwardInput;
using tap::recorders::BackwardOutput;
using tap::recorders::ForwardInput;
using tap::recorders::ForwardOutput;
using tap::recorders::ForwardPre;
using tap::recorders::RecorderOptions;
using torchtap_test::says;

namespace value_types {

/// As the encoder of a VAE returns it. Not registered with torchtap.
struct Untold {
  at::Tensor reconstruction, mean;
};
/// Registered with torchtap.
struct Told {
  at::Tensor reconstruction, mean;
};
struct VAEImpl : torch::nn::Module {
  Untold forward(const at::Tensor& x) { return {x * 2, x + 1}; }
};
TORCHTAP_MODULE(VAE);
struct DecodeImpl : torch::nn::Module {
  at::Tensor forward(const Untold& latent) { return latent.mean * 2; }
};
TORCHTAP_MODULE(Decode);
struct PlainVAEImpl : torch::nn::Module {
  Untold forward(const at::Tensor& x) { return {x * 2, x + 1}; }
};
TORCH_MODULE(PlainVAE);
struct ToldVAEImpl : torch::nn::Module {
  Told forward(const at::Tensor& x) { return {x * 2, x + 1}; }
};
TORCHTAP_MODULE(ToldVAE);
struct PlainToldVAEImpl : torch::nn::Module {
  Told forward(const at::Tensor& x) { return {x * 2, x + 1}; }
};
TORCH_MODULE(PlainToldVAE);
struct MixedImpl : torch::nn::Module {
  std::tuple<at::Tensor, Untold> forward(const at::Tensor& x) { return {x * 3, {x, x}}; }
};
TORCHTAP_MODULE(Mixed);
struct CountImpl : torch::nn::Module {
  std::int64_t forward(const at::Tensor& x) { return x.numel(); }
};
TORCHTAP_MODULE(Count);
struct DetectorImpl : torch::nn::Module {
  std::map<std::string, at::Tensor> forward(const at::Tensor& x) {
    return {{"scores", x * 2}, {"boxes", x + 1}};
  }
};
TORCHTAP_MODULE(Detector);
struct TripleImpl : torch::nn::Module {
  using Nested = std::tuple<at::Tensor, std::map<std::string, std::vector<at::Tensor>>>;
  Nested forward(const at::Tensor& x) { return {x, {{"a", {x, x}}}}; }
};
TORCH_MODULE(Triple);

}  // namespace value_types

template <>
struct torchtap::hooks::Visit<value_types::Told> {
  template <class Visitor>
  static void apply(value_types::Told& value, Visitor&& visit) {
    visit(value.reconstruction);
    visit(value.mean);
  }
};

using namespace value_types;

namespace {

at::Tensor input() {
  return at::ones({1, 2}).set_requires_grad(true);
}

auto says_not(const std::string& part, std::vector<std::string> parts) {
  return [part, all = says(std::move(parts))](const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    BOOST_TEST(text.find(part) == std::string::npos, text);
    return all(error);
  };
}

/// A model around a module, so that it has a path.
template <class Holder>
struct AroundImpl : torch::nn::Module {
  AroundImpl() : inner(register_module("inner", Holder())) {}
  Holder inner;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(values)

BOOST_AUTO_TEST_CASE(an_unknown_type_is_an_error_that_names_the_remedy) {
  AroundImpl<VAE> model;
  const auto named = tap::selectors::names("inner");
  const auto check = [&](auto recorder, const char* kind) {
    recorder.modules(model, named);
    BOOST_CHECK_EXCEPTION(
        model.inner(input()), c10::TypeError,
        says_not("register_value", {kind, "\"inner\" (VAE)", "value_types::Untold",
                                    "Specialise torchtap::hooks::Visit<value_types::Untold>"}));
    BOOST_TEST(recorder.samples() == 0);
  };
  check(ForwardOutput(), "ForwardOutput");
  check(ForwardOutput(RecorderOptions().all_tensors()), "ForwardOutput");
  check(BackwardOutput(), "BackwardOutput");
  check(BackwardOutput(RecorderOptions().all_tensors()), "BackwardOutput");
  BOOST_CHECK_NO_THROW(model.inner(input()));

  Decode decode;
  const Untold latent{input(), input()};
  const auto check_input = [&](auto recorder, const char* kind) {
    recorder.modules(*decode);
    BOOST_CHECK_EXCEPTION(decode(latent), c10::TypeError,
                          says({kind, "Decode", "Visit<value_types::Untold>"}));
  };
  check_input(ForwardPre(), "ForwardPre");
  check_input(ForwardInput(), "ForwardInput");
  check_input(BackwardInput(), "BackwardInput");

  // Without gradient mode, no gradient is missing.
  const torch::NoGradGuard no_grad;
  BackwardOutput gradients;
  gradients.modules(model, named);
  BOOST_CHECK_NO_THROW(model.inner(input()));
}

BOOST_AUTO_TEST_CASE(the_error_goes_to_the_handler) {
  AroundImpl<VAE> model;
  int errors = 0;
  BackwardOutput gradients(
      RecorderOptions().on_error([&](const std::string& path, const std::exception_ptr&) {
        BOOST_TEST(path == "inner");
        ++errors;
      }));
  gradients.modules(model, tap::selectors::names("inner"));
  BOOST_CHECK_NO_THROW(model.inner(input()));
  BOOST_TEST(errors == 1);
}

BOOST_AUTO_TEST_CASE(an_unknown_value_beside_known_tensors) {
  Mixed mixed;
  ForwardOutput first, second(RecorderOptions().slot(1)), all(RecorderOptions().all_tensors());
  BackwardOutput gradients;
  first.modules(*mixed);
  gradients.modules(*mixed);
  std::get<0>(mixed(input())).sum().backward();
  BOOST_TEST(first.samples() == 1);
  BOOST_TEST(gradients.samples() == 1);
  second.modules(*mixed);
  BOOST_CHECK_EXCEPTION(mixed(input()), c10::TypeError,
                        says({"tensor 1 was asked for", "Visit<value_types::Untold>"}));
  second.detach();
  all.modules(*mixed);
  BOOST_CHECK_EXCEPTION(mixed(input()), c10::TypeError,
                        says_not("tensor 0", {"all tensors", "Visit<value_types::Untold>"}));
}

BOOST_AUTO_TEST_CASE(in_a_sequential_only_missing_tensors_are_errors) {
  const auto check = [](torch::nn::Sequential model, const char* type) {
    ForwardOutput outputs;
    outputs.modules(*model, tap::selectors::names("0"));
    BOOST_CHECK_EXCEPTION(
        model->begin()->any_forward(input()), c10::TypeError,
        says_not("Specialise", {"\"0\"", c10::str("Call torchtap::hooks::register_value<", type)}));
  };
  check(torch::nn::Sequential(PlainVAE()), "value_types::Untold>()");
  check(torch::nn::Sequential(PlainToldVAE()), "value_types::Told>()");
  check(torch::nn::Sequential(Triple()), "std::tuple<");

  tap::hooks::register_value<Told>();
  torch::nn::Sequential model{PlainToldVAE()};
  ForwardOutput outputs(RecorderOptions().slot(1));
  BackwardOutput gradients(RecorderOptions().all_tensors());
  outputs.modules(*model, tap::selectors::names("0"));
  gradients.modules(*model, tap::selectors::names("0"));
  const Told told = model->forward<Told>(input());
  (told.mean * 3 + told.reconstruction).sum().backward();
  BOOST_TEST(at::equal(outputs[0].tensors()[0], at::full({1, 2}, 2)));
  BOOST_TEST(at::equal(gradients[0].value().at("1").tensors()[0], at::full({1, 2}, 3)));
}

BOOST_AUTO_TEST_CASE(a_registered_struct_and_a_map) {
  ToldVAE vae;
  ForwardOutput all(RecorderOptions().all_tensors());
  BackwardOutput gradients(RecorderOptions().slot(1));
  all.modules(*vae);
  gradients.modules(*vae);
  const Told told = vae(input());
  (told.mean * 5).sum().backward();
  BOOST_TEST(at::equal(all[0].value().at("0").tensors()[0], at::full({1, 2}, 2)));
  BOOST_TEST(at::equal(all[0].value().at("1").tensors()[0], at::full({1, 2}, 2)));
  BOOST_TEST(at::equal(gradients[0].tensors()[0], at::full({1, 2}, 5)));

  Detector detector;
  ForwardOutput detected(RecorderOptions().all_tensors());
  BackwardOutput scores(RecorderOptions().slot(1));
  detected.modules(*detector);
  scores.modules(*detector);
  (detector(input()).at("scores") * 7).sum().backward();
  BOOST_TEST(at::equal(detected[0].value().at("0").tensors()[0], at::full({1, 2}, 2)), "boxes first");
  BOOST_TEST(at::equal(scores[0].tensors()[0], at::full({1, 2}, 7)));
}

BOOST_AUTO_TEST_CASE(no_tensors_at_all) {
  Count count;
  const auto check = [&](RecorderOptions options) {
    ForwardOutput outputs(std::move(options));
    outputs.modules(*count);
    BOOST_CHECK_EXCEPTION(count(input()), c10::TypeError,
                          says_not("asked for", {"(Count)", "no tensor in the output"}));
  };
  check(RecorderOptions());
  check(RecorderOptions().all_tensors());
  ForwardPre third(RecorderOptions().slot(3));
  third.modules(*count);
  BOOST_CHECK_EXCEPTION(count(input()), c10::TypeError,
                        says({"tensor 3 was asked for", "the input holds 1 tensor,"}));
}

BOOST_AUTO_TEST_SUITE_END()
