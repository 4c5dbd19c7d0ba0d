// Gradient hooks, compared with graphs written out by hand.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <map>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/model/walk.hpp>

#include "support.hpp"

namespace gradient_types {

/// A value that hooks can only read behind a constant pointer.
struct Unknowing {
  explicit Unknowing(at::Tensor tensor) : tensor(std::move(tensor)) {}
  Unknowing(const Unknowing&) = delete;
  at::Tensor tensor;
};

}  // namespace gradient_types

template <>
struct torchtap::hooks::Visit<gradient_types::Unknowing> {
  template <class Visitor>
  static void apply(gradient_types::Unknowing& value, Visitor&& visit) {
    visit(value.tensor);
  }
};

BOOST_AUTO_TEST_SUITE(gradients)

namespace hooks = torchtap::hooks;
using gradient_types::Unknowing;
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

/// The gradients that were left out, by slot, and why the last one.
struct LeftOut {
  std::vector<std::int64_t> slots;
  std::string why;

  hooks::LeftOut callback() {
    return [this](const Event& event, const std::string& reason) {
      slots.push_back(event.slot());
      why = reason;
      BOOST_CHECK_THROW(event.gradient(), c10::ValueError);
    };
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

/// Returns its parameter.
struct ConstantImpl : torch::nn::Module {
  ConstantImpl() { w = register_parameter("w", at::ones({3})); }
  at::Tensor forward() { return w; }
  at::Tensor w;
};
TORCHTAP_MODULE(Constant);

/// Returns one tensor twice.
struct PairImpl : torch::nn::Module {
  Tensors forward(const at::Tensor& x) {
    const at::Tensor y = x * 2;
    return {y, y};
  }
};
TORCHTAP_MODULE(Pair);

/// Takes a value that cannot be copied.
struct BoxedImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, const std::shared_ptr<const Unknowing>& y) { return x * y->tensor; }
};
TORCHTAP_MODULE(Boxed);

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

// The gradient of an input that a module returns is the one of that tensor, with all its uses, for the
// output; for the input it is the module's own.
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
    BOOST_TEST_CONTEXT(name << ", BackwardOutput only") {
      torch::nn::Sequential model(module);
      model->eval();
      const auto x = leaf({3, 4}), w = randn({3, 4});
      Gradients output;
      const auto handle = hooks::attach(model, "0", Kind::backward_output, output.callback());
      const auto h = x * 2;
      const auto y = model->forward(h);
      BOOST_TEST(y.is_same(h));
      ((y * w).sum() + (h * 5).sum()).backward();
      BOOST_TEST(same(output.only(), w + 5));
      BOOST_TEST(same(x.grad(), 2 * (w + 5)));
      const auto detached = model->forward(x * 2);
      BOOST_CHECK_NO_THROW(detached.detach_());
      BOOST_TEST(!detached.requires_grad());
    }
    BOOST_TEST_CONTEXT(name << ", a leaf, BackwardOutput only") {
      torch::nn::Sequential model(module);
      model->eval();
      const auto x = leaf({3, 4}), w = randn({3, 4});
      LeftOut left_out;
      Gradients output;
      const auto handle = hooks::attach(torchtap::model::find(model, "0"), Kind::backward_output,
                                        output.callback(), left_out.callback());
      const auto y = model->forward(x);
      BOOST_TEST(y.is_same(x));
      ((y * w).sum() + (x * 5).sum()).backward();
      BOOST_TEST(output.count() == 0);
      BOOST_TEST(left_out.slots == std::vector<std::int64_t>{0});
      BOOST_TEST(support::contains(left_out.why, "leaf"), left_out.why);
      BOOST_TEST(same(y.grad(), w + 5));
      y.set_requires_grad(false);
      BOOST_TEST(!x.requires_grad());
    }
  };
  check("Identity", torch::nn::Identity());
  check("Dropout", torch::nn::Dropout());
  check("Flatten", torch::nn::Flatten());
}

BOOST_AUTO_TEST_CASE(outputs_are_what_the_module_returned) {
  at::manual_seed(0);
  {
    Constant constant;
    LeftOut left_out;
    Gradients output;
    const auto handle = hooks::attach(torchtap::model::walk_modules(*constant).front(), Kind::backward_output,
                                      output.callback(), left_out.callback());
    const auto w = constant();
    BOOST_TEST(w.is_same(constant->w));
    torch::optim::SGD optimizer({w}, 0.1);
    (w * 3).sum().backward();
    optimizer.step();
    BOOST_TEST(at::allclose(constant->w.detach(), at::full({3}, 0.7)));
    BOOST_TEST(output.count() == 0);
    BOOST_TEST(left_out.slots.size() == 1);
  }
  Pair pair;
  Gradients output;
  const auto handle = hooks::attach(pair, Kind::backward_output, output.callback());
  const auto x = leaf({3}), w = randn({3});
  const auto both = pair(x);
  BOOST_TEST(both[0].is_same(both[1]));
  ((both[0] * w).sum() + (both[1] * 5).sum()).backward();
  BOOST_TEST(same(output.at(0, 0), w + 5));
  BOOST_TEST(same(output.at(0, 1), w + 5));
  BOOST_TEST(same(x.grad(), 2 * (w + 5)));
}

// What a hook makes of the gradient of a tensor is what the modules get that the tensor came through before.
BOOST_AUTO_TEST_CASE(a_tensor_that_modules_pass_on_gives_its_gradient_to_the_last_one_first) {
  torch::nn::Sequential model(torch::nn::Linear(3, 3), torch::nn::Identity());
  Gradients layer;
  const auto a = hooks::attach(model, "0", Kind::backward_output, layer.callback());
  const auto times = [&](const std::string& path, double factor) {
    return hooks::attach(model, path, Kind::backward_output,
                         [=](Event& event) { event.gradient() = event.gradient() * factor; });
  };
  const auto b = times("1", 10), c = times("", 3);
  Gradients whole;
  const auto d = hooks::attach(model, "", Kind::backward_output, whole.callback());
  model->forward(leaf({2, 3})).sum().backward();
  BOOST_TEST(same(whole.only(), at::full({2, 3}, 3.)));
  BOOST_TEST(same(layer.only(), at::full({2, 3}, 30.)));
}

// The gradient with respect to the input as it came: through what was computed before the change, and through
// the change. Compared with the same forward on a tensor that has no other uses.
BOOST_AUTO_TEST_CASE(input_that_is_used_and_then_changed_in_place) {
  using Forward = std::function<at::Tensor(at::Tensor)>;
  const std::vector<std::pair<const char*, Forward>> forwards{
      {"centred",
       [](at::Tensor x) {
         const at::Tensor mean = x.mean();
         return x.sub_(mean);
       }},
      {"residual",
       [](at::Tensor x) {
         const at::Tensor y = x + 1;
         x.relu_();
         return x * y;
       }},
      {"twice",
       [](at::Tensor x) {
         const at::Tensor y = x.sigmoid();
         x.mul_(2);
         const at::Tensor z = x + 3;
         x.add_(y);
         return x * 2 + z;
       }},
      {"only before",
       [](at::Tensor x) {
         const at::Tensor y = x + 1;
         x.relu_();
         return y;
       }},
      {"hardswish", [](at::Tensor x) { return at::hardswish_(x); }},
      {"silu", [](at::Tensor x) { return at::silu_(x); }},
      {"relu6", [](at::Tensor x) { return at::relu6_(x); }},
      {"leaky_relu", [](at::Tensor x) { return at::leaky_relu_(x, 0.1); }},
      {"elu", [](at::Tensor x) { return at::elu_(x); }}};
  const std::vector<std::pair<const char*, Forward>> inputs{
      {"whole", [](const at::Tensor& x) { return x * 1; }},
      {"transposed", [](const at::Tensor& x) { return (x * 1).t(); }},
      {"slice", [](const at::Tensor& x) { return (x * 1).slice(1, 1, 4); }}};
  at::manual_seed(0);
  for (const auto& [name, forward] : forwards) {
    for (const auto& [shape, input] : inputs) {
      BOOST_TEST_CONTEXT(name << " of " << shape) {
        const auto given = randn({4, 5});
        const auto w = randn(forward(input(given).clone()).sizes());
        const auto want = [&] {
          const auto begin = input(given).clone().requires_grad_();
          return gradient_of((forward(begin * 1) * w).sum(), begin);
        }();
        const auto run = [&](const at::Tensor& x, bool elsewhere) {
          const at::Tensor h = input(x);
          const at::Tensor other = h * 5;
          nn::Functional module(forward);
          Watch watch(torchtap::model::walk_modules(*module).front());
          at::Tensor loss = (module(h) * w).sum();
          if (elsewhere) loss = loss + other.sum();
          loss.backward({}, /*retain_graph=*/true);
          loss.backward();
          BOOST_TEST(watch.output.count() == 2);
          BOOST_REQUIRE(watch.input.count() == 2);
          for (const auto& gradient : watch.input.seen.begin()->second) {
            BOOST_TEST(at::allclose(gradient, want));
          }
          return x.grad();
        };
        const auto bare = [&](const at::Tensor& x, bool elsewhere) {
          const at::Tensor h = input(x);
          const at::Tensor other = h * 5;
          at::Tensor loss = (forward(h) * w).sum();
          if (elsewhere) loss = loss + other.sum();
          loss.backward({}, /*retain_graph=*/true);
          loss.backward();
          return x.grad();
        };
        for (const bool elsewhere : {false, true}) {
          const auto x = given.clone().requires_grad_(), plain = given.clone().requires_grad_();
          BOOST_TEST(at::allclose(run(x, elsewhere), bare(plain, elsewhere)));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(gradient_of_an_input_changed_in_place_can_be_replaced) {
  nn::Functional module([](at::Tensor x) {
    const at::Tensor y = x + 1;
    x.mul_(3);
    return x + y;
  });
  const auto stop = hooks::attach(module, Kind::backward_input,
                                  [](Event& event) { event.gradient() = event.gradient() * 10; });
  const auto x = leaf({2, 3});
  const auto h = x * 1;
  const auto other = h * 5;
  const auto y = module(h.slice(1, 1, 3));
  (y.sum() + other.sum()).backward();
  const auto want = at::full({2, 3}, 5.);
  want.slice(1, 1, 3).fill_(45);
  BOOST_TEST(at::allclose(x.grad(), want));
}

// What LibTorch has no view of, and what cannot be given to a module anew.
BOOST_AUTO_TEST_CASE(inputs_that_have_no_view_are_left_out) {
  Boxed boxed;
  LeftOut left_out;
  Gradients input;
  const auto handle = hooks::attach(torchtap::model::walk_modules(*boxed).front(), Kind::backward_input,
                                    input.callback(), left_out.callback());
  const auto x = leaf({3}), y = leaf({3});
  const auto shared = std::make_shared<const Unknowing>(y);
  const auto result = boxed(x, shared);
  result.sum().backward();
  BOOST_TEST(same(input.only(), y.detach()));
  BOOST_TEST(same(y.grad(), x.detach()));
  BOOST_TEST(left_out.slots == std::vector<std::int64_t>{1});
  BOOST_TEST(support::contains(left_out.why, "Unknowing"), left_out.why);
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

BOOST_AUTO_TEST_CASE(sparse_input_is_left_out) {
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
  LeftOut left_out;
  const auto input = hooks::attach(
      torchtap::model::find(model, "0"), Kind::backward_input, [&](Event&) { fired = 10; },
      left_out.callback());
  at::_sparse_sum(model->forward(x)).backward();
  BOOST_TEST(at::equal(x.grad().to_dense(), at::full({3, 3}, 2.)));
  BOOST_TEST(fired == 1);
  BOOST_TEST(left_out.slots == std::vector<std::int64_t>{0});
  BOOST_TEST(support::contains(left_out.why, "Sparse"), left_out.why);
  // Without a gradient, no view is needed.
  model->forward(x.detach());
  BOOST_TEST(left_out.slots.size() == 1);
}

BOOST_AUTO_TEST_CASE(quantized_input_passes_through) {
  torch::nn::Sequential model{torch::nn::Identity()};
  Watch watch(*model, "0");
  const auto x = at::quantize_per_tensor(at::ones({3}), 0.1, 0, at::kQInt8);
  BOOST_TEST(model->forward(x).is_quantized());
}

BOOST_AUTO_TEST_SUITE_END()
