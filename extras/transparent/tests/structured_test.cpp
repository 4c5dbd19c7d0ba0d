// Models of the zoo that pass structs, maps, lists of tensors and packed sequences.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <torchtap/torchtap.hpp>

#include "tests/hooks/support.hpp"
#include "tests/support.hpp"
#include "zoo/detector.hpp"
#include "zoo/tagger.hpp"
#include "zoo/vae.hpp"

/// `zoo::Gaussian` is left out on purpose.
template <>
struct torchtap::hooks::Visit<zoo::VAEOutput> {
  template <class Visitor>
  static void apply(zoo::VAEOutput& value, Visitor&& visit) {
    visit(value.reconstruction);
    visit(value.mean);
    visit(value.log_variance);
  }
};

namespace tap = torchtap;
using support::identical;
using tap::recorders::BackwardInput;
using tap::recorders::BackwardOutput;
using tap::recorders::ForwardInput;
using tap::recorders::ForwardOutput;
using tap::recorders::ForwardPre;
using tap::recorders::RecorderOptions;
using Tensors = std::vector<at::Tensor>;
using torchtap_test::says;

namespace {

/// The outputs and gradients of a training step.
template <class Net, class Call>
Tensors step(Net net, Call call) {
  net->zero_grad();
  at::manual_seed(3);
  Tensors all = call();
  at::Tensor loss = at::zeros({});
  for (const auto& output : all) loss = loss + output.pow(2).sum();
  loss.backward();
  for (auto& output : all) output = output.detach();
  for (const auto& parameter : net->parameters()) all.push_back(parameter.grad().clone());
  return all;
}

/// Checks that five recorders on `module` change nothing; returns them.
template <class Net, class Call>
std::vector<tap::recorders::Recorder> recorded(Net net, const char* module, Call call) {
  const Tensors want = step(net, call);
  std::vector<tap::recorders::Recorder> all;
  const RecorderOptions options = RecorderOptions().all_tensors();
  all.push_back(ForwardPre(options));
  all.push_back(ForwardInput(options));
  all.push_back(ForwardOutput(options));
  all.push_back(BackwardInput(options));
  all.push_back(BackwardOutput(options));
  for (auto& recorder : all) recorder.modules(*net, tap::selectors::names(module));
  BOOST_TEST(identical(step(net, call), want));
  for (auto& recorder : all) recorder.detach();
  BOOST_TEST(identical(step(net, call), want));
  return all;
}

at::Tensor sample(const tap::recorders::Recorder& recorder, std::int64_t slot) {
  return recorder[0].slot(slot).tensors().at(0);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(structured)

BOOST_AUTO_TEST_CASE(a_struct) {
  at::manual_seed(0);
  zoo::VAE vae(6, 5, 2);
  const at::Tensor x = at::rand({3, 6}).set_requires_grad(true);
  zoo::VAEOutput output;
  const auto all = recorded(vae, "", [&] {
    output = vae(x);
    return Tensors{output.reconstruction, output.mean, output.log_variance};
  });
  BOOST_TEST(all[2][0].slots() == 3);
  BOOST_TEST(at::equal(sample(all[2], 0), output.reconstruction));
  BOOST_TEST(at::equal(sample(all[2], 2), output.log_variance));
  BOOST_TEST(at::equal(sample(all[4], 0), output.reconstruction.detach() * 2));
  BOOST_TEST(sample(all[3], 0).sizes() == x.sizes());

  // Values of unknown types are reported; the rest of the model is recorded.
  const auto named = tap::selectors::names("encoder");
  const auto check = [&](auto recorder) {
    recorder.modules(*vae, named);
    BOOST_CHECK_EXCEPTION(vae(x), c10::TypeError, says({"\"encoder\" (VAEEncoder)", "Visit<zoo::Gaussian>"}));
  };
  check(ForwardOutput());
  check(BackwardOutput());
  BOOST_CHECK_NO_THROW(vae(x));
}

BOOST_AUTO_TEST_CASE(packed_sequences) {
  at::manual_seed(0);
  zoo::Tagger tagger(11, 3, 4);
  const at::Tensor tokens = at::randint(11, {3, 5}, at::kLong), lengths = torch::tensor({5, 2, 4});
  const auto all = recorded(tagger, "lstm", [&] { return Tensors{tagger(tokens, lengths)}; });
  for (const auto& recorder : all) BOOST_TEST(recorder[0].samples() > 0);
  BOOST_TEST(all[0][0].slots() == 6);
  BOOST_TEST((sample(all[0], 0).sizes() == at::IntArrayRef({11, 4})));
  BOOST_TEST(at::equal(sample(all[0], 1), torch::tensor({3, 3, 2, 2, 1})));
  BOOST_TEST(all[2][0].slots() == 6);
  BOOST_TEST((sample(all[2], 0).sizes() == at::IntArrayRef({11, 4})));
  BOOST_TEST((sample(all[2], 4).sizes() == at::IntArrayRef({2, 3, 2})));
  BOOST_TEST((sample(all[3], 0).sizes() == at::IntArrayRef({11, 4})));
  BOOST_TEST((sample(all[4], 0).sizes() == at::IntArrayRef({11, 4})));
}

BOOST_AUTO_TEST_CASE(a_map_and_a_list_of_tensors) {
  at::manual_seed(0);
  zoo::Detector detector(3);
  const at::Tensor images = at::rand({1, 3, 8, 8}).set_requires_grad(true);
  std::map<std::string, at::Tensor> found;
  const auto call = [&] {
    found = detector(images);
    return Tensors{found["boxes"], found["scores"]};
  };
  const auto all = recorded(detector, "", call);
  BOOST_TEST(all[2][0].slots() == 2);
  BOOST_TEST(at::equal(sample(all[2], 0), found["boxes"]));
  BOOST_TEST(at::equal(sample(all[4], 1), found["scores"].detach() * 2));

  const auto neck = recorded(detector, "neck", call);
  BOOST_TEST(neck[0][0].slots() == 2);
  BOOST_TEST((sample(neck[0], 1).sizes() == at::IntArrayRef({1, 8, 2, 2})));
  BOOST_TEST(sample(neck[3], 0).sizes() == sample(neck[0], 0).sizes());
  BOOST_TEST(sample(neck[3], 1).sizes() == sample(neck[0], 1).sizes());
}

BOOST_AUTO_TEST_SUITE_END()
