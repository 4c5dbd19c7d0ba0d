// Training while an explorer watches: the bits stay the same, and so does what is recorded, in all the ways
// in which models are trained.
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>
#include <torch/version.h>

#include <optional>

#include "zoo.hpp"

BOOST_AUTO_TEST_SUITE(training)

using namespace support;
namespace parts = explorer::detail;
namespace watch = torchtap::views::watch;

namespace {

void set_autocast(bool on) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  at::autocast::set_autocast_enabled(at::kCPU, on);
#else
  at::autocast::set_cpu_enabled(on);
#endif
  if (!on) at::autocast::clear_cache();
}

/// Losses, gradients of each step, weights and buffers after `steps` steps of SGD.
std::vector<at::Tensor> train(Network (*make)(), const std::optional<explorer::ExplorerOptions>& options,
                              int steps, const std::function<at::Tensor(const Network&, int)>& backward) {
  torch::manual_seed(0);
  const Network net = make();
  explorer::Explorer watched(options.value_or(explorer::ExplorerOptions()));
  if (options) watched.attach(*net.model);
  torch::optim::SGD optimizer(net.model->parameters(),
                              torch::optim::SGDOptions(0.01).momentum(0.9).weight_decay(1e-4));
  std::vector<at::Tensor> result;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    result.push_back(backward(net, step));
    for (const auto& parameter : net.model->parameters())
      result.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
    optimizer.step();
  }
  for (const auto& parameter : net.model->parameters()) result.push_back(parameter.detach());
  for (const auto& buffer : net.model->buffers()) result.push_back(buffer);
  if (options) BOOST_TEST(watched.step() >= steps - 1);
  check_no_errors(watched);
  return result;
}

at::Tensor one_batch(const Network& net, int) {
  const at::Tensor loss = net.forward();
  loss.backward();
  return loss.detach();
}

bool is_same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || a.equal(b));
}

void check_same_bits(Network (*make)(), int steps,
                     const std::function<at::Tensor(const Network&, int)>& backward = one_batch) {
  at::set_num_threads(1);
  const auto plain = train(make, std::nullopt, steps, backward);
  for (const auto& options : {explorer::ExplorerOptions().every(1), explorer::ExplorerOptions().every(3),
                              explorer::ExplorerOptions()}) {
    const auto watched = train(make, options, steps, backward);
    BOOST_REQUIRE(plain.size() == watched.size());
    bool changed = false;
    for (std::size_t i = 0; i < plain.size(); ++i) changed = changed || !is_same(plain[i], watched[i]);
    BOOST_TEST(!changed);
  }
}

/// The series of a call by its path; null if there is none.
const parts::Series* find_series(const explorer::Explorer& watched, const std::string& path, parts::What what,
                                 std::int32_t index = 0) {
  const parts::Series* found = nullptr;
  for (const auto& [call, name] : parts::models_of(watched).first()->run()->call_names()) {
    if (name.path != path || name.call != 0) continue;
    parts::models_of(watched).first()->run()->each_series([&, call = call](const parts::Series& one) {
      const parts::SeriesKey& key = one.key();
      if (key.call == call && key.what == what && key.index == index && key.mode <= 0) found = &one;
    });
  }
  return found;
}

Network make_small() {
  return network(nn::Sequential(nn::Linear(6, 5), nn::ReLU(nn::ReLUOptions(true)), nn::Linear(5, 3)),
                 [x = torch::randn({4, 6})](auto& model) { return model->forward(x).square().mean(); });
}

}  // namespace

BOOST_DATA_TEST_CASE(networks_of_the_zoo_are_trained_to_the_same_bits,
                     boost::unit_test::data::make(zoo_entries), entry) {
  check_same_bits(entry.make, 20);
}

BOOST_AUTO_TEST_CASE(several_batches_a_step_are_trained_to_the_same_bits) {
  check_same_bits(make_resnet, 4, [](const Network& net, int) {  // one backward of each
    at::Tensor loss;
    for (int batch = 0; batch < 3; ++batch) {
      loss = net.forward() / 3;
      loss.backward();
    }
    return loss.detach();
  });
  check_same_bits(make_gpt, 4, [](const Network& net, int) {  // one of all
    const at::Tensor loss = net.forward() + net.forward() * 2;
    loss.backward();
    return loss.detach();
  });
}

BOOST_AUTO_TEST_CASE(backward_twice_is_the_same_bits) {
  check_same_bits(make_unet, 4, [](const Network& net, int) {
    const at::Tensor loss = net.forward();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    return loss.detach();
  });
}

BOOST_AUTO_TEST_CASE(gradients_of_gradients_are_the_same_bits) {
  check_same_bits(make_small, 6, [](const Network& net, int) {
    const at::Tensor loss = net.forward();
    const auto gradients = torch::autograd::grad({loss}, net.model->parameters(), {}, true, true);
    at::Tensor penalty = torch::zeros({});
    for (const auto& gradient : gradients) penalty = penalty + gradient.square().sum();
    (loss + penalty).backward();
    return penalty.detach();
  });
}

BOOST_AUTO_TEST_CASE(frozen_parts_are_the_same_bits_and_have_no_gradients) {
  const auto frozen = [] {
    Network net = make_small();
    for (auto& parameter : net.model->children().front()->parameters()) parameter.set_requires_grad(false);
    return net;
  };
  check_same_bits(frozen, 5);
  const Network net = frozen();
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*net.model);
  net.forward().backward();
  BOOST_TEST(find_series(watched, "0", parts::What::parameter) != nullptr);
  BOOST_TEST(find_series(watched, "0", parts::What::parameter_grad) == nullptr);
  BOOST_TEST(find_series(watched, "0", parts::What::grad_output) == nullptr);
  BOOST_TEST(find_series(watched, "0", parts::What::output) != nullptr);
  BOOST_TEST(find_series(watched, "2", parts::What::parameter_grad) != nullptr);
  BOOST_TEST(find_series(watched, "2", parts::What::grad_output) != nullptr);
  check_same(edges_of(watched, Mode::train),
             {"net: In0 -> 0.0", "0: In0 -> Out0", "net: 0.0 -> 1.0", "1: In0 -> Out0", "net: 1.0 -> 2.0",
              "2: In0 -> Out0", "net: 2.0 -> Out0"});
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(autocast_is_the_same_bits_and_has_the_same_edges) {
  const auto backward = [](const Network& net, int) {
    set_autocast(true);
    const at::Tensor loss = net.forward();
    set_autocast(false);
    loss.backward();
    return loss.detach();
  };
  check_same_bits(make_gpt, 4, backward);
  const Network net = make_gpt();
  explorer::Explorer plain, watched(explorer::ExplorerOptions().every(1));
  plain.attach(*net.model);
  net.forward();
  const auto expected = edges_of(plain, Mode::train);
  watched.attach(*net.model);
  backward(net, 0);
  check_same(edges_of(watched, Mode::train), expected);
  // What the module returned is bfloat16.
  parts::models_of(watched).first()->run()->with_graph([](const parts::Graph& graph) {
    std::size_t halves = 0;
    for (const auto call : graph.of(Mode::train).calls()) {
      for (const auto& port : graph.of(Mode::train).ports(call).outputs)
        halves += port.dtype == at::kBFloat16 ? 1 : 0;
    }
    BOOST_TEST(halves > 10U);
  });
  check_no_errors(watched);
}

BOOST_AUTO_TEST_CASE(steps_of_the_program_gather_all_their_batches) {
  const Network net = make_small();
  explorer::Explorer watched(explorer::ExplorerOptions().every(2));
  watched.attach(*net.model);
  for (std::int64_t step = 0; step < 4; ++step) {
    watched.step(step);
    for (int batch = 0; batch < 3; ++batch) net.forward().backward();
  }
  for (const auto what : {parts::What::input, parts::What::output, parts::What::grad_output}) {
    const auto* const series = find_series(watched, "0", what);
    BOOST_REQUIRE((series != nullptr));
    BOOST_REQUIRE(series->columns().size() == 2U);
    BOOST_TEST(series->columns()[1].first_step == 2);
    BOOST_TEST(series->columns()[1].count == (what == parts::What::input ? 72U : 60U));
  }
  check_no_errors(watched);
}

/// Says whether the operations of its forward are looked at.
struct LookImpl : nn::Module {
  c10::DispatchKeySet included, excluded;
  at::Tensor forward(const at::Tensor& x) {
    const auto keys = c10::impl::tls_local_dispatch_key_set();
    included = keys.included_;
    excluded = keys.excluded_;
    return x * 2;
  }
};
TORCH_MODULE(Look);

BOOST_AUTO_TEST_CASE(operations_are_left_alone_once_the_graph_is_known) {
  Look net;
  const at::Tensor x = torch::randn({3});
  net(x);
  const auto included = net->included, excluded = net->excluded;
  {
    explorer::Explorer watched(explorer::ExplorerOptions().every(2));
    watched.attach(*net);
    net(x);
    BOOST_TEST((net->included != included));
    for (int i = 0; i < 3; ++i) {  // recorded or not
      net(x);
      BOOST_TEST((net->included == included && net->excluded == excluded));
    }
    check_no_errors(watched);
  }
  net(x);
  BOOST_TEST((net->included == included && net->excluded == excluded));
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  BOOST_TEST((keys.included_ == included && keys.excluded_ == excluded));
}

/// The columns of the root's series of this kind in a mode.
std::vector<watch::Column> root_columns(const explorer::Explorer& watched, parts::What what, Mode mode) {
  std::vector<watch::Column> columns;
  parts::models_of(watched).first()->run()->each_series([&](const parts::Series& one) {
    const parts::SeriesKey& key = one.key();
    if (key.call == 0 && key.what == what && key.mode == static_cast<int>(mode))
      columns.assign(one.columns().begin(), one.columns().end());
  });
  return columns;
}

std::vector<std::int64_t> steps_of(const std::vector<watch::Column>& columns) {
  std::vector<std::int64_t> steps;
  for (const watch::Column& column : columns) steps.push_back(column.first_step);
  return steps;
}

BOOST_AUTO_TEST_CASE(the_gradient_of_an_image_that_is_optimised_belongs_to_its_step) {
  for (const int every : {1, 3}) {
    torch::manual_seed(0);
    nn::Sequential net(nn::Linear(4, 4), nn::ReLU(), nn::Linear(4, 4));
    at::Tensor image = torch::randn({2, 4}).requires_grad_();
    torch::optim::SGD optimizer({image}, 0.01);
    explorer::Explorer watched(explorer::ExplorerOptions().every(every));
    watched.attach(*net);
    at::Tensor loss;  // keeps the graph of the step before, and with it the image's node
    std::vector<double> largest;
    for (int step = 0; step < 30; ++step) {
      optimizer.zero_grad();
      loss = net->forward(image).square().mean();
      loss.backward();
      if (step % every == 0) largest.push_back(image.grad().max().item<double>());
      optimizer.step();
    }
    BOOST_TEST(torch::autograd::impl::grad_accumulator(image)->pre_hooks().size() == 1U);
    const auto columns = root_columns(watched, parts::What::grad_input, Mode::train);
    BOOST_REQUIRE(columns.size() == largest.size());
    for (std::size_t i = 0; i < columns.size(); ++i) {
      BOOST_TEST(columns[i].first_step == static_cast<std::int64_t>(i) * every);
      BOOST_TEST(columns[i].count == 8U);
      BOOST_TEST(columns[i].max == largest[i]);
    }
    check_no_errors(watched);
  }
}

BOOST_AUTO_TEST_CASE(the_gradient_of_what_was_computed_once_belongs_to_each_step) {
  torch::manual_seed(0);
  nn::Sequential net(nn::Linear(4, 4), nn::ReLU(), nn::Linear(4, 4));
  const at::Tensor features = torch::randn({2, 4}).requires_grad_() * 2;
  explorer::Explorer watched(explorer::ExplorerOptions().every(2));
  watched.attach(*net);
  for (int step = 0; step < 12; ++step)
    net->forward(features).square().mean().backward({}, /*retain_graph=*/true);
  const auto columns = root_columns(watched, parts::What::grad_input, Mode::train);
  BOOST_TEST((steps_of(columns) == std::vector<std::int64_t>{0, 2, 4, 6, 8, 10}));
  for (const auto& column : columns) BOOST_TEST(column.count == 8U);
}

BOOST_AUTO_TEST_CASE(forwards_in_training_mode_without_a_backward_are_steps) {
  nn::Sequential net(nn::Linear(4, 4), nn::ReLU(), nn::Linear(4, 4));
  {
    explorer::Explorer watched(explorer::ExplorerOptions().every(1));
    watched.attach(*net);
    for (int i = 0; i < 20; ++i) net->forward(torch::randn({2, 4}));
    BOOST_TEST(watched.step() == 19);
    BOOST_TEST(root_columns(watched, parts::What::output, Mode::train).size() == 20U);
    const parts::Series* const weight = find_series(watched, "0", parts::What::parameter);
    BOOST_REQUIRE(weight != nullptr);
    BOOST_TEST(weight->last().count == 16U);
  }
  {
    explorer::Explorer watched(explorer::ExplorerOptions().every(1));
    watched.attach(*net);
    at::Tensor out;  // lives until the next one has come
    for (int i = 0; i < 20; ++i) out = net->forward(torch::randn({2, 4}));
    BOOST_TEST(watched.step() == 18);
  }
  explorer::Explorer watched(explorer::ExplorerOptions().every(1));
  watched.attach(*net);
  const at::Tensor real = net->forward(torch::randn({2, 4})), made = net->forward(torch::randn({2, 4}));
  BOOST_TEST(watched.step() == 0);  // their backward may come, and does
  (real + made).sum().backward();
  BOOST_TEST(watched.step() == 0);
  net->forward(torch::randn({2, 4}));
  BOOST_TEST(watched.step() == 1);
}

BOOST_AUTO_TEST_CASE(evaluations_are_recorded_wherever_they_come) {
  const auto train = [](int evaluate_every, int after) {
    nn::Sequential net(nn::Linear(4, 4), nn::ReLU(), nn::Linear(4, 4));
    explorer::Explorer watched(explorer::ExplorerOptions().every(10));
    watched.attach(*net);
    for (int step = 0; step < 60; ++step) {
      net->forward(torch::randn({2, 4})).sum().backward();
      if (step % evaluate_every != after) continue;
      net->eval();
      const torch::NoGradGuard no_grad;
      for (int batch = 0; batch < 3; ++batch) net->forward(torch::randn({2, 4}));
      net->train();
    }
    const auto columns = root_columns(watched, parts::What::output, Mode::eval);
    for (const auto& column : columns) BOOST_TEST(column.count == 24U);  // all batches
    return steps_of(columns);
  };
  BOOST_TEST((train(10, 9) == std::vector<std::int64_t>{9, 19, 29, 39, 49, 59}));
  BOOST_TEST((train(20, 19) == std::vector<std::int64_t>{19, 39, 59}));
  BOOST_TEST((train(1, 0) == std::vector<std::int64_t>{0, 10, 20, 30, 40, 50}));  // as rarely as steps
}

BOOST_AUTO_TEST_CASE(a_parameter_is_counted_once_a_step) {
  nn::Sequential net(nn::Linear(4, 3));
  for (const bool trains : {false, true}) {
    explorer::Explorer watched(explorer::ExplorerOptions().every(1));
    watched.attach(*net);
    net->train(trains);
    const at::Tensor out = net->forward(torch::randn({2, 4}));
    out.sum().backward({}, /*retain_graph=*/true);
    out.square().sum().backward();
    const parts::Series* const weight = find_series(watched, "0", parts::What::parameter);
    BOOST_REQUIRE(weight != nullptr);
    BOOST_TEST(weight->last().count == 12U);
  }
}

namespace {

/// A force field: what it returns is a gradient that the forward itself asks for.
struct ForcesImpl : nn::Module {
  ForcesImpl() { energy = register_module("energy", nn::Linear(3, 1)); }
  at::Tensor forward(const at::Tensor& positions) {
    const at::AutoGradMode with_gradients(true);
    const at::Tensor at = positions.detach().requires_grad_();
    return -torch::autograd::grad({energy(at).pow(2).sum()}, {at}, {}, is_training(), is_training())[0];
  }
  nn::Linear energy{nullptr};
};
TORCH_MODULE(Forces);

}  // namespace

BOOST_AUTO_TEST_CASE(a_backward_inside_of_a_forward_ends_no_step) {
  Forces net;
  for (const bool trains : {false, true}) {
    net->train(trains);
    explorer::Explorer watched(explorer::ExplorerOptions().every(1));
    watched.attach(*net);
    for (int i = 0; i < 6; ++i) {
      const at::Tensor forces = net(torch::randn({5, 3}));
      if (trains) forces.pow(2).mean().backward();
      BOOST_TEST(watched.step() == i);
    }
    check_no_errors(watched);
  }
}

BOOST_AUTO_TEST_SUITE_END()
