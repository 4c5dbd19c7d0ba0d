// Gradient hooks, compared with graphs written out by hand.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <map>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/model/walk.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(gradients)

namespace hooks = torchtap::hooks;
namespace nn = torchtap::nn;
using hooks::Event;
using hooks::Handle;
using hooks::Kind;
using support::identical;
using Tensors = std::vector<at::Tensor>;

namespace {

/// The gradients that a hook saw, by call and slot.
struct Gradients {
  std::map<std::pair<std::int64_t, std::int64_t>, Tensors> seen;

  hooks::Callback callback() {
    return [this](Event& event) {
      seen[{event.call_index(), event.slot()}].push_back(event.gradient().clone());
    };
  }
  std::size_t count() const {
    std::size_t count = 0;
    for (const auto& entry : seen) count += entry.second.size();
    return count;
  }
  /// The only gradient, if there is exactly one.
  at::Tensor only() const { return count() == 1 ? seen.begin()->second[0] : at::Tensor(); }
  at::Tensor at(std::int64_t call, std::int64_t slot = 0) const {
    const auto found = seen.find({call, slot});
    return found != seen.end() && found->second.size() == 1 ? found->second[0] : at::Tensor();
  }
};

struct Watch {
  Watch(torch::nn::Module& root, const std::string& path) : Watch(torchtap::model::find(root, path)) {}
  explicit Watch(const torchtap::model::ModuleRef& module)
      : input_handle(hooks::attach(module, Kind::backward_input, input.callback())),
        output_handle(hooks::attach(module, Kind::backward_output, output.callback())) {}
  Watch(const Watch&) = delete;
  Gradients input, output;
  Handle input_handle, output_handle;
};

at::Tensor randn(at::IntArrayRef sizes) {
  return at::randn(sizes);
}
at::Tensor leaf(at::IntArrayRef sizes) {
  return at::randn(sizes).set_requires_grad(true);
}
bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && at::equal(a, b);
}

at::Tensor gradient_of(const at::Tensor& loss, const at::Tensor& input) {
  return torch::autograd::grad({loss}, {input}, {}, /*retain_graph=*/true)[0];
}

/// Adds to its input, as a residual block does.
struct ResidualImpl : torch::nn::Module {
  explicit ResidualImpl(std::int64_t n) { block = register_module("block", nn::Linear(n, n)); }
  at::Tensor forward(const at::Tensor& x) { return x + block(x); }
  nn::Linear block{nullptr};
};
TORCHTAP_MODULE(Residual);

/// Calls the same module twice.
struct TwiceImpl : torch::nn::Module {
  explicit TwiceImpl(std::int64_t n) { inner = register_module("inner", nn::Linear(n, n)); }
  at::Tensor forward(const at::Tensor& x) { return inner(at::tanh(inner(x))); }
  nn::Linear inner{nullptr};
};
TORCHTAP_MODULE(Twice);

}  // namespace

BOOST_AUTO_TEST_CASE(only_what_flowed_through_the_module) {
  at::manual_seed(0);
  Residual model(4);
  const auto x = leaf({3, 4}), w = randn({3, 4});
  Watch watch(*model, "block");
  (model(x) * w).sum().backward();

  BOOST_TEST(same(watch.output.only(), w));
  BOOST_TEST(same(watch.input.only(), w.matmul(model->block->weight.detach())));
  BOOST_TEST(at::allclose(x.grad(), w + w.matmul(model->block->weight.detach())));
}

BOOST_AUTO_TEST_CASE(same_tensor_in_two_slots) {
  at::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Bilinear(3, 3, 2));
  Watch watch(*model, "0");
  const auto x = leaf({4, 3});
  model->forward(x, x).sum().backward();
  BOOST_TEST(watch.input.count() == 2);
  BOOST_TEST(!at::equal(watch.input.at(0, 0), watch.input.at(0, 1)));
  BOOST_TEST(at::allclose(watch.input.at(0, 0) + watch.input.at(0, 1), x.grad()));
}

BOOST_AUTO_TEST_CASE(module_used_twice_has_two_calls) {
  at::manual_seed(0);
  Twice model(4);
  const auto x = leaf({3, 4});
  Watch watch(*model, "inner");
  model(x).sum().backward();

  const auto weight = model->inner->weight.detach(), bias = model->inner->bias.detach();
  const auto first = at::linear(x.detach(), weight, bias).requires_grad_();
  const auto between = at::tanh(first);
  const auto loss = at::linear(between, weight, bias).sum();
  BOOST_TEST(same(watch.output.at(1), at::ones({3, 4})));
  BOOST_TEST(same(watch.input.at(1), gradient_of(loss, between)));
  BOOST_TEST(same(watch.output.at(0), gradient_of(loss, first)));
  BOOST_TEST(same(watch.input.at(0), x.grad()));
  BOOST_TEST(watch.input.count() == 2);
  BOOST_TEST(watch.output.count() == 2);
}

// A module before an in-place activation still reports the gradient of its own output.
BOOST_AUTO_TEST_CASE(in_place_activation_after_a_hooked_module) {
  const auto check = [](const std::string& name, auto plain, const at::Tensor& given) {
    BOOST_TEST_CONTEXT(name) {
      const auto x = given.clone().requires_grad_();
      torch::nn::Sequential model;
      model->push_back(plain);
      model->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true)));
      at::manual_seed(3);
      const auto bare = model->forward(x);
      const auto w = at::randn_like(bare);
      (bare * w).sum().backward();
      const auto x_grad = x.grad().clone();
      Tensors parameter_grads;
      for (auto& parameter : model->parameters()) parameter_grads.push_back(parameter.grad().clone());
      x.mutable_grad() = at::Tensor();
      model->zero_grad();

      Watch watch(*model, "0"), relu(*model, "1"), whole(*model, "");
      const auto hooked = model->forward(x);
      BOOST_TEST(identical(hooked, bare));
      (hooked * w).sum().backward();
      const auto want = w * (bare > 0);
      BOOST_TEST(same(watch.output.only(), want), "BackwardOutput of the layer");
      BOOST_TEST(same(relu.input.only(), want), "BackwardInput of the activation");
      BOOST_TEST(same(relu.output.only(), w), "BackwardOutput of the activation");
      BOOST_TEST(same(whole.output.only(), w), "BackwardOutput of the Sequential");
      BOOST_TEST(same(watch.input.only(), x_grad), "BackwardInput of the layer");
      BOOST_TEST(same(whole.input.only(), x_grad), "BackwardInput of the Sequential");
      BOOST_TEST(same(x.grad(), x_grad));
      std::size_t i = 0;
      for (auto& parameter : model->parameters()) {
        // Zero gradients may also be undefined.
        BOOST_TEST(at::allclose(parameter.grad(), parameter_grads[i++], 0, 0));
      }
    }
  };
  at::manual_seed(0);
  check("Linear", torch::nn::Linear(4, 4), randn({3, 4}));
  check("Linear on three dimensions", torch::nn::Linear(4, 4), randn({2, 3, 4}));
  check("Conv1d", torch::nn::Conv1d(2, 3, 2), randn({2, 2, 5}));
  check("Conv2d", torch::nn::Conv2d(2, 3, 2), randn({2, 2, 4, 4}));
  check("BatchNorm2d", torch::nn::BatchNorm2d(2), randn({2, 2, 4, 4}));
  check("LayerNorm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})), randn({3, 4}));
}

// Only one kind is attached: the test must not pass thanks to the other kind's alias.
BOOST_AUTO_TEST_CASE(backward_output_alone_before_an_in_place_activation) {
  at::manual_seed(0);
  for (const auto& x : {leaf({3, 4}), leaf({2, 3, 4})}) {
    torch::nn::Sequential model(torch::nn::Linear(4, 4), torch::nn::ReLU(torch::nn::ReLUOptions(true)));
    Gradients output, relu_input;
    const auto handle =
        hooks::attach(torchtap::model::find(*model, "0"), Kind::backward_output, output.callback());
    const auto y = model->forward(x);
    y.sum().backward();
    BOOST_TEST(same(output.only(), (y > 0).to(at::kFloat)));
  }
}

// A layer may return a view of its result (Linear does, on three dimensions, in newer versions of LibTorch).
// An in-place operation on a view is recorded on the base and cuts the view itself out of the graph.
BOOST_AUTO_TEST_CASE(in_place_activation_after_a_layer_that_returns_a_view) {
  at::manual_seed(0);
  const auto w = leaf({4, 6});
  const std::vector<std::pair<const char*, std::function<at::Tensor(const at::Tensor&)>>> layers{
      {"view",
       [&](const at::Tensor& x) {
         return x.matmul(w).view({3, 2, 3});
       }},
      {"transposed", [&](const at::Tensor& x) { return x.matmul(w).t(); }},
      {"slice", [&](const at::Tensor& x) { return x.matmul(w).slice(1, 2, 5); }},
      {"view of a view", [&](const at::Tensor& x) {
         return x.matmul(w).t().view({6, 3, 1}).select(2, 0);
       }}};
  for (const auto& [name, layer] : layers) {
    BOOST_TEST_CONTEXT(name) {
      for (const bool both : {false, true}) {
        torch::nn::Sequential model(torch::nn::Functional(layer),
                                    torch::nn::ReLU(torch::nn::ReLUOptions(true)));
        const auto x = leaf({3, 4});
        const auto bare = model->forward(x);
        const auto weights = at::randn(bare.sizes());
        (bare * weights).sum().backward();
        const auto x_grad = x.grad().clone(), w_grad = w.grad().clone();
        x.mutable_grad() = w.mutable_grad() = at::Tensor();

        Gradients output;
        const auto handle =
            hooks::attach(torchtap::model::find(*model, "0"), Kind::backward_output, output.callback());
        std::unique_ptr<Watch> relu;
        if (both) relu = std::make_unique<Watch>(*model, "1");
        const auto y = model->forward(x);
        BOOST_TEST(identical(y, bare));
        (y * weights).sum().backward();
        BOOST_TEST(same(output.only(), weights * (y > 0)));
        if (both) {
          BOOST_TEST(same(relu->input.only(), weights * (y > 0)));
          BOOST_TEST(same(relu->output.only(), weights));
        }
        BOOST_TEST(identical(x.grad(), x_grad));
        BOOST_TEST(identical(w.grad(), w_grad));
        w.mutable_grad() = at::Tensor();
      }
    }
  }
}

// If the layer returns its input or a view of it, others may use that tensor, too, and autograd routes the
// gradient around the view: there is nothing to report. A wrong report or another gradient of the model would
// be a failure.
BOOST_AUTO_TEST_CASE(in_place_activation_after_a_layer_that_hands_on_its_input) {
  at::manual_seed(0);
  const std::vector<std::pair<const char*, std::function<at::Tensor(const at::Tensor&)>>> layers{
      {"identity", [](const at::Tensor& x) { return x; }},
      {"view", [](const at::Tensor& x) { return x.flatten(); }},
      {"slice", [](const at::Tensor& x) { return x.slice(1, 1, 3); }}};
  for (const auto& [name, layer] : layers) {
    for (const int kinds : {1, 2, 3}) {
      BOOST_TEST_CONTEXT(name << ", kinds " << kinds) {
        torch::nn::Sequential model(torch::nn::Functional([](const at::Tensor& x) { return x * 3; }),
                                    torch::nn::Functional(layer),
                                    torch::nn::ReLU(torch::nn::ReLUOptions(true)));
        const auto x = leaf({3, 4});
        const auto bare = model->forward(x);
        const auto weights = at::randn(bare.sizes());
        (bare * weights).sum().backward();
        const auto x_grad = x.grad().clone();
        x.mutable_grad() = at::Tensor();

        Gradients input, output;
        Handle on_input, on_output;
        const auto module = torchtap::model::find(*model, "1");
        if (kinds & 1) on_input = hooks::attach(module, Kind::backward_input, input.callback());
        if (kinds & 2) on_output = hooks::attach(module, Kind::backward_output, output.callback());
        const auto y = model->forward(x);
        (y * weights).sum().backward();
        const auto want = weights * (y > 0);
        if (input.count() != 0) {
          BOOST_TEST(same(layer(input.only()), want));
          BOOST_TEST(at::allclose(input.only().sum(), want.sum()));
        }
        if (output.count() != 0) BOOST_TEST(same(output.only(), want));
        BOOST_TEST(identical(x.grad(), x_grad));
      }
    }
  }
}

// The same without in-place operations: reported once, and by its own gradient although the base has another
// use.
BOOST_AUTO_TEST_CASE(a_layer_that_returns_a_view) {
  at::manual_seed(0);
  at::Tensor inner;
  torch::nn::Sequential model(torch::nn::Functional([&](const at::Tensor& x) {
    inner = x * 2;
    return inner.t();
  }));
  Watch watch(*model, "0");
  const auto x = leaf({3, 4}), w = randn({4, 3});
  const auto y = model->forward(x);
  ((y * w).sum() + inner.sum()).backward();
  BOOST_TEST(same(watch.output.only(), w));
  BOOST_TEST(same(x.grad(), 2 * (w.t() + 1)));
}

BOOST_AUTO_TEST_CASE(in_place_module_on_a_view) {
  at::manual_seed(0);
  const auto x = leaf({2, 3, 2, 2});
  const auto make = [] {
    at::manual_seed(1);
    return torch::nn::Sequential(torch::nn::Conv2d(3, 3, 1), torch::nn::Flatten(),
                                 torch::nn::ReLU(torch::nn::ReLUOptions(true)), torch::nn::Linear(12, 2));
  };
  auto bare = make();
  bare->forward(x).pow(2).sum().backward();
  const auto x_grad = x.grad().clone();
  x.mutable_grad() = at::Tensor();

  auto model = make();
  Watch relu(*model, "2");
  const auto y = model->forward(x);
  y.pow(2).sum().backward();
  BOOST_TEST(identical(x.grad(), x_grad));
  for (const auto& parameter : model->named_parameters()) {
    BOOST_TEST(identical(parameter.value().grad(), bare->named_parameters()[parameter.key()].grad()));
  }
  const auto conv = model->at<torch::nn::Conv2dImpl>(0).forward(x.detach()).detach().flatten(1);
  const auto through = 2 * y.detach().matmul(model->at<torch::nn::LinearImpl>(3).weight.detach());
  BOOST_TEST(at::allclose(relu.output.only(), through));
  BOOST_REQUIRE(relu.input.only().defined());
  BOOST_TEST(at::allclose(relu.input.only(), through * (conv > 0)));
}

BOOST_AUTO_TEST_CASE(in_place_on_a_leaf_fails_as_without_hooks) {
  torch::nn::Sequential model(torch::nn::ReLU(torch::nn::ReLUOptions(true)));
  const auto x = leaf({3});
  BOOST_CHECK_THROW(model->forward(x), c10::Error);
  Watch watch(*model, "0");
  BOOST_CHECK_THROW(model->forward(x), c10::Error);
  BOOST_CHECK_NO_THROW(model->forward(x.detach().clone()));
}

// An input that a module returns also has gradients from elsewhere; the hooks report the module's own.
BOOST_AUTO_TEST_CASE(output_that_is_the_input) {
  at::manual_seed(0);
  const auto check = [](const std::string& name, auto module) {
    BOOST_TEST_CONTEXT(name) {
      torch::nn::Sequential model(module);
      model->eval();
      const auto x = leaf({3, 4}), w = randn({3, 4});
      Watch watch(*model, "0");
      const auto h = x * 2;
      const auto y = model->forward(h);
      ((y * w).sum() + (h * 5).sum()).backward();
      BOOST_TEST(same(watch.input.only(), w));
      BOOST_TEST(same(watch.output.only(), w));
      BOOST_TEST(same(x.grad(), 2 * (w + 5)));
    }
    BOOST_TEST_CONTEXT(name << ", a leaf, BackwardOutput only") {
      torch::nn::Sequential model(module);
      model->eval();
      const auto x = leaf({3, 4}), w = randn({3, 4});
      Gradients output;
      const auto handle =
          hooks::attach(torchtap::model::find(*model, "0"), Kind::backward_output, output.callback());
      ((model->forward(x) * w).sum() + (x * 5).sum()).backward();
      BOOST_TEST(same(output.only(), w));
      BOOST_TEST(same(x.grad(), w + 5));
    }
  };
  check("Identity", torch::nn::Identity());
  check("Dropout", torch::nn::Dropout());
  check("Flatten", torch::nn::Flatten());
}

// The module gets a view, and the caller's tensor what the module did to the view.
BOOST_AUTO_TEST_CASE(what_a_forward_does_to_its_input_besides_computing) {
  using Forward = std::function<at::Tensor(at::Tensor)>;
  const auto outcome = [](const Forward& forward, bool is_leaf, bool hooked) {
    nn::Functional module(forward);
    Gradients gradients;
    Handle handle;
    if (hooked) handle = hooks::attach(*module, Kind::backward_input, gradients.callback());
    const at::Tensor first = at::ones({2}).set_requires_grad(true);
    (first * 3).sum().backward();
    const at::Tensor x = is_leaf ? first : first * 2;
    const at::Tensor y = module(x);
    (y * y + x * 10).sum().backward();
    if (hooked) BOOST_TEST(gradients.count() == 1);
    return Tensors{x.detach(), y.detach(), first.grad(), x.retains_grad() ? x.grad() : at::Tensor()};
  };
  const std::map<std::string, Forward> forwards{
      {"register_hook",
       [](at::Tensor x) {
         x.register_hook([](at::Tensor gradient) { return gradient * 3; });
         return x * x;
       }},
      {"retain_grad",
       [](at::Tensor x) {
         x.retain_grad();
         return x * x;
       }},
      {"set_data",
       [](at::Tensor x) {
         x.set_data(x.detach() * 2);
         return x * 1;
       }},
      {"in place without grad",
       [](at::Tensor x) {
         {
           const torch::NoGradGuard no_grad;
           x.add_(1);
         }
         return x * 2;
       }},
      {"reads and assigns grad",
       [](at::Tensor x) {
         if (!x.mutable_grad().defined()) return x * 1;
         const at::Tensor y = x - x.mutable_grad();
         x.mutable_grad() = at::full({2}, 7.);
         return y;
       }},
  };
  for (const auto& [name, forward] : forwards) {
    for (const bool is_leaf : {false, true}) {
      BOOST_TEST(identical(outcome(forward, is_leaf, true), outcome(forward, is_leaf, false)),
                 name << (is_leaf ? " of a leaf" : ""));
    }
  }
}

BOOST_AUTO_TEST_CASE(several_outputs_have_their_slots) {
  at::manual_seed(0);
  nn::LSTM lstm(4, 3);
  Watch watch(torchtap::model::walk_modules(*lstm).front());
  const auto x = leaf({5, 2, 4});
  const auto [out, state] = lstm(x);
  const auto& [h, c] = state;
  (c * 3).sum().backward();
  // Only c was used: the other slots have no gradient, and none is made up.
  BOOST_TEST(watch.output.count() == 1);
  BOOST_TEST(same(watch.output.at(0, 2), at::full({1, 2, 3}, 3.)));
  BOOST_TEST(same(watch.input.only(), x.grad()));
}

BOOST_AUTO_TEST_CASE(slots_fire_by_place_not_by_order) {
  at::manual_seed(0);
  nn::LSTM lstm(4, 3);
  Watch watch(torchtap::model::walk_modules(*lstm).front());
  const auto [out, state] = lstm(leaf({5, 2, 4}));
  const auto& [h, c] = state;
  (out.sum() * 1 + h.sum() * 2 + c.sum() * 3).backward();
  BOOST_TEST(watch.output.count() == 3);
  BOOST_TEST(same(watch.output.at(0, 0), at::full({5, 2, 3}, 1.)));
  BOOST_TEST(same(watch.output.at(0, 1), at::full({1, 2, 3}, 2.)));
  BOOST_TEST(same(watch.output.at(0, 2), at::full({1, 2, 3}, 3.)));
}

BOOST_AUTO_TEST_CASE(double_backward) {
  at::manual_seed(0);
  const auto make = [] {
    at::manual_seed(1);
    return torch::nn::Sequential(torch::nn::Linear(3, 3), torch::nn::Tanh(), torch::nn::Linear(3, 1));
  };
  const auto penalty = [](torch::nn::Sequential& model, const at::Tensor& x) {
    const auto y = model->forward(x).sum();
    const auto g = torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
    g.pow(2).sum().backward();
  };
  const auto x = leaf({4, 3});
  auto bare = make();
  penalty(bare, x);
  const auto want = x.grad().clone();
  x.mutable_grad() = at::Tensor();

  auto model = make();
  Watch first(*model, "0"), second(*model, "1");
  penalty(model, x);
  BOOST_TEST(identical(x.grad(), want));
  for (const auto& parameter : model->named_parameters()) {
    BOOST_TEST(identical(parameter.value().grad(), bare->named_parameters()[parameter.key()].grad()),
               parameter.key());
  }
  BOOST_TEST(second.output.count() >= 1);
}

BOOST_AUTO_TEST_CASE(two_backwards_through_one_graph) {
  at::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(3, 3));
  Watch watch(*model, "0");
  const auto x = leaf({4, 3});
  const auto y = model->forward(x);
  y.sum().backward({}, /*retain_graph=*/true);
  (y * 2).sum().backward();
  const auto& output = watch.output.seen.at({0, 0});
  BOOST_REQUIRE(output.size() == 2);
  BOOST_TEST(same(output[0], at::ones({4, 3})));
  BOOST_TEST(same(output[1], at::full({4, 3}, 2.)));
  BOOST_TEST(watch.input.count() == 2);
}

BOOST_AUTO_TEST_CASE(partial_gradients) {
  at::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(3, 3), torch::nn::Linear(3, 3));
  Watch first(*model, "0"), second(*model, "1");
  const auto x = leaf({4, 3});
  const auto loss = model->forward(x).sum();
  const auto want = torch::autograd::grad({loss}, {x}, {}, true)[0];
  BOOST_TEST(same(first.input.only(), want));
  BOOST_TEST(second.output.count() == 1);
  BOOST_TEST(!x.grad().defined());
  // A gradient that stops at the second module's weight does not reach the first.
  first.input.seen.clear();
  first.output.seen.clear();
  torch::autograd::grad({loss}, {model->at<torch::nn::LinearImpl>(1).weight}, {}, true);
  BOOST_TEST(first.input.count() == 0);
  BOOST_TEST(second.output.count() == 2);
}

BOOST_AUTO_TEST_CASE(no_gradients_without_a_graph) {
  torch::nn::Sequential model(torch::nn::Linear(3, 3), torch::nn::ReLU());
  Watch first(*model, "0"), second(*model, "1");
  const auto x = leaf({4, 3});
  at::Tensor bare;
  {
    torch::NoGradGuard guard;
    const auto y = model->forward(x);
    BOOST_TEST(!y.requires_grad());
  }
  {
    c10::InferenceMode guard;
    const auto y = model->forward(at::ones({4, 3}));
    BOOST_TEST(y.is_inference());
  }
  // The loss does not use the model's result.
  const auto ignored = model->forward(x);
  x.sum().backward();
  BOOST_TEST(first.input.count() + first.output.count() + second.input.count() + second.output.count() == 0);
}

BOOST_AUTO_TEST_CASE(gradients_can_be_replaced) {
  at::manual_seed(0);
  Residual model(4);
  const auto x = leaf({3, 4});
  const auto scale = hooks::attach(torchtap::model::find(*model, "block"), Kind::backward_output,
                                   [](Event& event) { event.gradient() = event.gradient() * 10; });
  const auto stop = hooks::attach(torchtap::model::find(*model, "block"), Kind::backward_input,
                                  [](Event& event) { event.gradient() = at::zeros_like(event.gradient()); });
  model(x).sum().backward();
  BOOST_TEST(same(x.grad(), at::ones({3, 4})));
  BOOST_TEST(same(model->block->bias.grad(), at::full({4}, 30.)));
}

BOOST_AUTO_TEST_CASE(a_removed_hook_hears_nothing_of_forwards_before) {
  torch::nn::Sequential model(torch::nn::Linear(3, 3));
  auto state = std::make_shared<int>(0);
  std::weak_ptr<int> alive = state;
  auto handle =
      hooks::attach(torchtap::model::find(*model, "0"), Kind::backward_output, [state](Event&) { ++*state; });
  const auto y = model->forward(leaf({4, 3}));
  state.reset();
  handle.remove();
  BOOST_TEST(alive.expired(), "the graph does not keep what the hook held");
  y.sum().backward();
}

BOOST_AUTO_TEST_CASE(gradients_arrive_after_the_module_died) {
  at::Tensor y;
  int fired = 0;
  Handle handle;
  {
    torch::nn::Sequential model(torch::nn::Linear(3, 3));
    handle =
        hooks::attach(torchtap::model::find(*model, "0"), Kind::backward_output, [&](Event&) { ++fired; });
    y = model->forward(leaf({4, 3}));
  }
  BOOST_TEST(!handle.attached());
  y.sum().backward();
  BOOST_TEST(fired == 1);
}

BOOST_AUTO_TEST_CASE(an_exception_in_a_gradient_hook_reaches_the_caller) {
  torch::nn::Sequential model(torch::nn::Linear(3, 3));
  for (const auto kind : {Kind::backward_input, Kind::backward_output}) {
    bool angry = true;
    int fired = 0;
    const auto handle = hooks::attach(torchtap::model::find(*model, "0"), kind, [&](Event&) {
      ++fired;
      TORCH_CHECK_VALUE(!angry, "enough");
    });
    BOOST_CHECK_THROW(model->forward(leaf({4, 3})).sum().backward(), c10::Error);
    angry = false;
    model->forward(leaf({4, 3})).sum().backward();
    BOOST_TEST(fired == 2);
  }
}

BOOST_AUTO_TEST_CASE(other_dtypes) {
  for (const auto dtype : {at::kDouble, at::kBFloat16, at::kComplexFloat}) {
    at::manual_seed(0);
    torch::nn::Sequential model(torch::nn::Functional([](const at::Tensor& x) { return x * x; }));
    Watch watch(*model, "0");
    const auto x = at::ones({3}, dtype).requires_grad_();
    const auto y = model->forward(x);
    y.abs().sum().backward();
    BOOST_TEST(watch.output.only().scalar_type() == dtype);
    BOOST_TEST(same(watch.input.only(), x.grad()));
  }
}

// Also for tensors that have no alias: a clear refusal instead of a crash or of silence.
BOOST_AUTO_TEST_CASE(sparse_input_is_refused_or_passed_through) {
  torch::nn::Sequential model(torch::nn::Functional([](const at::Tensor& x) { return x * 2; }));
  const auto x = at::ones({3, 3}).to_sparse().requires_grad_();
  int fired = 0;
  {
    const auto forward =
        hooks::attach(torchtap::model::find(*model, "0"), Kind::forward, [&](Event&) { ++fired; });
    const auto output =
        hooks::attach(torchtap::model::find(*model, "0"), Kind::backward_output, [&](Event&) {});
    model->forward(x);
    BOOST_TEST(fired == 1);
  }
  const auto input = hooks::attach(torchtap::model::find(*model, "0"), Kind::backward_input, [&](Event&) {});
  const auto message = support::message_of<c10::NotImplementedError>([&] { model->forward(x); });
  BOOST_TEST(support::contains(message, "\"0\""), message);
  BOOST_TEST(support::contains(message, "Sparse"), message);
  // Without a gradient, no alias is needed.
  BOOST_CHECK_NO_THROW(model->forward(x.detach()));
}

BOOST_AUTO_TEST_CASE(quantized_input_passes_through) {
  torch::nn::Sequential model{torch::nn::Identity()};
  Watch watch(*model, "0");
  const auto x = at::quantize_per_tensor(at::ones({3}), 0.1, 0, at::kQInt8);
  BOOST_TEST(model->forward(x).is_quantized());
}

BOOST_AUTO_TEST_SUITE_END()
