// Gradients of parameters, compared with what LibTorch adds to `grad()`.
#include <boost/test/unit_test.hpp>
#include <torch/script.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <sstream>
#include <thread>

#include <torchtap/torchtap.hpp>

#include "../hooks/support.hpp"
#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(parameters)

namespace hooks = torchtap::hooks;
namespace model = torchtap::model;
namespace recorders = torchtap::recorders;
namespace reductions = torchtap::reductions;
namespace selectors = torchtap::selectors;
namespace storage = torchtap::storage;
using recorders::BackwardParameter;
using support::contains;
using support::identical;
using torchtap_test::error_of;

namespace {

/// LeNet as people write it: nothing in it can be reached without help.
struct LeNet : torch::nn::Module {
  at::Tensor forward(at::Tensor x) {
    x = at::max_pool2d(at::relu(conv1->forward(x)), 2);
    x = at::max_pool2d(at::relu(conv2->forward(x)), 2).flatten(1);
    return fc2->forward(at::relu(fc1->forward(x)));
  }
  torch::nn::Conv2d conv1 = register_module("conv1", torch::nn::Conv2d(1, 6, 5));
  torch::nn::Conv2d conv2 = register_module("conv2", torch::nn::Conv2d(6, 16, 5));
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(256, 84));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(84, 10));
};

std::shared_ptr<LeNet> lenet() {
  torch::manual_seed(0);
  return std::make_shared<LeNet>();
}

/// Images and labels of the size of Fashion-MNIST, always the same.
std::pair<at::Tensor, at::Tensor> batch() {
  torch::manual_seed(1);
  return {torch::randn({8, 1, 28, 28}), torch::randint(10, {8}, at::kLong)};
}

/// Three steps of training. Calls `at_step` before each optimizer step.
template <class AtStep>
void train(LeNet& net, AtStep&& at_step) {
  const auto [images, labels] = batch();
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(net.forward(images), labels).backward();
    at_step(step);
    optimizer.step();
  }
}

/// Whether LibTorch's list of hooks is as if there had never been one.
bool is_untouched(const at::Tensor& parameter) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(parameter);
  return meta == nullptr || (meta->cpp_hooks_list_ == nullptr && meta->hooks_.empty());
}

}  // namespace

BOOST_AUTO_TEST_CASE(samples_are_what_grad_gets_and_change_nothing) {
  const auto plain = lenet(), recorded = lenet();
  BackwardParameter gradients, sums(reductions::Sum{});
  gradients.attach(*recorded);
  sums.attach(*recorded, "conv*");
  const auto names = recorded->named_parameters();
  BOOST_TEST_REQUIRE(gradients.size() == static_cast<std::int64_t>(names.size()));
  for (std::size_t i = 0; i < names.size(); ++i) {
    BOOST_TEST(gradients[static_cast<std::int64_t>(i)].path() == names[i].key());
  }
  BOOST_TEST(gradients.kind() == "BackwardParameter");
  BOOST_TEST(gradients.at("conv1.weight").type() == "Conv2d");
  BOOST_TEST(sums.size() == 4);

  std::vector<std::vector<at::Tensor>> want(3), got(3);
  const auto all = [](LeNet& net, std::vector<at::Tensor>& into) {
    for (const auto& parameter : net.parameters()) into.push_back(parameter.grad().clone());
  };
  train(*plain, [&](int step) { all(*plain, want[static_cast<std::size_t>(step)]); });
  train(*recorded, [&](int step) { all(*recorded, got[static_cast<std::size_t>(step)]); });
  for (std::size_t step = 0; step < 3; ++step) {
    BOOST_TEST(identical(want[step], got[step]));
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto& one = gradients[static_cast<std::int64_t>(i)];
      BOOST_TEST_REQUIRE(one.samples() == 3);
      BOOST_TEST(at::equal(one.tensors()[step], want[step][i]));
    }
  }
  BOOST_TEST(identical(plain->parameters(), recorded->parameters()));
  BOOST_TEST(at::allclose(sums.at("conv2.bias").tensor(), want[0][3] + want[1][3] + want[2][3]));

  gradients.detach();
  sums.detach();
  for (const auto& parameter : recorded->parameters()) BOOST_TEST(is_untouched(parameter));
}

// LibTorch takes the gradient's memory as `grad()` where nothing else holds it. A copy would be slower.
BOOST_AUTO_TEST_CASE(grad_keeps_the_memory_that_backward_made) {
  torch::nn::Module net;
  const at::Tensor own = net.register_parameter("own", torch::ones({4}));
  const void* seen = nullptr;
  const auto handle =
      hooks::attach(net, "own", [&](hooks::Event& event) { seen = event.gradient().data_ptr(); });
  BackwardParameter gradients;
  gradients.attach(net);
  (own * torch::full({4}, 3.0)).sum().backward();
  BOOST_TEST(own.grad().data_ptr() == seen);
  const at::Tensor kept = gradients.at("own").tensors().at(0);
  BOOST_TEST(kept.data_ptr() != seen);
  BOOST_TEST(at::equal(kept, own.grad()));
}

BOOST_AUTO_TEST_CASE(one_sample_for_each_backward) {
  torch::manual_seed(0);
  torch::nn::Linear linear(4, 4);
  BackwardParameter gradients;
  gradients.attach(linear);
  const at::Tensor x = torch::randn({2, 4});
  // Two uses of the weight in one forward: their sum, as one sample.
  linear->forward(at::tanh(linear->forward(x))).sum().backward();
  auto& weight = gradients.at("weight");
  BOOST_TEST_REQUIRE(weight.samples() == 1);
  BOOST_TEST(at::equal(weight.tensors()[0], linear->weight.grad()));
  // A second backward adds to grad(), and is a sample of its own.
  linear->forward(x).sum().backward();
  BOOST_TEST_REQUIRE(weight.samples() == 2);
  BOOST_TEST(at::equal(weight.tensors()[0] + weight.tensors()[1], linear->weight.grad()));
  linear->zero_grad();
  BOOST_TEST(weight.samples() == 2);
  // With a graph of gradients: each backward delivers one.
  const at::Tensor loss = linear->forward(x).pow(3).sum();
  loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
  BOOST_TEST(weight.samples() == 3);
  BOOST_TEST(!weight.tensors()[2].requires_grad());
  const at::Tensor first = linear->weight.grad();
  first.pow(2).sum().backward();
  BOOST_TEST(weight.samples() == 4);
  BOOST_TEST(at::allclose(weight.tensors()[3] + weight.tensors()[2], linear->weight.grad()));
  linear->bias.mutable_grad().reset();
  linear->weight.mutable_grad().reset();  // grad() has a graph that leads to the weight
}

BOOST_AUTO_TEST_CASE(autograd_grad_delivers_nothing_to_parameters) {
  torch::nn::Linear linear(4, 4);
  BackwardParameter gradients;
  gradients.attach(linear);
  torch::autograd::grad({linear->forward(torch::randn({2, 4})).sum()}, {linear->weight});
  const std::int64_t seen = TORCH_VERSION_MAJOR >= 2 ? 1 : 0;
  BOOST_TEST(gradients.at("weight").samples() == seen);
  BOOST_TEST(gradients.at("bias").samples() == 0);
  BOOST_TEST(!linear->weight.grad().defined());
}

BOOST_AUTO_TEST_CASE(modules_need_no_forward_and_no_call) {
  // Weights that a function uses, in a list that is never called.
  struct Functional : torch::nn::Module {
    Functional() {
      own = register_parameter("own", torch::ones({3}));
      list->append(torch::full({3}, 2.0, torch::requires_grad()));  // it keeps what it is given
      register_module("list", list);
      register_buffer("mean", torch::ones({3}));
      register_parameter("steps", torch::zeros({1}, at::kLong), /*requires_grad=*/false);
    }
    at::Tensor own;
    torch::nn::ParameterList list;
  };
  Functional net;
  BackwardParameter gradients, chosen;
  gradients.attach(net);
  chosen.attach(net, selectors::names("list"));
  BOOST_TEST(gradients.size() == 2);
  BOOST_TEST(chosen.size() == 1);
  (net.own * net.list->begin()->value()).sum().backward();
  BOOST_TEST(at::equal(gradients.at("own").tensors().at(0), torch::full({3}, 2.0)));
  BOOST_TEST(at::equal(gradients.at("list.0").tensors().at(0), torch::ones({3})));
  BOOST_TEST(chosen.samples() == 1);

  torch::nn::AnyModule any(torch::nn::Linear(2, 2));
  BackwardParameter inside;
  inside.module(any, "head");
  any.get<torch::nn::Linear>()->forward(torch::ones({1, 2})).sum().backward();
  BOOST_TEST(at::equal(inside.at("head.bias").tensors().at(0), torch::ones({2})));

  torch::nn::MultiheadAttention attention(4, 2);  // calls no out_proj, and uses its weight
  BackwardParameter projection;
  projection.attach(*attention, selectors::names("out_proj"));
  const at::Tensor x = torch::randn({3, 1, 4});
  std::get<0>(attention->forward(x, x, x)).sum().backward();
  BOOST_TEST(at::equal(projection.at("out_proj.weight").tensors().at(0), attention->out_proj->weight.grad()));
}

BOOST_AUTO_TEST_CASE(tied_parameters_count_once) {
  torch::manual_seed(0);
  struct Decoder : torch::nn::Module {
    explicit Decoder(const at::Tensor& tied) { weight = register_parameter("weight", tied); }
    at::Tensor weight;
  };
  struct Tied : torch::nn::Module {
    torch::nn::Linear encoder = register_module("encoder", torch::nn::Linear(4, 4));
    std::shared_ptr<Decoder> decoder = register_module("decoder", std::make_shared<Decoder>(encoder->weight));
  };
  Tied net;
  BackwardParameter gradients;
  gradients.attach(net);
  BOOST_TEST(gradients.size() == 2);
  const at::Tensor x = torch::randn({2, 4});
  at::linear(net.encoder->forward(x), net.decoder->weight).sum().backward();
  BOOST_TEST(gradients.at("encoder.weight").samples() == 1);
  BOOST_TEST(&gradients.at("decoder.weight") == &gradients.at("encoder.weight"));
  BOOST_TEST(at::equal(gradients.at("decoder.weight").tensors().at(0), net.encoder->weight.grad()));

  // A module with two names has parameters with two names.
  torch::nn::Module twice;
  torch::nn::Linear shared(2, 2);
  twice.register_module("a", shared);
  twice.register_module("b", shared);
  BackwardParameter both;
  both.attach(twice);
  BOOST_TEST(both.size() == 2);
  BOOST_TEST(both.at("b.bias").path() == "a.bias");
}

BOOST_AUTO_TEST_CASE(frozen_parameters_have_no_samples_until_they_thaw) {
  torch::nn::Linear linear(4, 4);
  linear->bias.set_requires_grad(false);
  BackwardParameter gradients;
  gradients.attach(linear);
  const at::Tensor x = torch::randn({2, 4});
  linear->forward(x).sum().backward();
  BOOST_TEST(gradients.at("weight").samples() == 1);
  BOOST_TEST(gradients.at("weight").note() == "");
  BOOST_TEST(gradients.at("bias").samples() == 0);
  BOOST_TEST(contains(gradients.at("bias").note(), "frozen (requires_grad is false)"));
  linear->bias.set_requires_grad(true);
  linear->forward(x).sum().backward();
  BOOST_TEST(gradients.at("bias").samples() == 1);
  BOOST_TEST(gradients.at("bias").note() == "");
}

BOOST_AUTO_TEST_CASE(hooks_stay_on_the_tensor) {
  torch::nn::Linear linear(4, 4);
  BackwardParameter gradients;
  gradients.attach(linear);
  const auto run = [&](torch::nn::Linear& one, at::ScalarType dtype) {
    one->forward(torch::ones({2, 4}, dtype)).sum().backward();
  };
  run(linear, at::kFloat);
  linear->zero_grad();
  linear->to(at::kDouble);  // set_data: another accumulator
  run(linear, at::kDouble);
  linear->weight.set_data(torch::ones({4, 4}, at::kDouble));
  run(linear, at::kDouble);
  BOOST_TEST(gradients.at("weight").samples() == 3);
  BOOST_TEST(gradients.at("weight").tensors().at(1).scalar_type() == at::kDouble);
  // Clones have no hooks.
  auto copy = std::dynamic_pointer_cast<torch::nn::LinearImpl>(linear->clone());
  copy->forward(torch::ones({2, 4}, at::kDouble)).sum().backward();
  BOOST_TEST(gradients.at("weight").samples() == 3);
  // Another tensor in its place is another parameter, until the recorder is told.
  torch::nn::Linear other(4, 4);
  run(other, at::kFloat);
  BOOST_TEST(gradients.at("bias").samples() == 3);
  gradients.replace(1, model::walk_modules(*other).front());
  run(other, at::kFloat);
  BOOST_TEST(gradients.at("bias").samples() == 4);
  BOOST_TEST(gradients.at("weight").samples() == 3);
  run(linear, at::kDouble);
  BOOST_TEST(gradients.at("bias").samples() == 4);
  BOOST_TEST(is_untouched(linear->bias));
  torch::nn::ReLU relu;
  BOOST_TEST(contains(error_of([&] { gradients.replace(1, model::walk_modules(*relu).front()); }),
                      "has no parameter \"bias\""));
  // Either dies first.
  {
    torch::nn::Linear short_lived(2, 2);
    gradients.attach(short_lived);
  }
  gradients.detach();
}

BOOST_AUTO_TEST_CASE(hooks_of_others_stay_where_they_are) {
  torch::nn::Linear linear(2, 2);
  std::string order;
  const auto before = linear->weight.register_hook([&](at::Tensor gradient) {
    order += 'a';
    return gradient * 2;
  });
  auto ours = hooks::attach(*linear, "weight", [&](hooks::Event& event) {
    order += 'b';
    BOOST_TEST((event.kind() == hooks::Kind::backward_parameter));
    BOOST_TEST(event.path() == "weight");
    BOOST_TEST(event.type() == "Linear");
    BOOST_TEST(at::equal(event.gradient(), torch::full({2, 2}, 2.0)));
    event.gradient() = event.gradient() * 3;
  });
  const auto behind = linear->weight.register_hook([&](const at::Tensor& gradient) {
    order += 'c';
    BOOST_TEST(at::equal(gradient, torch::full({2, 2}, 6.0)));
  });
  const auto run = [&] {
    order.clear();
    linear->zero_grad();
    linear->forward(torch::ones({1, 2})).sum().backward();
    return order;
  };
  BOOST_TEST(run() == "abc");
  BOOST_TEST(ours.attached());
  ours.remove();
  BOOST_TEST(!ours.attached());
  linear->weight.remove_hook(behind);  // its number still means it
  BOOST_TEST(run() == "a");
  linear->weight.remove_hook(before);
  BOOST_TEST(run() == "");

  // A hook that removes itself and others while it runs.
  hooks::Handle self, other;
  self = hooks::attach(*linear, "weight", [&](hooks::Event&) {
    order += 's';
    self.remove();
    other.remove();
  });
  other = hooks::attach(*linear, "weight", [&](hooks::Event&) { order += 'o'; });
  BOOST_TEST(run() == "s");
  BOOST_TEST(run() == "");
  hooks::attach(*linear, "bias", [&](hooks::Event&) { order += 'r'; }).release();
  BOOST_TEST(run() == "r");
}

BOOST_AUTO_TEST_CASE(everything_else_works_as_for_other_kinds) {
  const auto net = lenet();
  const torchtap_test::TemporaryDirectory folder;
  const auto [images, labels] = batch();
  const auto run = [&, images = images, labels = labels] {
    torch::nn::functional::cross_entropy(net->forward(images), labels).backward();
  };
  // A condition knows the parameter's name; a transform gives one number a step.
  BackwardParameter norms(recorders::RecorderOptions()
                              .condition([](const recorders::Sample& sample) {
                                return sample.path().find(".weight") != std::string::npos;
                              })
                              .transform([](const at::Tensor& gradient) { return gradient.norm(); }));
  BackwardParameter all(recorders::RecorderOptions().all_tensors()), moments(reductions::Moments{});
  {
    BackwardParameter spooled(recorders::RecorderOptions().spool(
        folder / "spool", storage::SpoolOptions().mkdir(true).sync(false)));
    for (auto* one : {&norms, &all, &moments, &spooled}) one->attach(*net);
    run();
    run();
    spooled.save(folder / "spool");
  }
  norms.save(folder / "norms", storage::SaveOptions().mkdir(true));
  moments.save(folder / "moments", storage::SaveOptions().mkdir(true));
  BOOST_TEST(norms.at("fc1.bias").samples() == 0);
  BOOST_TEST(norms.at("fc1.bias").events() == 2);
  BOOST_TEST(all.at("fc1.bias").slot(0).list().size() == 2);
  const auto recording = storage::load(folder / "spool");
  const auto& entry = recording.at("conv1.weight");
  BOOST_TEST(entry.kind() == "BackwardParameter");
  BOOST_TEST(entry.samples() == 2);
  BOOST_TEST(at::equal(entry.value().tensors()[0], all.at("conv1.weight").slot(0).tensors()[0]));
  BOOST_TEST(storage::load(folder / "norms").at("fc1.weight").value().list().size() == 2);

  std::stringstream snapshot;
  moments.snapshot(snapshot);
  BackwardParameter resumed(reductions::Moments{});
  resumed.attach(*net);
  resumed.restore(snapshot);
  BOOST_TEST(at::equal(resumed.at("fc2.bias").tensor("mean"), moments.at("fc2.bias").tensor("mean")));
  resumed.merge(moments);
  BOOST_TEST(resumed.at("fc2.bias").samples() == 4);
  BOOST_TEST(recorders::make("BackwardParameter")->kind() == "BackwardParameter");

  // A sparse gradient is kept, and does not fit a reduction.
  torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(10, 3).sparse(true));
  BackwardParameter sparse, sum(reductions::Sum{});
  sparse.attach(embedding);
  sum.attach(embedding);
  embedding->forward(torch::tensor({1, 1, 7})).sum().backward();
  BOOST_TEST(sparse[0].tensors().at(0).is_sparse());
  BOOST_TEST(at::equal(sparse[0].tensors().at(0).to_dense(), embedding->weight.grad().to_dense()));
  BOOST_TEST(sum[0].left_out() == 1);
}

#ifdef TORCHTAP_TEST_TORCHSCRIPT
BOOST_AUTO_TEST_CASE(torchscript_modules_have_parameters) {
  torch::jit::Module inner("Inner"), script("Net");
  inner.register_parameter("weight", torch::ones({2}, torch::requires_grad()), false);
  inner.register_parameter("frozen", torch::ones({2}), false);
  inner.define("def forward(self, x):\n  return x * self.weight + self.frozen\n");
  script.register_module("inner", inner);
  script.define("def forward(self, x):\n  return self.inner.forward(self.inner.forward(x))\n");
  BackwardParameter gradients;
  gradients.attach(script);
  BOOST_TEST(gradients.size() == 2);
  script.forward({torch::full({2}, 3.0)}).toTensor().sum().backward();
  const at::Tensor weight = inner.attr("weight").toTensor();
  BOOST_TEST_REQUIRE(gradients.at("inner.weight").samples() == 1);
  BOOST_TEST(at::equal(gradients.at("inner.weight").tensors()[0], weight.grad()));
  BOOST_TEST(gradients.at("inner.frozen").samples() == 0);
  gradients.detach();
  BOOST_TEST(is_untouched(weight));
}
#endif

BOOST_AUTO_TEST_CASE(mistakes_are_errors) {
  torch::nn::Linear linear(2, 2);
  torch::nn::ReLU relu;
  BackwardParameter gradients;
  BOOST_TEST(contains(error_of([&] { gradients.attach(relu); }),
                      "none of the 1 selected modules holds a parameter itself"));
  BOOST_TEST(gradients.empty());
  BOOST_TEST(contains(error_of([&] { gradients.attach(linear, "no"); }), "no"));
  BOOST_TEST(contains(error_of([] { BackwardParameter(recorders::RecorderOptions().slot(1)); }),
                      "each parameter has a subrecorder of its own, so there is no slot(1)"));
  BOOST_TEST(contains(error_of([&] { gradients.until_recorded([] {}); }), "backward"));
  BOOST_TEST(contains(error_of([&] {
                        const auto handle =
                            hooks::attach(*linear, hooks::Kind::backward_parameter, [](hooks::Event&) {});
                      }),
                      "hooks::attach(module, \"weight\", callback)"));
  BOOST_TEST(
      contains(error_of([&] { const auto handle = hooks::attach(*linear, "wieght", [](hooks::Event&) {}); }),
               "has no parameter \"wieght\" of its own; it has \"weight\" and \"bias\""));
  BOOST_TEST(is_untouched(linear->weight));
  // A hook that throws ends the backward with its error.
  BackwardParameter broken(recorders::RecorderOptions().transform(
      [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("mine"); }));
  broken.attach(linear);
  BOOST_CHECK_THROW(linear->forward(torch::ones({1, 2})).sum().backward(), std::runtime_error);
}

// Backwards in several threads, each through its own model and all through a shared one.
BOOST_AUTO_TEST_CASE(backwards_in_several_threads) {
  torch::nn::Linear shared(4, 4);
  BackwardParameter gradients(reductions::Sum{});
  gradients.attach(shared);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int step = 0; step < 50; ++step) shared->forward(torch::ones({1, 4})).sum().backward();
    });
  }
  for (auto& thread : threads) thread.join();
  BOOST_TEST(gradients.at("weight").samples() == 200);
  BOOST_TEST(at::equal(gradients.at("bias").tensor(), torch::full({4}, 200.0)));
}

BOOST_AUTO_TEST_SUITE_END()
