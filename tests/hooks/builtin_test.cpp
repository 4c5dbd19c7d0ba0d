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

void check_seen(const Seen& seen, const Tensors& inputs, const Outcome& want) {
  BOOST_TEST(seen.pre == 1);
  BOOST_TEST(seen.forward == 1);
  BOOST_TEST(seen.output == 1);
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
                  const Tensors& inputs, const Outcome& want) {
  BOOST_TEST_CONTEXT(how) {
    const auto module = hooks::find(*made.module, path);
    if (!type.empty()) BOOST_TEST(module.type() == type);
    Seen seen;
    const auto handles = watch(module, seen);
    check_same(run(*made.module, inputs, made.forward), want);
    check_seen(seen, inputs, want);
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

    check_hooked("entry of a Sequential", entry<Plain>(make, kAll), "0", name, inputs, want);
    check_hooked("the Sequential around it", entry<Plain>(make, kAll), "", "Sequential", inputs, want);
    check_hooked("drop-in in a Sequential", entry<DropIn>(make, kAll), "0", name, inputs, want);
    check_hooked("drop-in, holder(x)", direct<DropIn>(make, true, kAll), "", name, inputs, want);
    check_hooked("drop-in, holder->forward(x)", direct<DropIn>(make, false, kAll), "", name, inputs, want);
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

// CHECK(Linear, (4, 3), in(rand({2, 4}))): the constructor's arguments, then forward's.
#define CHECK(Name, arguments, ...)                                                \
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
  CHECK(Linear, (4, 3), in(rand({2, 4})));
  CHECK(Bilinear, (4, 3, 2), in(rand({2, 4}), rand({2, 3})));
  CHECK(Identity, (), in(rand({2, 4})));
  CHECK(Flatten, (), in(rand({2, 4, 3})));
  CHECK(Unflatten, (torch::nn::UnflattenOptions(1, {2, 2})), in(rand({3, 4})));
  CHECK(Functional, (torch::relu), in(rand({2, 4})));
  CHECK(Embedding, (10, 3), in(ints(10, {2, 4})));
  CHECK(EmbeddingBag, (10, 3), in(ints(10, {2, 4})));
  CHECK(Conv1d, (4, 3, 2), in(rand({2, 4, 6})));
  CHECK(Conv2d, (2, 3, 2), in(rand({2, 2, 6, 6})));
  CHECK(Conv3d, (2, 3, 2), in(rand({2, 2, 4, 4, 4})));
  CHECK(ConvTranspose1d, (4, 3, 2), in(rand({2, 4, 6})));
  CHECK(ConvTranspose2d, (2, 3, 2), in(rand({2, 2, 6, 6})));
  CHECK(ConvTranspose3d, (2, 3, 2), in(rand({2, 2, 4, 4, 4})));
  CHECK(Fold, (torch::nn::FoldOptions({4, 5}, {2, 2})), in(rand({1, 12, 12})));
  CHECK(Unfold, (2), in(rand({2, 3, 4, 5})));
  CHECK(PixelShuffle, (2), in(rand({1, 8, 3, 3})));
  CHECK(PixelUnshuffle, (2), in(rand({1, 2, 6, 6})));
  CHECK(Upsample,
        (torch::nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest)),
        in(rand({1, 2, 3, 3})));
  CHECK(CosineSimilarity, (), in(rand({3, 4}), rand({3, 4})));
  CHECK(PairwiseDistance, (), in(rand({3, 4}), rand({3, 4})));
}

BOOST_AUTO_TEST_CASE(activations) {
  at::manual_seed(0);
  CHECK(ELU, (), in(rand({2, 4})));
  CHECK(SELU, (), in(rand({2, 4})));
  CHECK(CELU, (), in(rand({2, 4})));
  CHECK(GELU, (), in(rand({2, 4})));
  CHECK(GLU, (), in(rand({2, 4})));
  CHECK(Hardshrink, (), in(rand({2, 4})));
  CHECK(Hardtanh, (), in(rand({2, 4})));
  CHECK(LeakyReLU, (), in(rand({2, 4})));
  CHECK(LogSigmoid, (), in(rand({2, 4})));
  CHECK(LogSoftmax, (1), in(rand({2, 4})));
  CHECK(Mish, (), in(rand({2, 4})));
  CHECK(PReLU, (), in(rand({2, 4})));
  CHECK(RReLU, (), in(rand({2, 4})));
  CHECK(ReLU, (), in(rand({2, 4})));
  CHECK(ReLU6, (), in(rand({2, 4})));
  CHECK(SiLU, (), in(rand({2, 4})));
  CHECK(Sigmoid, (), in(rand({2, 4})));
  CHECK(Softmax, (1), in(rand({2, 4})));
  CHECK(Softmax2d, (), in(rand({2, 3, 4, 4})));
  CHECK(Softmin, (1), in(rand({2, 4})));
  CHECK(Softplus, (), in(rand({2, 4})));
  CHECK(Softshrink, (), in(rand({2, 4})));
  CHECK(Softsign, (), in(rand({2, 4})));
  CHECK(Tanh, (), in(rand({2, 4})));
  CHECK(Tanhshrink, (), in(rand({2, 4})));
  CHECK(Threshold, (0.1, 20.0), in(rand({2, 4})));
}

BOOST_AUTO_TEST_CASE(normalisation_and_dropout) {
  at::manual_seed(0);
  CHECK(BatchNorm1d, (4), in(rand({3, 4})));
  CHECK(BatchNorm2d, (4), in(rand({3, 4, 2, 2})));
  CHECK(BatchNorm3d, (4), in(rand({3, 4, 2, 2, 2})));
  CHECK(InstanceNorm1d, (torch::nn::InstanceNorm1dOptions(4).affine(true).track_running_stats(true)),
        in(rand({3, 4, 5})));
  CHECK(InstanceNorm2d, (4), in(rand({3, 4, 2, 2})));
  CHECK(InstanceNorm3d, (4), in(rand({3, 4, 2, 2, 2})));
  CHECK(LayerNorm, (torch::nn::LayerNormOptions({4})), in(rand({3, 4})));
  CHECK(GroupNorm, (2, 4), in(rand({3, 4, 2})));
  CHECK(LocalResponseNorm, (2), in(rand({3, 4, 5})));
  CHECK(CrossMapLRN2d, (3), in(rand({3, 4, 5, 5})));
  CHECK(Dropout, (), in(rand({8, 8})));
  CHECK(Dropout2d, (), in(rand({8, 8, 2, 2})));
  CHECK(Dropout3d, (), in(rand({8, 8, 2, 2, 2})));
  CHECK(AlphaDropout, (), in(rand({8, 8})));
  CHECK(FeatureAlphaDropout, (), in(rand({8, 8, 2})));
}

BOOST_AUTO_TEST_CASE(padding_and_pooling) {
  at::manual_seed(0);
  CHECK(ConstantPad1d, (1, 2.0), in(rand({1, 2, 4})));
  CHECK(ConstantPad2d, (1, 2.0), in(rand({1, 2, 4, 4})));
  CHECK(ConstantPad3d, (1, 2.0), in(rand({1, 2, 4, 4, 4})));
  CHECK(ReflectionPad1d, (1), in(rand({1, 2, 4})));
  CHECK(ReflectionPad2d, (1), in(rand({1, 2, 4, 4})));
  CHECK(ReflectionPad3d, (1), in(rand({1, 2, 4, 4, 4})));
  CHECK(ReplicationPad1d, (1), in(rand({1, 2, 4})));
  CHECK(ReplicationPad2d, (1), in(rand({1, 2, 4, 4})));
  CHECK(ReplicationPad3d, (1), in(rand({1, 2, 4, 4, 4})));
  CHECK(ZeroPad2d, (1), in(rand({1, 2, 4, 4})));
  CHECK(AvgPool1d, (2), in(rand({1, 2, 4})));
  CHECK(AvgPool2d, (2), in(rand({1, 2, 4, 4})));
  CHECK(AvgPool3d, (2), in(rand({1, 2, 4, 4, 4})));
  CHECK(MaxPool1d, (2), in(rand({1, 2, 4})));
  CHECK(MaxPool2d, (2), in(rand({1, 2, 4, 4})));
  CHECK(MaxPool3d, (2), in(rand({1, 2, 4, 4, 4})));
  CHECK(LPPool1d, (2.0, 2), in(probabilities({1, 2, 4})));
  CHECK(LPPool2d, (2.0, 2), in(probabilities({1, 2, 4, 4})));
  CHECK(AdaptiveAvgPool1d, (2), in(rand({1, 2, 4})));
  CHECK(AdaptiveAvgPool2d, (2), in(rand({1, 2, 4, 4})));
  CHECK(AdaptiveAvgPool3d, (2), in(rand({1, 2, 4, 4, 4})));
  CHECK(AdaptiveMaxPool1d, (2), in(rand({1, 2, 4})));
  CHECK(AdaptiveMaxPool2d, (2), in(rand({1, 2, 4, 4})));
  CHECK(AdaptiveMaxPool3d, (2), in(rand({1, 2, 4, 4, 4})));
  CHECK(FractionalMaxPool2d, (torch::nn::FractionalMaxPool2dOptions(2).output_size(2)),
        in(rand({1, 2, 5, 5})));
  CHECK(FractionalMaxPool3d, (torch::nn::FractionalMaxPool3dOptions(2).output_size(2)),
        in(rand({1, 2, 5, 5, 5})));
  const auto evens = at::tensor({0, 2, 4, 6}, at::kLong);
  CHECK(MaxUnpool1d, (2), in(rand({1, 1, 4}), evens.view({1, 1, 4})));
  CHECK(MaxUnpool2d, (2), in(rand({1, 1, 2, 2}), evens.view({1, 1, 2, 2})));
  CHECK(MaxUnpool3d, (2), in(rand({1, 1, 1, 2, 2}), evens.view({1, 1, 1, 2, 2})));
}

BOOST_AUTO_TEST_CASE(losses) {
  at::manual_seed(0);
  CHECK(L1Loss, (), in(rand({3, 4}), rand({3, 4})));
  CHECK(MSELoss, (), in(rand({3, 4}), rand({3, 4})));
  CHECK(SmoothL1Loss, (), in(rand({3, 4}), rand({3, 4})));
  CHECK(HuberLoss, (), in(rand({3, 4}), rand({3, 4})));
  CHECK(KLDivLoss, (torch::nn::KLDivLossOptions().reduction(torch::kSum)),
        in(rand({3, 4}), at::rand({3, 4})));
  CHECK(BCELoss, (), in(probabilities({3, 4}), at::rand({3, 4})));
  CHECK(BCEWithLogitsLoss, (), in(rand({3, 4}), at::rand({3, 4})));
  CHECK(CrossEntropyLoss, (), in(rand({3, 4}), ints(4, {3})));
  CHECK(NLLLoss, (), in(rand({3, 4}), ints(4, {3})));
  CHECK(PoissonNLLLoss, (), in(rand({3, 4}), at::rand({3, 4})));
  CHECK(SoftMarginLoss, (), in(rand({3, 4}), signs({3, 4})));
  CHECK(HingeEmbeddingLoss, (), in(rand({3, 4}), signs({3, 4})));
  CHECK(MultiMarginLoss, (), in(rand({3, 4}), ints(4, {3})));
  CHECK(MultiLabelMarginLoss, (), in(rand({3, 4}), ints(4, {3, 4})));
  CHECK(MultiLabelSoftMarginLoss, (), in(rand({3, 4}), ints(2, {3, 4}).to(at::kFloat)));
  CHECK(CosineEmbeddingLoss, (), in(rand({3, 4}), rand({3, 4}), signs({3})));
  CHECK(MarginRankingLoss, (), in(rand({3}), rand({3}), signs({3})));
  CHECK(TripletMarginLoss, (), in(rand({3, 4}), rand({3, 4}), rand({3, 4})));
  CHECK(TripletMarginWithDistanceLoss, (), in(rand({3, 4}), rand({3, 4}), rand({3, 4})));
  CHECK(CTCLoss, (),
        in(at::randn({6, 2, 5}).log_softmax(2).set_requires_grad(true), ints(4, {2, 3}).add(1),
           at::full({2}, 6, at::kLong), at::full({2}, 3, at::kLong)));
  CHECK(AdaptiveLogSoftmaxWithLoss, (torch::nn::AdaptiveLogSoftmaxWithLossOptions(16, 12, {3, 6})),
        in(rand({5, 16}), at::tensor({0, 2, 4, 5, 11}, at::kLong)));
}

BOOST_AUTO_TEST_CASE(recurrent) {
  at::manual_seed(0);
  CHECK(RNN, (4, 3), in(rand({5, 2, 4})));
  CHECK(GRU, (torch::nn::GRUOptions(4, 3).batch_first(true).num_layers(2).dropout(0.5)),
        in(rand({5, 2, 4}), rand({2, 5, 3})));
  CHECK(LSTM, (4, 3), in(rand({5, 2, 4})));
  CHECK(RNNCell, (4, 3), in(rand({2, 4})));
  CHECK(GRUCell, (4, 3), in(rand({2, 4}), rand({2, 3})));
  CHECK(LSTMCell, (4, 3), in(rand({2, 4})));
}

BOOST_AUTO_TEST_CASE(attention) {
  at::manual_seed(0);
  using namespace torch::nn;
  CHECK(MultiheadAttention, (4, 2), in(rand({3, 2, 4}), rand({5, 2, 4}), rand({5, 2, 4})));
  CHECK(TransformerEncoderLayer, (TransformerEncoderLayerOptions(4, 2).dim_feedforward(8)),
        in(rand({3, 2, 4})));
  CHECK(TransformerDecoderLayer, (TransformerDecoderLayerOptions(4, 2).dim_feedforward(8)),
        in(rand({3, 2, 4}), rand({5, 2, 4})));
  CHECK(TransformerEncoder,
        (TransformerEncoderOptions(
            torch::nn::TransformerEncoderLayer(TransformerEncoderLayerOptions(4, 2).dim_feedforward(8)), 2)),
        in(rand({3, 2, 4})));
  CHECK(TransformerDecoder,
        (TransformerDecoderOptions(
            torch::nn::TransformerDecoderLayer(TransformerDecoderLayerOptions(4, 2).dim_feedforward(8)), 2)),
        in(rand({3, 2, 4}), rand({5, 2, 4})));
  CHECK(Transformer, (TransformerOptions(4, 2, 1, 1).dim_feedforward(8)),
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
  BOOST_TEST(in_headers == known, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
