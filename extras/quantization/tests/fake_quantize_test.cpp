// Models with rounded weights and activations, against the same computation by hand with at::fake_quantize_*.
#include <boost/test/unit_test.hpp>
#include <torch/script.h>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <thread>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/quantization/fake_quantize.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/max.hpp>

#include "tests/convolves.hpp"
#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(fake_quantize_test)

namespace tap = torchtap;
namespace nn = torch::nn;
using tap::quantization::Calibration;
using tap::quantization::Dtype;
using tap::quantization::fake_quantize;
using tap::quantization::FakeQuantized;
using tap::quantization::Parameters;
using tap::quantization::QuantizedTensor;
using torchtap_test::contains;
using torchtap_test::error_of;

namespace {

/// What a number of each is rounded to, from -range to range.
Parameters symmetric(double range, Dtype dtype = Dtype::int8) {
  Parameters found;
  found.dtype = dtype;
  const double half = static_cast<double>(found.quant_max() - found.quant_min()) / 2;
  found.scale = torch::tensor(range / half, torch::kFloat);
  found.zero_point = torch::tensor(dtype == Dtype::uint8 ? 128 : 0, torch::kInt);
  found.low = torch::tensor(-range, torch::kFloat);
  found.high = torch::tensor(range, torch::kFloat);
  return found;
}

QuantizedTensor output(const std::string& path, double range, std::optional<Dtype> weights = Dtype::int8) {
  return {path, "", false, 0, symmetric(range), weights};
}

QuantizedTensor input(const std::string& path, double range) {
  return {path, "", true, 0, symmetric(range, Dtype::uint8), {}};
}

/// By hand, without torchtap: a tensor rounded by a range.
at::Tensor rounded(const at::Tensor& x, double range, Dtype dtype = Dtype::int8) {
  const float scale = static_cast<float>(range / (dtype == Dtype::int4 ? 7.5 : 127.5));
  const std::int64_t zero = dtype == Dtype::uint8 ? 128 : 0;
  const std::int64_t least = dtype == Dtype::uint8 ? 0 : dtype == Dtype::int4 ? -8 : -128;
  const std::int64_t largest = dtype == Dtype::uint8 ? 255 : dtype == Dtype::int4 ? 7 : 127;
  const at::Tensor y = at::fake_quantize_per_tensor_affine(x.to(at::kFloat), scale, zero, least, largest);
  return y.to(x.scalar_type());
}

/// By hand: a weight rounded to int8 or int4, symmetric, by the largest magnitude of each channel.
at::Tensor rounded_weight(const at::Tensor& weight, std::int64_t axis = 0, bool int4 = false) {
  const at::Tensor w = weight.detach().to(at::kFloat);
  const at::Tensor magnitude = w.transpose(0, axis).flatten(1).abs().amax(1);
  const at::Tensor scale =
      (magnitude / (int4 ? 7.5 : 127.5)).clamp_min(std::numeric_limits<float>::epsilon());
  const at::Tensor y = at::fake_quantize_per_channel_affine(w, scale, at::zeros_like(scale, at::kInt), axis,
                                                            int4 ? -8 : -128, int4 ? 7 : 127);
  return y.to(weight.scalar_type());
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), a.nbytes()) == 0;
}

/// Parameters as they were: the tensor objects, their storage, bits and gradients.
class Before {
 public:
  explicit Before(std::vector<at::Tensor> parameters) : parameters_(std::move(parameters)) {
    for (const at::Tensor& one : parameters_) {
      storages_.push_back(one.data_ptr());
      strides_.push_back(one.strides().vec());
      values_.push_back(one.detach().clone());
      grads_.push_back(one.grad().defined() ? one.grad().clone() : at::Tensor());
    }
  }
  void check() const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      BOOST_TEST(parameters_[i].data_ptr() == storages_[i]);
      BOOST_TEST((parameters_[i].strides().vec() == strides_[i]));
      BOOST_TEST(same_bits(parameters_[i], values_[i]));
      BOOST_TEST(parameters_[i].grad().defined() == grads_[i].defined());
      if (grads_[i].defined()) BOOST_TEST(same_bits(parameters_[i].grad(), grads_[i]));
    }
  }

 private:
  std::vector<at::Tensor> parameters_, values_, grads_;
  std::vector<void*> storages_;
  std::vector<std::vector<std::int64_t>> strides_;
};

nn::Sequential network() {
  torch::manual_seed(1);
  nn::Sequential model(nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1)), nn::ReLU(),
                       nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 3, 2).stride(2)), nn::BatchNorm2d(3),
                       nn::Flatten(), nn::Linear(3 * 12 * 12, 5));
  model->eval();
  return model;
}

Calibration of_network() {
  return Calibration({input("", 3), output("0", 2), output("1", 2, {}), output("2", 1.5), output("3", 1.5),
                      output("5", 1, Dtype::int4)});
}

/// The network by hand, whose gradients reach the parameters as if their values were the rounded ones.
at::Tensor by_hand(const nn::Sequential& model, const at::Tensor& x, const std::vector<at::Tensor>& weights) {
  const auto parameter = [&](const std::string& name) { return model->named_parameters()[name]; };
  at::Tensor y = rounded(x, 3, Dtype::uint8);
  y = rounded(at::conv2d(y, weights[0], parameter("0.bias"), 1, 1), 2);
  y = rounded(at::relu(y), 2);
  y = rounded(at::conv_transpose2d(y, weights[1], parameter("2.bias"), 2), 1.5);
  y = rounded(std::dynamic_pointer_cast<nn::BatchNorm2dImpl>(model->ptr(3))->forward(y), 1.5);
  return rounded(at::linear(at::flatten(y, 1), weights[2], parameter("5.bias")), 1);
}

std::vector<at::Tensor> hand_weights(const nn::Sequential& model) {
  const auto all = model->named_parameters();
  return {rounded_weight(all["0.weight"]), rounded_weight(all["2.weight"], 1),
          rounded_weight(all["5.weight"], 0, true)};
}

at::Tensor images(std::int64_t seed = 0) {
  torch::manual_seed(seed);
  return torch::randn({2, 1, 6, 6});
}

struct ScaleImpl : nn::Module {
  explicit ScaleImpl(const at::Tensor& shared) { weight = register_parameter("weight", shared); }
  at::Tensor forward(const at::Tensor& x) { return x.mm(weight); }
  at::Tensor weight;
};
TORCHTAP_MODULE(Scale);

/// A block that calls a module twice, two modules that share a weight, and a tuple.
struct BlockImpl : nn::Module {
  BlockImpl() {
    shared = register_module("shared", tap::nn::Linear(3, 3));
    own = register_module("own", Scale(torch::randn({3, 3})));
    tied = register_module("tied", Scale(own->weight));
    lstm = register_module("lstm", tap::nn::LSTM(3, 2));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = tied(own(shared(shared(x))));
    const auto [all, state] = lstm(y.unsqueeze(0));
    return at::cat({all[0], std::get<1>(state)[0]}, 0);
  }
  tap::nn::Linear shared{nullptr};
  Scale own{nullptr}, tied{nullptr};
  tap::nn::LSTM lstm{nullptr};
};
TORCHTAP_MODULE(Block);

/// A TorchScript model of a convolution and a linear layer, which returns a tuple.
torch::jit::Module scripted(at::ScalarType dtype = at::kFloat) {
  torch::manual_seed(2);
  torch::jit::Module conv("__torch__.torch.nn.modules.conv.Conv2d"), linear("__torch__.Linear"),
      root("__torch__.Net");
  conv.register_parameter("weight", torch::randn({4, 1, 3, 3}).to(dtype), false);
  conv.define("def forward(self, x):\n  return torch.conv2d(x, self.weight)\n");
  linear.register_parameter("weight", torch::randn({5, 64}).to(dtype), false);
  linear.register_parameter("bias", torch::randn({5}).to(dtype), false);
  linear.define("def forward(self, x):\n  return torch.linear(x, self.weight, self.bias), x.sum()\n");
  root.register_module("conv", conv);
  root.register_module("linear", linear);
  root.define(
      "def forward(self, x):\n"
      "  y = torch.relu(self.conv.forward(x))\n"
      "  return self.linear.forward(torch.flatten(y, 1))\n");
  root.eval();
  return root;
}

Calibration of_scripted() {
  QuantizedTensor sum = output("linear", 50);
  sum.slot = 1;
  return Calibration({output("conv", 4), input("linear", 6), output("linear", 9), sum});
}

std::vector<at::Tensor> scripted_by_hand(const torch::jit::Module& model, const at::Tensor& x) {
  const auto of = [&](const char* module, const char* name) {
    return model.attr(module).toModule().attr(name).toTensor();
  };
  at::Tensor y = rounded(at::conv2d(x, rounded_weight(of("conv", "weight"))), 4);
  y = rounded(at::flatten(at::relu(y), 1), 6, Dtype::uint8);
  return {rounded(at::linear(y, rounded_weight(of("linear", "weight")), of("linear", "bias")), 9),
          rounded(y.sum(), 50)};
}

std::vector<at::Tensor> run(torch::jit::Module& model, const at::Tensor& x) {
  const auto outputs = model.forward({x}).toTuple();
  return {outputs->elements()[0].toTensor(), outputs->elements()[1].toTensor()};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_sequential_gives_the_bits_of_the_computation_by_hand) {
  nn::Sequential model = network();
  const at::Tensor x = images();
  const at::Tensor plain = model->forward(x);
  const std::vector<at::Tensor> weights = hand_weights(model);
  const Before before(model->parameters());
  {
    const FakeQuantized quantized = fake_quantize(*model, of_network());
    BOOST_TEST(quantized.activations() == 6);
    BOOST_TEST(quantized.weights() == 3);  // the one of a batch norm has one dimension
    BOOST_TEST(same_bits(model->named_parameters()["0.weight"], weights[0]));
    BOOST_TEST(same_bits(model->named_parameters()["2.weight"], weights[1]));
    const at::Tensor want = by_hand(model, x, weights);
    for (int i = 0; i < 3; ++i) BOOST_TEST(same_bits(model->forward(x), want));
    BOOST_TEST(!same_bits(want, plain));
  }
  before.check();
  BOOST_TEST(same_bits(model->forward(x), plain));
}

BOOST_AUTO_TEST_CASE(gradients_are_those_by_hand_and_afterwards_those_of_before) {
  nn::Sequential model = network();
  const auto backward = [&](const at::Tensor& y, const at::Tensor& x) {
    auto inputs = model->parameters();
    inputs.push_back(x);
    return torch::autograd::grad({y.square().sum()}, inputs);
  };
  const auto same = [](const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_bits);
  };
  const at::Tensor x = images().requires_grad_();
  const auto plain = backward(model->forward(x), x);
  std::vector<at::Tensor> weights = hand_weights(model);
  for (at::Tensor& weight : weights) weight.requires_grad_();
  auto leaves = model->parameters();
  leaves[0] = weights[0], leaves[2] = weights[1], leaves[6] = weights[2];
  leaves.push_back(x);
  const auto want = torch::autograd::grad({by_hand(model, x, weights).square().sum()}, leaves);

  model->forward(x).sum().backward();  // gradients that must survive
  const Before before(model->parameters());
  FakeQuantized quantized = fake_quantize(*model, of_network());
  BOOST_TEST(same(backward(model->forward(x), x), want));
  BOOST_TEST(!same(want, plain));
  const at::Tensor late = model->forward(x);
  quantized.remove();
  before.check();
  BOOST_TEST(same(backward(model->forward(x), x), plain));
  // Not gradients by weights that the forward did not use.
  BOOST_TEST(contains(error_of([&] { late.sum().backward(); }), "modified by an inplace operation"));
  const at::Tensor early = model->forward(x);
  quantized = fake_quantize(*model, of_network());
  BOOST_TEST(contains(error_of([&] { early.sum().backward(); }), "modified by an inplace operation"));
}

BOOST_AUTO_TEST_CASE(other_dtypes_compute_in_float32_and_keep_theirs) {
  for (const auto dtype : {at::kDouble, at::kHalf, at::kBFloat16}) {
    torch::manual_seed(4);
    nn::Sequential model(nn::Linear(8, 6), nn::Linear(6, 4));
    model->to(dtype);
    const at::Tensor x = torch::randn({5, 8}).to(dtype);
    const auto all = model->named_parameters();
    const at::Tensor w0 = rounded_weight(all["0.weight"]), w1 = rounded_weight(all["1.weight"]);
    const Before before(model->parameters());
    {
      const auto quantized = fake_quantize(*model, Calibration({output("0", 2), output("1", 2)}));
      BOOST_TEST(same_bits(all["0.weight"], w0));
      BOOST_TEST(all["1.weight"].scalar_type() == dtype);
      if (dtype != at::kHalf) {  // which LibTorch's CPU has no products for, before 2.1
        at::Tensor want = rounded(at::linear(x, w0, all["0.bias"]), 2);
        want = rounded(at::linear(want, w1, all["1.bias"]), 2);
        BOOST_TEST(same_bits(model->forward(x), want));
      }
    }
    before.check();
  }
  // Activations of float16, on a model that needs no product.
  nn::Sequential same{nn::Identity()};
  const auto quantized = fake_quantize(*same, Calibration({output("0", 1)}));
  const at::Tensor x = torch::randn({50}).to(at::kHalf);
  BOOST_TEST(same_bits(same->forward(x), rounded(x, 1)));
}

BOOST_AUTO_TEST_CASE(own_modules_shared_ones_and_tuples) {
  torch::manual_seed(3);
  Block block;
  const at::Tensor x = torch::randn({4, 3});
  const at::Tensor plain = block(x);
  QuantizedTensor state = output("lstm", 0.5);
  state.slot = 2;
  const Calibration calibration(
      {input("shared", 2), output("shared", 2), output("own", 2), output("tied", 2), state});
  const at::Tensor w = rounded_weight(block->shared->weight), tied = rounded_weight(block->own->weight);
  at::Tensor y = x;
  for (int i = 0; i < 2; ++i) y = rounded(at::linear(rounded(y, 2, Dtype::uint8), w, block->shared->bias), 2);
  y = rounded(rounded(y.mm(tied), 2).mm(tied), 2);
  std::vector<std::pair<at::Tensor, at::Tensor>>
      matrices;  // of the LSTM, while it runs by hand, and as they were
  for (const at::Tensor& one : block->lstm->parameters()) {
    if (one.dim() < 2) continue;
    matrices.emplace_back(one, one.variable_data());
    matrices.back().first.set_data(rounded_weight(one));
  }
  const auto [all, states] = block->lstm(y.unsqueeze(0));
  const at::Tensor want = at::cat({all[0], rounded(std::get<1>(states)[0], 0.5)}, 0);
  for (auto& [one, values] : matrices) one.set_data(values);

  const Before before(block->parameters());
  FakeQuantized first = fake_quantize(*block, calibration);
  BOOST_TEST(first.activations() == 5);
  BOOST_TEST(first.weights() == 4);  // that of own and tied is one, and the LSTM has two
  BOOST_TEST(same_bits(block(x), want));
  FakeQuantized moved = std::move(first);
  BOOST_TEST(first.activations() == 0);  // NOLINT: moved from
  first.remove();
  BOOST_TEST(same_bits(block(x), want));
  moved = FakeQuantized();
  BOOST_TEST(same_bits(block(x), plain));
  before.check();

  // Of a recorder beside it: what it sees are the rounded values if it came later.
  const auto quantized = fake_quantize(tap::model::walk_modules(*block), calibration);
  tap::recorders::ForwardOutput recorder;
  recorder.children(*block);
  block(x);
  for (const auto& sample : recorder.at("own").tensors()) BOOST_TEST(same_bits(sample, rounded(sample, 2)));
}

BOOST_AUTO_TEST_CASE(all_matrices_of_a_module_are_weights) {
  torch::manual_seed(5);
  tap::nn::LSTM lstm(nn::LSTMOptions(4, 3).num_layers(2));
  const auto before = lstm->named_parameters();
  std::map<std::string, at::Tensor> values;
  for (const auto& one : before) values[one.key()] = one.value().detach().clone();
  {
    const FakeQuantized guard = fake_quantize(*lstm, Calibration({output("", 1, Dtype::int4)}));
    BOOST_TEST(guard.weights() == 4);
    for (const auto& one : before) {
      const at::Tensor& was = values[one.key()];
      const at::Tensor now =
          was.dim() < 2 ? was : tap::quantization::weight_parameters(was, Dtype::int4).apply(was);
      BOOST_TEST(one.value().equal(now), one.key());
    }
  }
  for (const auto& one : before) BOOST_TEST(one.value().equal(values[one.key()]), one.key());
}

BOOST_AUTO_TEST_CASE(torchscript_gives_the_bits_of_the_computation_by_hand) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    if (!torchtap_test::convolves(dtype)) continue;
    torch::jit::Module model = scripted(dtype);
    const at::Tensor x = torch::randn({3, 1, 6, 6}).to(dtype);
    const auto plain = run(model, x), want = scripted_by_hand(model, x);
    std::vector<at::Tensor> parameters;
    for (const at::Tensor& one : model.parameters()) parameters.push_back(one);
    const Before before(parameters);
    {
      const FakeQuantized quantized = fake_quantize(model, of_scripted());
      BOOST_TEST(quantized.activations() == 4);
      BOOST_TEST(quantized.weights() == 2);
      for (int i = 0; i < 4; ++i) {  // as interpreted, as profiled, as optimised
        const auto got = run(model, x);
        BOOST_TEST(same_bits(got[0], want[0]));
        BOOST_TEST(same_bits(got[1], want[1]));
      }
    }
    before.check();
    for (int i = 0; i < 3; ++i) {
      const auto after = run(model, x);
      BOOST_TEST(same_bits(after[0], plain[0]));
      BOOST_TEST(same_bits(after[1], plain[1]));
    }
  }
}

BOOST_AUTO_TEST_CASE(eight_threads_compute_the_same) {
  at::set_num_threads(1);
  nn::Sequential model = network();
  torch::jit::Module script = scripted();
  std::vector<at::Tensor> inputs, wants, script_inputs, script_wants;
  const auto weights = hand_weights(model);
  for (int i = 0; i < 8; ++i) {
    inputs.push_back(images(i));
    wants.push_back(by_hand(model, inputs.back(), weights));
    script_inputs.push_back(images(i + 100));
    script_wants.push_back(scripted_by_hand(script, script_inputs.back())[0]);
  }
  const FakeQuantized quantized = fake_quantize(*model, of_network()),
                      two = fake_quantize(script, of_scripted());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const torch::NoGradGuard guard;
      for (int k = 0; k < 50; ++k) {
        if (!same_bits(model->forward(inputs[i]), wants[i])) ++wrong;
        if (!same_bits(run(script, script_inputs[i])[0], script_wants[i])) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE(an_exception_in_a_forward_changes_nothing) {
  nn::Sequential model = network();
  const at::Tensor x = images();
  const at::Tensor plain = model->forward(x), want = by_hand(model, x, hand_weights(model));
  const Before before(model->parameters());
  {
    const FakeQuantized quantized = fake_quantize(*model, of_network());
    BOOST_CHECK_THROW(model->forward(torch::zeros({2, 1, 5, 5})), c10::Error);  // in the linear layer
    BOOST_TEST(same_bits(model->forward(x), want));
    {
      const auto thrower =
          tap::hooks::attach(tap::model::find(*model, "1"), tap::hooks::Kind::forward_output,
                             [](tap::hooks::Event&) { throw std::runtime_error("halfway"); });
      BOOST_CHECK_THROW(model->forward(x), std::runtime_error);
    }
    BOOST_TEST(same_bits(model->forward(x), want));
  }
  before.check();
  BOOST_TEST(same_bits(model->forward(x), plain));
  // Of a slot that the module does not return.
  QuantizedTensor second = output("1", 1);
  second.slot = 1;
  const FakeQuantized quantized = fake_quantize(*model, Calibration({second}));
  BOOST_CHECK_THROW(model->forward(x), c10::IndexError);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_quantized_leaves_the_model_as_it_is) {
  nn::Sequential model = network();
  const at::Tensor x = images();
  const at::Tensor plain = model->forward(x);
  const Before before(model->parameters());
  const auto error = [&](std::vector<QuantizedTensor> tensors) {
    const std::string text = error_of([&] { (void)fake_quantize(*model, Calibration(std::move(tensors))); });
    BOOST_TEST(same_bits(model->forward(x), plain));
    before.check();
    return text;
  };
  const std::string missing = error({output("0", 1), output("0.conv", 1), input("7", 1), output("7", 1)});
  BOOST_TEST(contains(missing, "quantization::fake_quantize: "));
  BOOST_TEST(contains(missing, "\"0.conv\" and \"7\""));
  struct DirectImpl : nn::Module {
    DirectImpl() { inner = register_module("inner", nn::Linear(2, 2)); }
    at::Tensor forward(const at::Tensor& in) { return inner(in); }
    nn::Linear inner{nullptr};
  } direct;
  BOOST_TEST(contains(error_of([&] { (void)fake_quantize(direct, Calibration({output("inner", 1)})); }),
                      "cannot be reached"));
  {
    const FakeQuantized one = fake_quantize(*model, Calibration({output("5", 1)}));
    const std::string twice = error_of([&] { (void)fake_quantize(*model, of_network()); });
    BOOST_TEST(contains(twice, "rounded by another FakeQuantized"));
    BOOST_TEST(contains(twice, "\"5\""));
    const FakeQuantized others = fake_quantize(*model, Calibration({output("0", 1), output("5", 1, {})}));
    BOOST_TEST(others.weights() == 1);
  }
  before.check();
  {
    const torch::NoGradGuard guard;
    model->named_parameters()["5.weight"][0][0] = NAN;
  }
  const at::Tensor first = model->named_parameters()["0.weight"], bits = first.detach().clone();
  const std::string nan = error_of([&] { (void)fake_quantize(*model, of_network()); });
  BOOST_TEST(contains(nan, "while rounding the weight of \"5\""));
  BOOST_TEST(same_bits(first, bits));  // which was rounded before
  torch::jit::Module script = scripted();
  BOOST_TEST(contains(error_of([&] { (void)fake_quantize(script, Calibration({output("conv2", 1)})); }),
                      "\"conv2\""));
}

BOOST_AUTO_TEST_CASE(whatever_mode_it_is_made_in) {
  const at::Tensor x = images();
  {
    const c10::InferenceMode mode;
    nn::Sequential model = network();
    const at::Tensor want = by_hand(model, x, hand_weights(model)), plain = model->forward(x);
    {
      const FakeQuantized quantized = fake_quantize(*model, of_network());
      BOOST_TEST(same_bits(model->forward(x), want));
    }
    BOOST_TEST(same_bits(model->forward(x), plain));
  }
  nn::Sequential model = network();
  FakeQuantized quantized;
  {
    const c10::InferenceMode mode;
    quantized = fake_quantize(*model, of_network());
  }
  model->forward(x).sum().backward();
  BOOST_TEST(model->named_parameters()["0.weight"].grad().defined());
  {
    const c10::InferenceMode mode;
    quantized.remove();
  }
  model->forward(x).sum().backward();
}

BOOST_AUTO_TEST_CASE(an_optimizer_and_a_move_while_it_lives) {
  nn::Sequential model = network();
  const Before before(model->parameters());
  FakeQuantized quantized = fake_quantize(*model, Calibration({output("5", 1)}));
  torch::optim::SGD optimizer({model->named_parameters()["5.weight"]}, 0.1);
  model->forward(images()).sum().backward();
  optimizer.step();
  model->zero_grad();
  for (auto& parameter : model->parameters()) parameter.mutable_grad() = at::Tensor();
  quantized.remove();
  before.check();
  // A model that is converted meanwhile has what was rounded as it was.
  quantized = fake_quantize(*model, Calibration({output("5", 1)}));
  model->to(at::kDouble);
  quantized.remove();
  BOOST_TEST(model->named_parameters()["5.weight"].scalar_type() == at::kFloat);
  BOOST_TEST(model->named_parameters()["0.weight"].scalar_type() == at::kDouble);
}

BOOST_AUTO_TEST_SUITE_END()
