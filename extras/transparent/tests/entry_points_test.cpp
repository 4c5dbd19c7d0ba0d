// Methods of LibTorch's modules, besides forward, that do the same work.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/transparent/detail/intercept.hpp>
#include <torchtap/transparent/transparent.hpp>

#include "tests/builtins/outcome.hpp"
#include "tests/builtins/watch.hpp"

namespace hooks = torchtap::hooks;
namespace rnn = torch::nn::utils::rnn;
using builtins::Made;
using builtins::Tensors;

namespace {

Tensors flat(const std::tuple<rnn::PackedSequence, at::Tensor>& value) {
  const auto& packed = std::get<0>(value);
  return {packed.data(), packed.batch_sizes(), packed.sorted_indices(), packed.unsorted_indices(),
          std::get<1>(value)};
}
Tensors flat(const std::tuple<rnn::PackedSequence, std::tuple<at::Tensor, at::Tensor>>& value) {
  const auto& [hidden, cell] = std::get<1>(value);
  Tensors all = flat(std::make_tuple(std::get<0>(value), hidden));
  all.push_back(cell);
  return all;
}

/// LibTorch's own definition, behind the one that interposes it: the same code without hooks.
template <class Member>
Member original(Member member) {
  using namespace torchtap::transparent::detail;
  return member_at<Member>(next_definition(code_of(member)));
}

rnn::PackedSequence packed(const at::Tensor& data) {
  const at::Tensor order = torch::tensor({1, 0, 2});
  return rnn::PackedSequence(data, torch::tensor({3, 2, 2, 1}), order);
}

/// Calls the module in both ways and returns the values that hooks have to see.
template <class Holder, class Call>
void check_called(Holder module, const at::Tensor& input, std::size_t slots, bool is_packed, Call call,
                  const builtins::Outcome& want) {
  const Made made{module.ptr(), [&](Tensors& in) { return call(module, in[0]); }};
  builtins::Seen seen;
  {
    const auto handles = builtins::watch(torchtap::model::find(*module, ""), seen);
    builtins::check_same(builtins::run(*module, {input}, made.forward), want);
  }
  BOOST_TEST(seen.pre == 1);
  BOOST_TEST(seen.forward == 1);
  BOOST_TEST(seen.output == 1);
  BOOST_REQUIRE(seen.pre_inputs.size() == slots);
  BOOST_TEST(at::equal(seen.pre_inputs[0], input.detach()));
  if (is_packed) BOOST_TEST(at::equal(seen.pre_inputs[1], torch::tensor({3, 2, 2, 1})));
  BOOST_REQUIRE(seen.outputs.size() == want.outputs.size());
  for (std::size_t i = 0; i < want.outputs.size(); ++i) {
    BOOST_TEST(support::identical(seen.outputs[i], want.outputs[i], false), "output " << i);
    const auto arrived = seen.backward_output.find(static_cast<std::int64_t>(i));
    const bool has = want.outputs[i].defined() && want.outputs[i].requires_grad();
    BOOST_TEST((arrived != seen.backward_output.end()) == has, "gradient of output " << i);
    if (has) BOOST_TEST(at::equal(arrived->second.at(0), want.output_gradients[i]));
  }
  BOOST_REQUIRE(seen.backward_input.count(0) == 1);
  BOOST_TEST(at::equal(seen.backward_input[0].at(0), want.input_gradients[0]));

  // Without hooks, everything is as before.
  module->zero_grad();
  builtins::check_same(builtins::run(*module, {input}, made.forward), want);
  BOOST_TEST(seen.pre == 1);
}

template <class Plain, class DropIn, class Options, class Call, class Original>
void check(const char* name, const Options& options, const at::Tensor& input, std::size_t slots,
           bool is_packed, Call call, Original plainly) {
  BOOST_TEST_CONTEXT(name) {
    at::manual_seed(1);
    Plain module(options);
    const auto want = builtins::run(
        *module, {input}, [&](Tensors& in) { return plainly(*module, in[0]); },
        /*with_output_gradients=*/true);
    at::manual_seed(1);
    check_called(Plain(options), input, slots, is_packed, call, want);
    at::manual_seed(1);
    check_called(DropIn(options), input, slots, is_packed, call, want);
  }
}

}  // namespace

#define CHECK_PACKED(Name, slots)                                                                            \
  check<torch::nn::Name, torchtap::nn::Name>(                                                                \
      #Name, torch::nn::Name##Options(4, 3).num_layers(2), at::randn({8, 4}).set_requires_grad(true), slots, \
      true,                                                                                                  \
      [](auto& module, const at::Tensor& x) { return flat(module->forward_with_packed_input(packed(x))); },  \
      [](torch::nn::Name##Impl& module, const at::Tensor& x) {                                               \
        return flat((module.*original(&torch::nn::Name##Impl::forward_with_packed_input))(packed(x), {}));   \
      })
#define CHECK_INDICES(Name, options, sizes)                                                             \
  check<torch::nn::Name, torchtap::nn::Name>(                                                           \
      #Name, torch::nn::Name##Options options, at::randn sizes.set_requires_grad(true), 1, false,       \
      [](auto& module, const at::Tensor& x) { return support::flat(module->forward_with_indices(x)); }, \
      [](torch::nn::Name##Impl& module, const at::Tensor& x) {                                          \
        return support::flat((module.*original(&torch::nn::Name##Impl::forward_with_indices))(x));      \
      })

BOOST_AUTO_TEST_SUITE(entry_points)

BOOST_AUTO_TEST_CASE(packed_input) {
  at::manual_seed(0);
  CHECK_PACKED(LSTM, 6);
  CHECK_PACKED(GRU, 5);
  CHECK_PACKED(RNN, 5);
}

BOOST_AUTO_TEST_CASE(with_indices) {
  at::manual_seed(0);
  CHECK_INDICES(MaxPool1d, (2), ({2, 3, 8}));
  CHECK_INDICES(MaxPool2d, (2), ({2, 3, 8, 8}));
  CHECK_INDICES(MaxPool3d, (2), ({1, 2, 4, 4, 4}));
  CHECK_INDICES(AdaptiveMaxPool1d, (2), ({2, 3, 8}));
  CHECK_INDICES(AdaptiveMaxPool2d, ({2, 2}), ({2, 3, 8, 8}));
  CHECK_INDICES(AdaptiveMaxPool3d, ({2, 2, 2}), ({1, 2, 4, 4, 4}));
  // With given samples: otherwise the module draws new ones in each call.
  const auto samples = [](std::int64_t d) { return at::full({2, 3, d}, 0.5); };
  CHECK_INDICES(FractionalMaxPool2d, (2).output_size(3)._random_samples(samples(2)), ({2, 3, 8, 8}));
  CHECK_INDICES(FractionalMaxPool3d, (2).output_size(3)._random_samples(samples(3)), ({2, 3, 8, 8, 8}));
}

BOOST_AUTO_TEST_CASE(forward_itself_is_seen_once) {
  torch::nn::LSTM lstm(4, 3);
  torch::nn::MaxPool2d pool(2);
  int calls = 0;
  const auto count = [&](torch::nn::Module& module) {
    return hooks::attach(module, hooks::Kind::forward, [&](hooks::Event&) { ++calls; });
  };
  const auto a = count(*lstm), b = count(*pool);
  lstm(at::ones({2, 1, 4}));
  BOOST_TEST(calls == 1);
  pool(at::ones({1, 1, 4, 4}));
  BOOST_TEST(calls == 2);
}

BOOST_AUTO_TEST_SUITE_END()
