// What a layer costs is what the whole model loses with that layer alone quantized, wherever it was resumed;
// and the dtypes chosen from these costs are the best for the bits that they take.
#include <boost/test/unit_test.hpp>
#include <torch/csrc/jit/api/module.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>

#include <torchtap/hooks/nn.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/quantization/fake_quantize.hpp>
#include <torchtap/quantization/sensitivity.hpp>

#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(quantization_sensitivity)

using namespace torchtap;
using namespace torchtap::quantization;
using torchtap_test::says;

namespace {

using Call = std::function<at::Tensor(const at::Tensor&)>;

/// Outputs of all modules that have one are between -4 and 4.
Calibration calibration(const std::vector<model::ModuleRef>& modules, Dtype dtype,
                        std::optional<Dtype> weights) {
  std::vector<QuantizedTensor> tensors;
  for (const model::ModuleRef& module : modules) {
    if (!module.has_forward() || module.path().empty()) continue;
    tensors.push_back({module.path(), module.type(), false, 0,
                       from_range(at::full({}, -4.F), at::full({}, 4.F), QuantizationOptions().dtype(dtype)),
                       weights});
  }
  return Calibration(tensors, "min_max");
}
std::vector<Calibration> eight_and_four(const std::vector<model::ModuleRef>& modules) {
  return {calibration(modules, Dtype::int8, Dtype::int8), calibration(modules, Dtype::int4, Dtype::int4)};
}

Data batches(const std::vector<std::int64_t>& shape, std::int64_t count = 2) {
  std::vector<at::Tensor> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(torch::randn(shape));
  return {count, [all](std::int64_t i) { return all[static_cast<std::size_t>(i)]; }};
}

/// The costs by running the whole model for each layer and dtype.
std::map<std::pair<std::string, Dtype>, double> whole(const std::vector<model::ModuleRef>& modules,
                                                      const Call& call,
                                                      const std::vector<Calibration>& calibrations,
                                                      const Data& data, const Metric& metric) {
  const torch::NoGradGuard no_gradients;
  std::map<std::pair<std::string, Dtype>, double> costs;
  for (const Calibration& calibration : calibrations) {
    for (const QuantizedTensor& tensor : calibration) {
      double with = 0, without = 0;
      for (std::int64_t i = 0; i < data.batches; ++i) {
        const at::Tensor expected = call(data.batch(i));
        FakeQuantized quantized = fake_quantize(modules, Calibration({tensor}));
        const at::Tensor output = call(data.batch(i));
        quantized.remove();
        with += metric(output, expected, i);
        without += metric(expected, expected, i);
      }
      costs[{tensor.path, tensor.parameters.dtype}] = (with - without) / static_cast<double>(data.batches);
    }
  }
  return costs;
}

/// Compares all costs, bit by bit, and returns the paths that were resumed.
std::vector<std::string> check(const std::vector<LayerCost>& costs,
                               const std::vector<model::ModuleRef>& modules, const Call& call,
                               const std::vector<Calibration>& calibrations, const Data& data,
                               const Metric& metric = relative_squared_error) {
  const auto expected = whole(modules, call, calibrations, data, metric);
  std::vector<std::string> resumed;
  BOOST_TEST(costs.size() == expected.size());
  bool any = false;
  for (const LayerCost& cost : costs) {
    const double brute = expected.at({cost.path, cost.dtype});
    BOOST_TEST(cost.cost == brute, cost.path << ": " << cost.cost << " and " << brute);
    any |= brute != 0;
    if (cost.resumed && (resumed.empty() || resumed.back() != cost.path)) resumed.push_back(cost.path);
  }
  BOOST_TEST(any);
  return resumed;
}
std::vector<std::string> check(torch::nn::Module& net, const Call& call, const Data& data) {
  net.eval();
  const auto modules = model::walk_modules(net);
  const auto calibrations = eight_and_four(modules);
  return check(sensitivity(net, call, calibrations, data), modules, call, calibrations, data);
}
std::vector<std::string> check(const torch::jit::Module& net, const Data& data) {
  const auto modules = model::walk_modules(net);
  const auto calibrations = eight_and_four(modules);
  torch::jit::Module script = net;
  const auto call = [&](const at::Tensor& x) { return script.forward({x}).toTensor(); };
  return check(sensitivity(net, calibrations, data), modules, call, calibrations, data);
}

/// A `Sequential` that can be in another one.
struct StageImpl : torch::nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;
  at::Tensor forward(const at::Tensor& x) { return SequentialImpl::forward(x); }
};
TORCH_MODULE(Stage);

torch::nn::Sequential nested() {
  namespace nn = torch::nn;
  return nn::Sequential(
      nn::Conv2d(nn::Conv2dOptions(1, 4, 3)), nn::ReLU(nn::ReLUOptions(true)),
      Stage(nn::Conv2d(nn::Conv2dOptions(4, 6, 3).bias(false)), nn::BatchNorm2d(6), Stage(nn::ReLU())),
      nn::MaxPool2d(2), nn::Flatten(), nn::Linear(6 * 4 * 4, 10));
}

const std::vector<std::string> in_nested{"0", "1", "2", "2.0", "2.1", "2.2", "2.2.0", "3", "4", "5"};

/// A TorchScript module with a weight and code.
torch::jit::Module layer(const std::string& name, const at::Tensor& weight, const std::string& code) {
  torch::jit::Module module("__torch__.torch.nn.modules." + name);
  if (weight.defined()) module.register_parameter("weight", weight, false);
  module.define("def forward(self, x):\n  return " + code + "\n");
  return module;
}

/// Two linear layers, each with a function around its call.
struct Net : torch::nn::Module {
  using Forward = std::function<at::Tensor(Net&, const at::Tensor&)>;
  explicit Net(Forward forward) : forward_(std::move(forward)) {}
  at::Tensor forward(const at::Tensor& x) { return forward_(*this, x); }
  at::Tensor first(const at::Tensor& x) { return one->forward(x); }

  Forward forward_;
  torchtap::nn::Linear one = register_module("one", torchtap::nn::Linear(6, 6));
  torchtap::nn::Linear two = register_module("two", torchtap::nn::Linear(6, 6));
};

}  // namespace

BOOST_AUTO_TEST_CASE(every_layer_of_a_nested_sequential_is_resumed) {
  torch::manual_seed(1);
  auto net = nested();
  net->eval();
  for (auto& buffer : net->named_buffers()) {
    if (buffer.value().is_floating_point()) buffer.value().uniform_(0.5, 1.5);
  }
  const auto call = [&](const at::Tensor& x) { return net->forward(x); };
  const Data data = batches({8, 1, 12, 12});
  BOOST_TEST(check(*net, call, data) == in_nested, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(layers_before_the_resumed_one_see_one_row_for_a_batch) {
  torch::manual_seed(2);
  auto net = nested();
  net->eval();
  const auto modules = model::walk_modules(*net);
  const auto calibrations = eight_and_four(modules);
  const Data data = batches({64, 1, 12, 12}, 1);
  std::map<std::string, std::int64_t> rows;
  std::vector<hooks::Handle> handles;
  for (const auto& module : modules) {
    handles.push_back(hooks::attach(module, hooks::Kind::forward_output, [&](hooks::Event& event) {
      rows[event.path()] += event.outputs()[0].size(0);
    }));
  }
  const auto costs = sensitivity(
      *net, [&](const at::Tensor& x) { return net->forward(x); }, calibrations, data);
  BOOST_TEST(costs.size() == 20);
  // In two rows: kept once, then whole and resumed for each of 10 layers. With all rows: once, and for 2
  // dtypes of each layer up to this one; a single row for the others.
  for (std::size_t i = 0; i < in_nested.size(); ++i) {
    const std::int64_t own = 2 * static_cast<std::int64_t>(i + 1), others = 20 - own;
    if (in_nested[i] == "2" || in_nested[i] == "2.2") continue;  // end behind layers inside
    BOOST_TEST(rows[in_nested[i]] == 2 + 10 * 2 + (own + others / 2) + 64 + (64 * own + others),
               in_nested[i]);
  }
}

BOOST_AUTO_TEST_CASE(chains_in_torchscript_are_resumed) {
  torch::manual_seed(3);
  const auto linear = [](int in, int out) {
    return layer("linear.Linear", torch::randn({out, in}) / 2, "torch.matmul(x, self.weight.t())");
  };
  torch::jit::Module net("Chain"), inner("Inner");
  net.register_module("a", linear(5, 7));
  inner.register_module("b", layer("activation.ReLU", {}, "torch.relu_(x)"));
  inner.register_module("c", linear(7, 7));
  inner.define("def forward(self, x):\n  return self.c.forward(self.b.forward(x))\n");
  net.register_module("inner", inner);
  net.register_module("d", linear(7, 3));
  net.define(
      "def forward(self, x):\n  return self.d.forward(torch.tanh(self.inner.forward(self.a.forward(x))))\n");
  net.eval();
  const std::vector<std::string> all{"a", "inner", "inner.b", "inner.c", "d"};
  BOOST_TEST(check(net, batches({9, 5})) == all, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_cannot_be_resumed_runs_whole) {
  torch::manual_seed(4);
  const std::vector<std::string> none, both{"one", "two"};
  const auto of = [](const Net::Forward& forward, std::int64_t rows = 5) {
    Net net(forward);
    return check(
        net, [&](const at::Tensor& x) { return net.forward(x); }, batches({rows, 6}));
  };
  const auto f = [](Net& net, const at::Tensor& x) {
    return net.two->forward(torch::relu(net.one->forward(x)));
  };
  BOOST_TEST(of(f) == both, boost::test_tools::per_element());
  BOOST_TEST(of(f, 2) == both, boost::test_tools::per_element());
  // One row for all that comes before is what there is.
  BOOST_TEST(of(f, 1) == none, boost::test_tools::per_element());
  // The input is used again at the end: in a sum, in a mask that hides NaN, in a shape.
  BOOST_TEST(of([&](Net& net, const at::Tensor& x) { return f(net, x) + x; }) == none,
             boost::test_tools::per_element());
  BOOST_TEST(of([&](Net& net, const at::Tensor& x) { return f(net, x) * (x.abs().sum() > 0); }) == none,
             boost::test_tools::per_element());
  BOOST_TEST(of([&](Net& net, const at::Tensor& x) {
               return f(net, x).view({x.size(0), 2, 3});
             }) == none,
             boost::test_tools::per_element());
  // A shape that comes from what is kept is right.
  BOOST_TEST(of([&](Net& net, const at::Tensor& x) {
               const at::Tensor y = net.one->forward(x);
               return net.two->forward(y.view({y.size(0), -1}));
             }) == both,
             boost::test_tools::per_element());
  // A residual around the second layer: only the first has all behind it.
  BOOST_TEST(of([&](Net& net, const at::Tensor& x) {
               const at::Tensor y = net.one->forward(x);
               return net.two->forward(y) + y;
             }) == std::vector<std::string>{"one"},
             boost::test_tools::per_element());
  // A layer that is called again behind the other one can be resumed; the other one lies between its calls.
  BOOST_TEST(of([&](Net& net, const at::Tensor& x) { return net.one->forward(f(net, x)); }) == both,
             boost::test_tools::per_element());
  // NaN is an error here, and two rows are one there.
  BOOST_TEST(of([&](Net& net, const at::Tensor& x) {
               TORCH_CHECK(x.isfinite().all().item<bool>(), "not finite");
               return f(net, x);
             }) == none,
             boost::test_tools::per_element());
  BOOST_TEST(of([&](Net& net, const at::Tensor& x) {
               TORCH_CHECK(x.size(0) == 5, "not five rows");
               return f(net, x);
             }) == none,
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_layer_in_a_residual_block_is_resumed_from_the_block) {
  torch::manual_seed(5);
  const auto linear = [] {
    return layer("linear.Linear", torch::randn({6, 6}) / 2, "torch.matmul(x, self.weight.t())");
  };
  torch::jit::Module net("Net"), block("Block");
  block.register_module("one", linear());
  block.register_module("two", linear());
  block.define(
      "def forward(self, x):\n  return torch.relu(self.two.forward(torch.relu(self.one.forward(x))) + x)\n");
  net.register_module("before", linear());
  net.register_module("block", block);
  net.define("def forward(self, x):\n  return self.block.forward(self.before.forward(x))\n");
  const Data data = batches({8, 6}, 1);
  const std::vector<std::string> all{"before", "block", "block.one", "block.two"};
  BOOST_TEST(check(net, data) == all, boost::test_tools::per_element());

  // A layer of the block that is also called before it cannot be resumed from it, nor from itself.
  net = torch::jit::Module("Net");
  net.register_module("block", block);
  net.define("def forward(self, x):\n  return self.block.forward(self.block.one.forward(x) + x)\n");
  const std::vector<std::string> others{"block", "block.two"};
  BOOST_TEST(check(net, data) == others, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(costs_tell_format_and_weights) {
  torch::manual_seed(6);
  auto net = nested();
  net->eval();
  const auto modules = model::walk_modules(*net);
  const auto call = [&](const at::Tensor& x) { return net->forward(x); };
  const std::vector<Calibration> calibrations{calibration(modules, Dtype::uint8, Dtype::int4),
                                              calibration(modules, Dtype::int8, std::nullopt)};
  std::vector<at::Tensor> before, storage;
  for (const auto& parameter : net->parameters()) {
    before.push_back(parameter.detach().clone());
    storage.push_back(parameter.detach());
  }
  const auto costs = sensitivity(*net, call, calibrations, batches({4, 1, 12, 12}));
  BOOST_TEST_REQUIRE(costs.size() == 20);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    BOOST_TEST(costs[i].path == in_nested[i / 2]);
    const bool weighted = i % 2 == 0 && (i == 0 || i == 6 || i == 18);
    const std::int64_t elements = i == 0 ? 36 : i == 6 ? 216 : 960;
    BOOST_TEST(costs[i].weights == (weighted ? elements : 0));
    BOOST_TEST(name_of(costs[i].dtype) == (weighted ? "int4" : i % 2 == 0 ? "uint8" : "int8"));
  }
  BOOST_TEST(costs[0].type == "Conv2d");
  // As before: the same memory with the same bits, and no hook.
  const auto after = net->parameters();
  for (std::size_t i = 0; i < after.size(); ++i) {
    BOOST_TEST(after[i].data_ptr() == storage[i].data_ptr());
    BOOST_TEST(at::equal(after[i].detach(), before[i]));
    BOOST_TEST(after[i].requires_grad());
  }
}

BOOST_AUTO_TEST_CASE(the_metric_sees_outputs_expectations_and_batches) {
  torch::manual_seed(7);
  auto net = nested();
  net->eval();
  const auto modules = model::walk_modules(*net);
  const auto call = [&](const at::Tensor& x) { return net->forward(x); };
  const Data data = batches({6, 1, 12, 12}, 3);
  std::vector<std::int64_t> seen;
  const Metric metric = [&](const at::Tensor& output, const at::Tensor& expected, std::int64_t batch) {
    seen.push_back(batch);
    BOOST_TEST(at::equal(expected, net->forward(data.batch(batch))));
    return output.max().item<double>();  // not 0 in floating point
  };
  const std::vector<Calibration> one{Calibration({*calibration(modules, Dtype::int4, {}).begin()})};
  const auto costs = sensitivity(*net, call, one, data, metric);
  const std::vector<std::int64_t> expected{0, 0, 1, 1, 2, 2};
  BOOST_TEST(seen == expected, boost::test_tools::per_element());
  BOOST_TEST(costs.at(0).cost == whole(modules, call, one, data, metric).begin()->second);

  const at::Tensor y = at::tensor({3.F, 4.F}), x = at::tensor({3.F, 5.F});
  BOOST_TEST(relative_squared_error(x, y, 0) == 1. / 25);
  BOOST_TEST(relative_squared_error(y, y, 0) == 0);
  BOOST_TEST(relative_squared_error(at::zeros({2}), at::zeros({2}), 0) == 0);
  BOOST_TEST(relative_squared_error(x, at::zeros({2}), 0) == std::numeric_limits<double>::infinity());
}

BOOST_AUTO_TEST_CASE(sensitivity_refuses) {
  auto net = nested();
  const auto modules = model::walk_modules(*net);
  const auto call = [&](const at::Tensor& x) { return net->forward(x); };
  const auto calibrations = eight_and_four(modules);
  const Data data = batches({4, 1, 12, 12}, 1);
  BOOST_CHECK_EXCEPTION(sensitivity(*net, call, calibrations, data), c10::ValueError,
                        says({"quantization::sensitivity: ", "training mode", "eval()"}));
  net->eval();
  net[2]->as<Stage>()->train();
  BOOST_CHECK_EXCEPTION(sensitivity(*net, call, calibrations, data), c10::ValueError,
                        says({"module \"2\" (Stage)"}));
  net->eval();
  BOOST_CHECK_EXCEPTION(sensitivity(*net, call, {}, data), c10::ValueError, says({"no calibration"}));
  BOOST_CHECK_EXCEPTION(sensitivity(*net, call, calibrations, {}), c10::ValueError, says({"0 batches"}));
  std::vector<QuantizedTensor> tensors(calibrations[0].begin(), calibrations[0].end());
  tensors[3].path = "9";
  BOOST_CHECK_EXCEPTION(sensitivity(*net, call, {calibrations[0], Calibration(tensors)}, data),
                        c10::ValueError, says({"\"9\""}));
  // The model's and the metric's exceptions arrive, and nothing is left of the quantization.
  const at::Tensor before = net->forward(data.batch(0));
  const Data wrong = batches({4, 2, 12, 12}, 1);
  BOOST_CHECK_THROW(sensitivity(*net, call, calibrations, wrong), c10::Error);
  int calls = 0;
  const Metric metric = [&](const at::Tensor&, const at::Tensor&, std::int64_t) -> double {
    return ++calls < 3 ? 0 : throw std::domain_error("metric");
  };
  BOOST_CHECK_THROW(sensitivity(*net, call, calibrations, data, metric), std::domain_error);
  BOOST_TEST(at::equal(net->forward(data.batch(0)), before));
}

namespace {

/// A calibration with layers of these names, in the dtype.
Calibration layers_in(std::size_t count, Dtype dtype, std::optional<Dtype> weights) {
  std::vector<QuantizedTensor> tensors;
  for (std::size_t i = 0; i < count; ++i) {
    for (const bool input : {true, false}) {
      tensors.push_back(
          {std::string(1, static_cast<char>('a' + i)), "Linear", input, 0,
           from_range(at::full({}, -1.F), at::full({}, 1.F), QuantizationOptions().dtype(dtype)), weights});
    }
  }
  return Calibration(tensors, "entropy");
}

struct Problem {
  std::vector<Calibration> calibrations;
  std::vector<LayerCost> costs;
  std::vector<double> bits;  // of the calibrations
  double weights = 0;

  std::size_t layers() const { return costs.size() / calibrations.size(); }
  const LayerCost& cost(std::size_t layer, std::size_t dtype) const {
    return costs[layer * calibrations.size() + dtype];
  }
  /// Bits per weight and cost of dtypes, one for each layer.
  std::pair<double, double> of(const std::vector<std::size_t>& dtypes) const {
    double used = 0, sum = 0;
    for (std::size_t i = 0; i < dtypes.size(); ++i) {
      used += bits[dtypes[i]] * static_cast<double>(cost(i, 0).weights);
      sum += cost(i, dtypes[i]).cost;
    }
    return {used / weights, sum};
  }
  /// The dtypes of a choice that `mixed_precision` made.
  std::vector<std::size_t> read(const Calibration& chosen) const {
    std::vector<std::size_t> dtypes;
    for (const QuantizedTensor& tensor : chosen) {
      if (tensor.input) continue;
      BOOST_TEST(tensor.path == cost(dtypes.size(), 0).path);
      const auto same = [&](const Calibration& one) {
        return one.begin()->weights == tensor.weights &&
               one.begin()->parameters.dtype == tensor.parameters.dtype;
      };
      const auto found = std::find_if(calibrations.begin(), calibrations.end(), same);
      dtypes.push_back(static_cast<std::size_t>(found - calibrations.begin()));
    }
    return dtypes;
  }
};

/// Three dtypes for each of five layers: weights in float32, int8 and int4, in some order.
Problem problem(std::mt19937& random, bool convex) {
  Problem made;
  constexpr std::size_t layers = 5;
  made.calibrations = {layers_in(layers, Dtype::int8, Dtype::int8), layers_in(layers, Dtype::uint8, {}),
                       layers_in(layers, Dtype::int4, Dtype::int4)};
  made.bits = {8, 32, 4};
  std::uniform_real_distribution<double> uniform(0, 1);
  for (std::size_t i = 0; i < layers; ++i) {
    const std::int64_t weights = 1 + static_cast<std::int64_t>(random() % 1000);
    made.weights += static_cast<double>(weights);
    const double a = uniform(random), b = uniform(random), c = uniform(random) - 0.2;
    const std::string path(1, static_cast<char>('a' + i));
    made.costs.push_back({path, "Linear", Dtype::int8, convex ? a + b / 10 : a, weights});
    made.costs.push_back({path, "Linear", Dtype::uint8, convex ? b / 10 : b, 0});
    made.costs.push_back({path, "Linear", Dtype::int4, convex ? 3 * a + b : c, weights});
  }
  return made;
}

}  // namespace

BOOST_AUTO_TEST_CASE(mixed_precision_keeps_the_budget_and_is_best_for_the_bits_that_it_takes) {
  std::mt19937 random(11);
  std::map<std::vector<std::size_t>, int> choices;
  for (int round = 0; round < 100; ++round) {
    const Problem made = problem(random, round % 2 == 0);
    for (const double budget : {4., 4.5, 6., 8., 9.5, 17., 31., 32.}) {
      const Calibration chosen = mixed_precision(made.costs, made.calibrations, budget);
      BOOST_TEST(chosen.method() == "entropy");
      BOOST_TEST_REQUIRE(chosen.size() == 2 * made.layers());
      const auto dtypes = made.read(chosen);
      ++choices[dtypes];
      const auto [used, cost] = made.of(dtypes);
      BOOST_TEST(used <= budget);
      // All 3⁵ choices. None is better with as many bits. The last step was needed, so the best choice for
      // the budget is at least what would be there without the last step.
      double as_many = std::numeric_limits<double>::infinity(), best = as_many, largest = 0;
      std::vector<std::size_t> other(made.layers(), 0);
      for (int code = 0; code < 243; ++code) {
        for (int i = 0, rest = code; i < 5; ++i, rest /= 3) other[static_cast<std::size_t>(i)] = rest % 3;
        const auto [bits, sum] = made.of(other);
        if (bits <= used) as_many = std::min(as_many, sum);
        if (bits <= budget) best = std::min(best, sum);
      }
      for (std::size_t i = 0; i < made.layers(); ++i) {
        for (std::size_t a = 0; a < 3; ++a) {
          for (std::size_t b = 0; b < 3; ++b) {
            largest = std::max(largest, made.cost(i, a).cost - made.cost(i, b).cost);
          }
        }
      }
      BOOST_TEST(std::abs(cost - as_many) < 1e-12);
      BOOST_TEST(cost <= best + largest);
    }
  }
  BOOST_TEST(choices.size() > 50);
}

BOOST_AUTO_TEST_CASE(layers_without_weights_take_the_widest_format) {
  const std::vector<Calibration> calibrations{layers_in(2, Dtype::int4, Dtype::int4),
                                              layers_in(2, Dtype::int8, Dtype::int8)};
  const std::vector<LayerCost> costs{{"a", "ReLU", Dtype::int4, 0.1, 0},
                                     {"a", "ReLU", Dtype::int8, 0.2, 0},
                                     {"b", "Linear", Dtype::int4, 0.5, 100},
                                     {"b", "Linear", Dtype::int8, 0.1, 100}};
  const auto chosen = mixed_precision(costs, calibrations, 4);
  BOOST_TEST(name_of(chosen.at("a").parameters.dtype) == "int8");
  BOOST_TEST(name_of(chosen.at("b").parameters.dtype) == "int4");
  BOOST_TEST(name_of(mixed_precision(costs, calibrations, 8).at("b").parameters.dtype) == "int8");
  BOOST_TEST(name_of(mixed_precision(costs, calibrations, 7.99).at("b").parameters.dtype) == "int4");
  BOOST_TEST(mixed_precision({}, {}, 8).empty());
}

BOOST_AUTO_TEST_CASE(mixed_precision_refuses) {
  std::mt19937 random(12);
  Problem made = problem(random, true);
  BOOST_CHECK_EXCEPTION(mixed_precision(made.costs, made.calibrations, 3.9), c10::ValueError,
                        says({"quantization::mixed_precision: ", "need 4 bits per weight", "budget of 3.9"}));
  made.costs[4].cost = std::numeric_limits<double>::quiet_NaN();
  BOOST_CHECK_EXCEPTION(mixed_precision(made.costs, made.calibrations, 8), c10::ValueError,
                        says({"finite cost of \"b\" at position 4", "found nan of \"b\""}));
  made.costs.resize(4);
  BOOST_CHECK_EXCEPTION(mixed_precision(made.costs, made.calibrations, 8), c10::ValueError,
                        says({"position 4, found no more"}));
  made.costs[3].path = "x";
  BOOST_CHECK_EXCEPTION(mixed_precision(made.costs, made.calibrations, 8), c10::ValueError,
                        says({"of \"b\" at position 3", "of \"x\""}));
}

BOOST_AUTO_TEST_SUITE_END()
