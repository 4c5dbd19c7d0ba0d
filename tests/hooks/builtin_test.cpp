// Every module type of LibTorch, reached as an entry of a Sequential and as a drop-in: hooks change nothing,
// and each fires once with what the call got and returned.
#include <torch/torch.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <torchtap/hooks/hooks.hpp>

#include "support.hpp"

namespace hooks = torchtap::hooks;
using hooks::Event;
using hooks::Handle;
using hooks::Kind;
using support::flat;
using support::identical;
using Tensors = std::vector<at::Tensor>;

namespace {

struct Outcome {
  Tensors outputs, output_gradients, input_gradients, parameter_gradients, buffers;
};

/// What the hooks saw of one call.
struct Seen {
  int pre = 0, forward = 0, output = 0;
  Tensors pre_inputs, inputs, outputs;
  std::map<std::int64_t, Tensors> backward_input, backward_output;
};

std::vector<Handle> watch(const torchtap::core::ModuleRef& module, Seen& seen) {
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

at::Tensor weight_of(const at::Tensor& output, std::size_t index) {
  return at::linspace(0.5 + static_cast<double>(index), 2, output.numel(), at::kFloat)
      .view(output.sizes())
      .to(output.scalar_type());
}

using Forward = std::function<Tensors(Tensors&)>;

/// Calls `forward` on fresh copies of the inputs, then runs a backward whose gradients are known.
Outcome run(torch::nn::Module& module, const Tensors& inputs, const Forward& forward,
            bool with_output_gradients = false) {
  Tensors given;
  for (const auto& input : inputs) {
    given.push_back(input.detach().clone().set_requires_grad(input.requires_grad()));
  }
  at::manual_seed(2);
  Outcome outcome;
  outcome.outputs = forward(given);
  at::Tensor loss;
  for (std::size_t i = 0; i < outcome.outputs.size(); ++i) {
    const auto& output = outcome.outputs[i];
    if (!output.defined() || !output.requires_grad()) continue;
    const auto part = (output * weight_of(output, i)).sum();
    loss = loss.defined() ? loss + part : part;
  }
  if (loss.defined() && with_output_gradients) {
    for (const auto& output : outcome.outputs) {
      // As autograd has it: one output may have been computed from another one.
      const bool has = output.defined() && output.requires_grad();
      outcome.output_gradients.push_back(has ? torch::autograd::grad({loss}, {output}, {}, true)[0]
                                             : at::Tensor());
    }
  }
  if (loss.defined()) loss.backward();
  for (const auto& input : given) outcome.input_gradients.push_back(input.grad());
  for (const auto& parameter : module.parameters()) outcome.parameter_gradients.push_back(parameter.grad());
  for (const auto& buffer : module.buffers()) outcome.buffers.push_back(buffer.clone());
  return outcome;
}

void check_same(const Outcome& got, const Outcome& want) {
  BOOST_TEST(identical(got.outputs, want.outputs), "outputs");
  BOOST_TEST(identical(got.input_gradients, want.input_gradients), "gradients of the inputs");
  BOOST_TEST(identical(got.parameter_gradients, want.parameter_gradients), "gradients of the parameters");
  BOOST_TEST(identical(got.buffers, want.buffers), "buffers");
}

// `slots`: as many as forward has parameters for, whether they were passed or left to their defaults.
void check_seen(const Seen& seen, const Tensors& inputs, const Outcome& want, std::size_t slots) {
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

/// One way to make and call a type, without the type.
struct Made {
  std::shared_ptr<torch::nn::Module> module;
  Forward forward;
};

/// Hooks the descendant at `path` around one call.
void check_hooked(const std::string& how, const Made& made, const std::string& path, const std::string& type,
                  const Tensors& inputs, const Outcome& want, std::size_t slots) {
  BOOST_TEST_CONTEXT(how) {
    const auto module = hooks::find(*made.module, path);
    if (!type.empty()) BOOST_TEST(module.type() == type);
    Seen seen;
    const auto handles = watch(module, seen);
    check_same(run(*made.module, inputs, made.forward), want);
    check_seen(seen, inputs, want, slots);
  }
}

std::set<std::string>& checked_types() {
  static std::set<std::string> names;
  return names;
}

template <class Holder, std::size_t... I, class Make>
Made direct(Make make, bool by_holder, std::index_sequence<I...>) {
  at::manual_seed(1);
  auto holder = make(static_cast<Holder*>(nullptr));
  if (by_holder) return {holder.ptr(), [holder](Tensors& in) mutable { return flat(holder(in[I]...)); }};
  return {holder.ptr(), [holder](Tensors& in) mutable { return flat(holder->forward(in[I]...)); }};
}

template <class Holder, std::size_t... I, class Make>
Made entry(Make make, std::index_sequence<I...>) {
  using Result = decltype(std::declval<Holder&>()->forward((void(I), std::declval<at::Tensor&>())...));
  at::manual_seed(1);
  torch::nn::Sequential model(make(static_cast<Holder*>(nullptr)));
  return {model.ptr(),
          [model](Tensors& in) mutable { return flat(model->template forward<Result>(in[I]...)); }};
}

template <class Plain, class DropIn, std::size_t N, class Make>
void check_type(const std::string& name, Make make, const std::array<at::Tensor, N>& given) {
  BOOST_TEST_CONTEXT(name) {
    checked_types().insert(name);
    const Tensors inputs(given.begin(), given.end());
    constexpr auto kAll = std::make_index_sequence<N>();

    const auto bare = direct<Plain>(make, false, kAll);
    const auto want = run(*bare.module, inputs, bare.forward, /*with_output_gradients=*/true);
    const auto text = [](const Made& made) { return c10::str(*made.module); };
    // MultiheadAttention alone tells the virtual base Module its name, which only a most derived class can
    // do.
    if (name != "MultiheadAttention") BOOST_TEST(text(direct<DropIn>(make, true, kAll)) == text(bare));

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
    const std::size_t slots = counted == kWithDefaults.end() ? N : counted->second;
    check_hooked("entry of a Sequential", entry<Plain>(make, kAll), "0", name, inputs, want, slots);
    check_hooked("the Sequential around it", entry<Plain>(make, kAll), "", "Sequential", inputs, want, slots);
    check_hooked("drop-in in a Sequential", entry<DropIn>(make, kAll), "0", name, inputs, want, slots);
    check_hooked("drop-in, holder(x)", direct<DropIn>(make, true, kAll), "", name, inputs, want, slots);
    check_hooked("drop-in, holder->forward(x)", direct<DropIn>(make, false, kAll), "", name, inputs, want,
                 slots);
  }
}

at::Tensor rand(at::IntArrayRef sizes) {
  return at::randn(sizes).set_requires_grad(true);
}
at::Tensor ints(std::int64_t below, at::IntArrayRef sizes) {
  return at::randint(below, sizes, at::kLong);
}
at::Tensor signs(at::IntArrayRef sizes) {
  return at::randint(2, sizes).mul_(2).sub_(1);
}
at::Tensor probabilities(at::IntArrayRef sizes) {
  return at::rand(sizes).mul_(0.8).add_(0.1).set_requires_grad(true);
}

template <class... Ts>
std::array<at::Tensor, sizeof...(Ts)> in(Ts... tensors) {
  return {tensors...};
}

}  // namespace

// CHECK_TYPE(Linear, (4, 3), in(rand({2, 4}))): the constructor's arguments, then forward's.
#define CHECK_TYPE(Name, arguments, ...)                                           \
  check_type<torch::nn::Name, torchtap::nn::Name>(                                 \
      #Name,                                                                       \
      [](auto* type) {                                                             \
        using Holder = std::remove_pointer_t<decltype(type)>;                      \
        return Holder(std::make_shared<typename Holder::ContainedType> arguments); \
      },                                                                           \
      __VA_ARGS__)

BOOST_AUTO_TEST_SUITE(builtin)

BOOST_AUTO_TEST_CASE(layers) {
  at::manual_seed(0);
  CHECK_TYPE(Linear, (4, 3), in(rand({2, 4})));
  CHECK_TYPE(Bilinear, (4, 3, 2), in(rand({2, 4}), rand({2, 3})));
  CHECK_TYPE(Identity, (), in(rand({2, 4})));
  CHECK_TYPE(Flatten, (), in(rand({2, 4, 3})));
  CHECK_TYPE(Unflatten, (torch::nn::UnflattenOptions(1, {2, 2})), in(rand({3, 4})));
  CHECK_TYPE(Functional, (torch::relu), in(rand({2, 4})));
  CHECK_TYPE(Embedding, (10, 3), in(ints(10, {2, 4})));
  CHECK_TYPE(EmbeddingBag, (10, 3), in(ints(10, {2, 4})));
  CHECK_TYPE(Conv1d, (4, 3, 2), in(rand({2, 4, 6})));
  CHECK_TYPE(Conv2d, (2, 3, 2), in(rand({2, 2, 6, 6})));
  CHECK_TYPE(Conv3d, (2, 3, 2), in(rand({2, 2, 4, 4, 4})));
  CHECK_TYPE(ConvTranspose1d, (4, 3, 2), in(rand({2, 4, 6})));
  CHECK_TYPE(ConvTranspose2d, (2, 3, 2), in(rand({2, 2, 6, 6})));
  CHECK_TYPE(ConvTranspose3d, (2, 3, 2), in(rand({2, 2, 4, 4, 4})));
  CHECK_TYPE(Fold, (torch::nn::FoldOptions({4, 5}, {2, 2})), in(rand({1, 12, 12})));
  CHECK_TYPE(Unfold, (2), in(rand({2, 3, 4, 5})));
  CHECK_TYPE(PixelShuffle, (2), in(rand({1, 8, 3, 3})));
  CHECK_TYPE(PixelUnshuffle, (2), in(rand({1, 2, 6, 6})));
  CHECK_TYPE(Upsample,
             (torch::nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest)),
             in(rand({1, 2, 3, 3})));
  CHECK_TYPE(CosineSimilarity, (), in(rand({3, 4}), rand({3, 4})));
  CHECK_TYPE(PairwiseDistance, (), in(rand({3, 4}), rand({3, 4})));
}

BOOST_AUTO_TEST_CASE(activations) {
  at::manual_seed(0);
  CHECK_TYPE(ELU, (), in(rand({2, 4})));
  CHECK_TYPE(SELU, (), in(rand({2, 4})));
  CHECK_TYPE(CELU, (), in(rand({2, 4})));
  CHECK_TYPE(GELU, (), in(rand({2, 4})));
  CHECK_TYPE(GLU, (), in(rand({2, 4})));
  CHECK_TYPE(Hardshrink, (), in(rand({2, 4})));
  CHECK_TYPE(Hardtanh, (), in(rand({2, 4})));
  CHECK_TYPE(LeakyReLU, (), in(rand({2, 4})));
  CHECK_TYPE(LogSigmoid, (), in(rand({2, 4})));
  CHECK_TYPE(LogSoftmax, (1), in(rand({2, 4})));
  CHECK_TYPE(Mish, (), in(rand({2, 4})));
  CHECK_TYPE(PReLU, (), in(rand({2, 4})));
  CHECK_TYPE(RReLU, (), in(rand({2, 4})));
  CHECK_TYPE(ReLU, (), in(rand({2, 4})));
  CHECK_TYPE(ReLU6, (), in(rand({2, 4})));
  CHECK_TYPE(SiLU, (), in(rand({2, 4})));
  CHECK_TYPE(Sigmoid, (), in(rand({2, 4})));
  CHECK_TYPE(Softmax, (1), in(rand({2, 4})));
  CHECK_TYPE(Softmax2d, (), in(rand({2, 3, 4, 4})));
  CHECK_TYPE(Softmin, (1), in(rand({2, 4})));
  CHECK_TYPE(Softplus, (), in(rand({2, 4})));
  CHECK_TYPE(Softshrink, (), in(rand({2, 4})));
  CHECK_TYPE(Softsign, (), in(rand({2, 4})));
  CHECK_TYPE(Tanh, (), in(rand({2, 4})));
  CHECK_TYPE(Tanhshrink, (), in(rand({2, 4})));
  CHECK_TYPE(Threshold, (0.1, 20.0), in(rand({2, 4})));
}

BOOST_AUTO_TEST_CASE(normalisation_and_dropout) {
  at::manual_seed(0);
  CHECK_TYPE(BatchNorm1d, (4), in(rand({3, 4})));
  CHECK_TYPE(BatchNorm2d, (4), in(rand({3, 4, 2, 2})));
  CHECK_TYPE(BatchNorm3d, (4), in(rand({3, 4, 2, 2, 2})));
  CHECK_TYPE(InstanceNorm1d, (torch::nn::InstanceNorm1dOptions(4).affine(true).track_running_stats(true)),
             in(rand({3, 4, 5})));
  CHECK_TYPE(InstanceNorm2d, (4), in(rand({3, 4, 2, 2})));
  CHECK_TYPE(InstanceNorm3d, (4), in(rand({3, 4, 2, 2, 2})));
  CHECK_TYPE(LayerNorm, (torch::nn::LayerNormOptions({4})), in(rand({3, 4})));
  CHECK_TYPE(GroupNorm, (2, 4), in(rand({3, 4, 2})));
  CHECK_TYPE(LocalResponseNorm, (2), in(rand({3, 4, 5})));
  CHECK_TYPE(CrossMapLRN2d, (3), in(rand({3, 4, 5, 5})));
  CHECK_TYPE(Dropout, (), in(rand({8, 8})));
  CHECK_TYPE(Dropout2d, (), in(rand({8, 8, 2, 2})));
  CHECK_TYPE(Dropout3d, (), in(rand({8, 8, 2, 2, 2})));
  CHECK_TYPE(AlphaDropout, (), in(rand({8, 8})));
  CHECK_TYPE(FeatureAlphaDropout, (), in(rand({8, 8, 2})));
}

BOOST_AUTO_TEST_CASE(padding_and_pooling) {
  at::manual_seed(0);
  CHECK_TYPE(ConstantPad1d, (1, 2.0), in(rand({1, 2, 4})));
  CHECK_TYPE(ConstantPad2d, (1, 2.0), in(rand({1, 2, 4, 4})));
  CHECK_TYPE(ConstantPad3d, (1, 2.0), in(rand({1, 2, 4, 4, 4})));
  CHECK_TYPE(ReflectionPad1d, (1), in(rand({1, 2, 4})));
  CHECK_TYPE(ReflectionPad2d, (1), in(rand({1, 2, 4, 4})));
  CHECK_TYPE(ReflectionPad3d, (1), in(rand({1, 2, 4, 4, 4})));
  CHECK_TYPE(ReplicationPad1d, (1), in(rand({1, 2, 4})));
  CHECK_TYPE(ReplicationPad2d, (1), in(rand({1, 2, 4, 4})));
  CHECK_TYPE(ReplicationPad3d, (1), in(rand({1, 2, 4, 4, 4})));
  CHECK_TYPE(ZeroPad2d, (1), in(rand({1, 2, 4, 4})));
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
  CHECK_TYPE(ZeroPad1d, (1), in(rand({1, 2, 4})));
  CHECK_TYPE(ZeroPad3d, (1), in(rand({1, 2, 4, 4, 4})));
  CHECK_TYPE(LPPool3d, (2.0, 2), in(probabilities({1, 2, 4, 4, 4})));
#endif
  CHECK_TYPE(AvgPool1d, (2), in(rand({1, 2, 4})));
  CHECK_TYPE(AvgPool2d, (2), in(rand({1, 2, 4, 4})));
  CHECK_TYPE(AvgPool3d, (2), in(rand({1, 2, 4, 4, 4})));
  CHECK_TYPE(MaxPool1d, (2), in(rand({1, 2, 4})));
  CHECK_TYPE(MaxPool2d, (2), in(rand({1, 2, 4, 4})));
  CHECK_TYPE(MaxPool3d, (2), in(rand({1, 2, 4, 4, 4})));
  CHECK_TYPE(LPPool1d, (2.0, 2), in(probabilities({1, 2, 4})));
  CHECK_TYPE(LPPool2d, (2.0, 2), in(probabilities({1, 2, 4, 4})));
  CHECK_TYPE(AdaptiveAvgPool1d, (2), in(rand({1, 2, 4})));
  CHECK_TYPE(AdaptiveAvgPool2d, (2), in(rand({1, 2, 4, 4})));
  CHECK_TYPE(AdaptiveAvgPool3d, (2), in(rand({1, 2, 4, 4, 4})));
  CHECK_TYPE(AdaptiveMaxPool1d, (2), in(rand({1, 2, 4})));
  CHECK_TYPE(AdaptiveMaxPool2d, (2), in(rand({1, 2, 4, 4})));
  CHECK_TYPE(AdaptiveMaxPool3d, (2), in(rand({1, 2, 4, 4, 4})));
  CHECK_TYPE(FractionalMaxPool2d, (torch::nn::FractionalMaxPool2dOptions(2).output_size(2)),
             in(rand({1, 2, 5, 5})));
  CHECK_TYPE(FractionalMaxPool3d, (torch::nn::FractionalMaxPool3dOptions(2).output_size(2)),
             in(rand({1, 2, 5, 5, 5})));
  const auto evens = at::tensor({0, 2, 4, 6}, at::kLong);
  CHECK_TYPE(MaxUnpool1d, (2), in(rand({1, 1, 4}), evens.view({1, 1, 4})));
  CHECK_TYPE(MaxUnpool2d, (2), in(rand({1, 1, 2, 2}), evens.view({1, 1, 2, 2})));
  CHECK_TYPE(MaxUnpool3d, (2), in(rand({1, 1, 1, 2, 2}), evens.view({1, 1, 1, 2, 2})));
}

BOOST_AUTO_TEST_CASE(losses) {
  at::manual_seed(0);
  CHECK_TYPE(L1Loss, (), in(rand({3, 4}), rand({3, 4})));
  CHECK_TYPE(MSELoss, (), in(rand({3, 4}), rand({3, 4})));
  CHECK_TYPE(SmoothL1Loss, (), in(rand({3, 4}), rand({3, 4})));
  CHECK_TYPE(HuberLoss, (), in(rand({3, 4}), rand({3, 4})));
  CHECK_TYPE(KLDivLoss, (torch::nn::KLDivLossOptions().reduction(torch::kSum)),
             in(rand({3, 4}), at::rand({3, 4})));
  CHECK_TYPE(BCELoss, (), in(probabilities({3, 4}), at::rand({3, 4})));
  CHECK_TYPE(BCEWithLogitsLoss, (), in(rand({3, 4}), at::rand({3, 4})));
  CHECK_TYPE(CrossEntropyLoss, (), in(rand({3, 4}), ints(4, {3})));
  CHECK_TYPE(NLLLoss, (), in(rand({3, 4}), ints(4, {3})));
  CHECK_TYPE(PoissonNLLLoss, (), in(rand({3, 4}), at::rand({3, 4})));
  CHECK_TYPE(SoftMarginLoss, (), in(rand({3, 4}), signs({3, 4})));
  CHECK_TYPE(HingeEmbeddingLoss, (), in(rand({3, 4}), signs({3, 4})));
  CHECK_TYPE(MultiMarginLoss, (), in(rand({3, 4}), ints(4, {3})));
  CHECK_TYPE(MultiLabelMarginLoss, (), in(rand({3, 4}), ints(4, {3, 4})));
  CHECK_TYPE(MultiLabelSoftMarginLoss, (), in(rand({3, 4}), ints(2, {3, 4}).to(at::kFloat)));
  CHECK_TYPE(CosineEmbeddingLoss, (), in(rand({3, 4}), rand({3, 4}), signs({3})));
  CHECK_TYPE(MarginRankingLoss, (), in(rand({3}), rand({3}), signs({3})));
  CHECK_TYPE(TripletMarginLoss, (), in(rand({3, 4}), rand({3, 4}), rand({3, 4})));
  CHECK_TYPE(TripletMarginWithDistanceLoss, (), in(rand({3, 4}), rand({3, 4}), rand({3, 4})));
  CHECK_TYPE(CTCLoss, (),
             in(at::randn({6, 2, 5}).log_softmax(2).set_requires_grad(true), ints(4, {2, 3}).add(1),
                at::full({2}, 6, at::kLong), at::full({2}, 3, at::kLong)));
  CHECK_TYPE(AdaptiveLogSoftmaxWithLoss, (torch::nn::AdaptiveLogSoftmaxWithLossOptions(16, 12, {3, 6})),
             in(rand({5, 16}), at::tensor({0, 2, 4, 5, 11}, at::kLong)));
}

BOOST_AUTO_TEST_CASE(recurrent) {
  at::manual_seed(0);
  CHECK_TYPE(RNN, (4, 3), in(rand({5, 2, 4})));
  CHECK_TYPE(GRU, (torch::nn::GRUOptions(4, 3).batch_first(true).num_layers(2).dropout(0.5)),
             in(rand({5, 2, 4}), rand({2, 5, 3})));
  CHECK_TYPE(LSTM, (4, 3), in(rand({5, 2, 4})));
  CHECK_TYPE(RNNCell, (4, 3), in(rand({2, 4})));
  CHECK_TYPE(GRUCell, (4, 3), in(rand({2, 4}), rand({2, 3})));
  CHECK_TYPE(LSTMCell, (4, 3), in(rand({2, 4})));
}

BOOST_AUTO_TEST_CASE(attention) {
  at::manual_seed(0);
  using namespace torch::nn;
  CHECK_TYPE(MultiheadAttention, (4, 2), in(rand({3, 2, 4}), rand({5, 2, 4}), rand({5, 2, 4})));
  CHECK_TYPE(TransformerEncoderLayer, (TransformerEncoderLayerOptions(4, 2).dim_feedforward(8)),
             in(rand({3, 2, 4})));
  CHECK_TYPE(TransformerDecoderLayer, (TransformerDecoderLayerOptions(4, 2).dim_feedforward(8)),
             in(rand({3, 2, 4}), rand({5, 2, 4})));
  CHECK_TYPE(
      TransformerEncoder,
      (TransformerEncoderOptions(
          torch::nn::TransformerEncoderLayer(TransformerEncoderLayerOptions(4, 2).dim_feedforward(8)), 2)),
      in(rand({3, 2, 4})));
  CHECK_TYPE(
      TransformerDecoder,
      (TransformerDecoderOptions(
          torch::nn::TransformerDecoderLayer(TransformerDecoderLayerOptions(4, 2).dim_feedforward(8)), 2)),
      in(rand({3, 2, 4}), rand({5, 2, 4})));
  CHECK_TYPE(Transformer, (TransformerOptions(4, 2, 1, 1).dim_feedforward(8)),
             in(rand({3, 2, 4}), rand({5, 2, 4})));
}

// After the others: what was checked above is the whole list, and the list is all that LibTorch has.
BOOST_AUTO_TEST_CASE(the_list_is_complete,
                     *boost::unit_test::depends_on("builtin/layers") *
                         boost::unit_test::depends_on("builtin/activations") *
                         boost::unit_test::depends_on("builtin/normalisation_and_dropout") *
                         boost::unit_test::depends_on("builtin/padding_and_pooling") *
                         boost::unit_test::depends_on("builtin/losses") *
                         boost::unit_test::depends_on("builtin/recurrent") *
                         boost::unit_test::depends_on("builtin/attention")) {
  std::set<std::string> listed;
#define TORCHTAP_TEST_NAME(Name) listed.insert(#Name);
  TORCHTAP_FOR_EACH_BUILTIN(TORCHTAP_TEST_NAME)
#undef TORCHTAP_TEST_NAME
  BOOST_TEST(checked_types() == listed, boost::test_tools::per_element());

  // Containers without a forward, and the one container that needs no drop-in.
  std::set<std::string> known = listed;
  known.insert({"ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"});
  std::set<std::string> in_headers;
  const std::regex expression(R"(TORCH_MODULE\((\w+)\)|\nclass (\w+)\s*:\s*public torch::nn::ModuleHolder<)");
  for (const auto& file : std::filesystem::recursive_directory_iterator(TORCHTAP_TORCH_MODULES)) {
    if (file.path().extension() != ".h") continue;
    std::ifstream stream(file.path());
    const std::string text(std::istreambuf_iterator<char>(stream), {});
    for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match) {
      in_headers.insert((*match)[1].matched ? (*match)[1] : (*match)[2]);
    }
  }
  in_headers.erase("M");  // an example in a comment
  for (const auto& name : in_headers) BOOST_TEST(known.count(name) == 1, name << " is missing in the list");
  for (const auto& name : known) BOOST_TEST(in_headers.count(name) == 1, name << " is not in the headers");
}

BOOST_AUTO_TEST_SUITE_END()
