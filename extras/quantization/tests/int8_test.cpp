// Models in int8 compute what Python's quantization of graphs computes with the same ranges, bit by bit.
#include <boost/test/unit_test.hpp>
#include <torch/script.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include <torchtap/quantization/int8.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/count.hpp>
#include <torchtap/storage/file.hpp>

#include "tests/only_where.hpp"
#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(quantization_int8)

using namespace torchtap;
using namespace torchtap::quantization;
using torch::jit::Module;
using torchtap_test::says;

namespace {

void python(const std::string& arguments) {
  const std::string command =
      std::string(TORCHTAP_TEST_PYTHON) + " " + TORCHTAP_TEST_QUANTIZATION + "/int8.py " + arguments;
  BOOST_TEST_REQUIRE(std::system(command.c_str()) == 0, command);
}

/// A file of the folder in which int8.py wrote its models.
std::string file(const std::string& name) {
  static const torchtap_test::TemporaryDirectory directory;
  static const bool made = (python("models " + directory.path()), true);
  return made ? directory / name : "";
}

Module model(const std::string& name) {
  return torch::jit::load(file(name + ".pt"));
}

at::Tensor data(const std::string& name) {
  return storage::load_value(file(name + ".data.pt")).tensor();
}

/// Runs a model on four rows at a time.
std::function<void(Module&)> on(const at::Tensor& data) {
  return [data](Module& model) {
    for (const at::Tensor& batch : data.split(4)) model.forward({batch});
  };
}

at::Tensor output(Module& model, const at::Tensor& data) {
  const torch::NoGradGuard no_gradients;
  return model.forward({data}).toTensor();
}

QuantizationOptions min_max() {
  return QuantizationOptions().dtype(Dtype::uint8).method(Method::min_max);
}

/// How often the operators of a converted model occur, "quantized::linear".
std::map<std::string, int> operators(const Module& model) {
  std::map<std::string, int> found;
  for (const auto* node : model.get_method("forward").graph()->nodes()) ++found[node->kind().toQualString()];
  return found;
}

double error(const at::Tensor& output, const at::Tensor& expected) {
  return (output - expected).norm().item<double>() / expected.norm().item<double>();
}

const std::vector<std::string> names{"sequential", "traced", "frozen", "residual", "up", "line"};

std::vector<std::pair<std::string, at::QEngine>> engines() {
  std::vector<std::pair<std::string, at::QEngine>> found;
  for (const at::QEngine engine : at::globalContext().supportedQEngines()) {
    if (engine == at::QEngine::QNNPACK) found.emplace_back("qnnpack", engine);
    if (engine == at::QEngine::ONEDNN) found.emplace_back("onednn", engine);
  }
  BOOST_TEST(!found.empty());
  return found;
}

/// Whether outputs are close to those of the model. oneDNN adds products of bytes in 16 bits where the
/// processor has no instructions for them (VNNI), and such sums overflow.
bool is_exact([[maybe_unused]] at::QEngine engine) {
#if defined(__x86_64__)
  return engine != at::QEngine::ONEDNN || __builtin_cpu_supports("avx512vnni");
#else
  return true;
#endif
}

/// The quantized engine, until the end of a test.
struct Engine {
  explicit Engine(at::QEngine engine) { at::globalContext().setQEngine(engine); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() { at::globalContext().setQEngine(before); }
  const at::QEngine before = at::globalContext().qEngine();
};

}  // namespace

BOOST_AUTO_TEST_CASE(outputs_have_the_bits_of_pythons_quantization) {
  for (const auto& [engine, id] : engines()) {
    const Engine set(id);
    for (const std::string& name : names) {
      const Module net = model(name);
      const at::Tensor x = data(name);
      Module converted = to_int8(net, on(x), min_max());
      converted.save(file(name + "." + engine + ".pt"));
      storage::save_value(file(name + "." + engine + ".output.pt"), output(converted, x));
    }
    python("check " + torchtap_test::fs::path(file("x")).parent_path().string() + " " + engine);
  }
}

BOOST_AUTO_TEST_CASE(all_methods_are_close_to_the_model) {
  for (const auto& [engine, id] : engines()) {
    if (!is_exact(id)) continue;
    const Engine set(id);
    for (const std::string name : {"sequential", "residual", "up"}) {
      // LibTorch 2.6 computes transposed convolutions wrong with oneDNN.
      if (name == "up" && id == at::QEngine::ONEDNN && TORCH_VERSION_MAJOR > 1) continue;
      Module net = model(name);
      const at::Tensor x = data(name), expected = output(net, x);
      std::set<double> errors;
      for (const Method method : {Method::min_max, Method::percentile, Method::mse, Method::entropy}) {
        for (const bool symmetric : {false, true}) {
          if (symmetric && id == at::QEngine::ONEDNN) continue;  // wrong in LibTorch 1.13 after affine models
          Module converted = to_int8(
              net, on(x), QuantizationOptions().dtype(Dtype::uint8).method(method).symmetric(symmetric));
          const double found = error(output(converted, x), expected);
          BOOST_TEST(found < 0.1, engine << ", " << name << ", " << name_of(method) << ": " << found);
          BOOST_TEST(found > 0);
          errors.insert(found);
        }
      }
      BOOST_TEST(errors.size() > 2);  // methods and symmetry matter
    }
  }
}

BOOST_AUTO_TEST_CASE(operators_are_quantized_ones) {
  const at::Tensor x = data("residual");
  auto found = operators(to_int8(model("residual"), on(x)));
  BOOST_TEST(found["aten::quantize_per_tensor"] == 1);
  BOOST_TEST(found["quantized::conv2d_relu"] == 2);  // stem and block.conv1, with their batch norms
  BOOST_TEST(found["quantized::conv2d"] == 2);       // block.conv2 and side
  BOOST_TEST(found["quantized::add_relu"] == 1);
  BOOST_TEST(found["quantized::cat"] == 1);
  BOOST_TEST(found["quantized::linear"] == 1);  // the other one is for training
  BOOST_TEST(found["aten::dequantize"] == 1);
  for (const char* const name : {"aten::conv2d", "aten::linear", "aten::batch_norm", "aten::relu"}) {
    BOOST_TEST(found[name] == 0, name);
  }
}

BOOST_AUTO_TEST_CASE(the_model_is_unchanged) {
  Module net = model("residual");
  const at::Tensor x = data("residual"), expected = output(net, x);
  std::vector<std::pair<at::Tensor, at::Tensor>> before;
  const auto state = [&] {
    std::vector<at::Tensor> all;
    for (const auto& parameter : net.parameters()) all.push_back(parameter.detach());
    for (const auto& buffer : net.buffers()) all.push_back(buffer);
    return all;
  };
  for (const at::Tensor& tensor : state()) before.emplace_back(tensor, tensor.clone());
  const std::string code = net.dump_to_str(true, true, false);
  to_int8(net, on(x));
  const auto after = state();
  BOOST_TEST_REQUIRE(after.size() == before.size());
  for (std::size_t i = 0; i < after.size(); ++i) {
    BOOST_TEST(after[i].data_ptr() == before[i].first.data_ptr());
    BOOST_TEST(at::equal(after[i], before[i].second));
  }
  BOOST_TEST(net.dump_to_str(true, true, false) == code);
  BOOST_TEST(at::equal(output(net, x), expected));
}

BOOST_AUTO_TEST_CASE(recorders_of_the_model_see_nothing) {
  const at::Tensor x = data("residual");
  const Module plain = model("residual");
  Module expected = to_int8(plain, on(x));
  const Module net = model("residual");
  recorders::ForwardOutput recorder(reductions::Count{});
  recorder.attach(net);
  Module converted = to_int8(net, on(x));
  BOOST_TEST(recorder.samples() == 0);
  recorder.detach();
  BOOST_TEST(at::equal(output(converted, x), output(expected, x)));
}

BOOST_AUTO_TEST_CASE(threads_calibrate_together) {
  const at::Tensor x = data("residual");
  const Module net = model("residual");
  Module one = to_int8(net, on(x));
  Module several = to_int8(net, [&](Module& prepared) {
    std::vector<std::thread> threads;
    for (const at::Tensor& batch : x.split(4)) {
      threads.emplace_back([&prepared, batch] {
        const torch::NoGradGuard no_gradients;
        prepared.forward({batch});
      });
    }
    for (auto& thread : threads) thread.join();
  });
  BOOST_TEST(at::equal(output(one, x), output(several, x)));
}

BOOST_AUTO_TEST_CASE(int8_refuses) {
  const at::Tensor x = data("residual");
  const Module net = model("residual");
  BOOST_CHECK_EXCEPTION(to_int8(model("residual.training"), on(x)), c10::ValueError,
                        says({"quantization::to_int8: ", "training mode", "eval()"}));
  Module partly = model("residual");
  partly.attr("block").toModule().train();
  BOOST_CHECK_EXCEPTION(to_int8(partly, on(x)), c10::ValueError, says({"module \"block\""}));
  BOOST_CHECK_EXCEPTION(to_int8(net, on(x), QuantizationOptions()), c10::ValueError,
                        says({"activations are uint8", "is int8", "dtype(Dtype::uint8)"}));
  BOOST_CHECK_EXCEPTION(to_int8(net, on(x), min_max().weights(Dtype::int4)), c10::ValueError,
                        says({"weights are int8", "is int4"}));
  BOOST_CHECK_EXCEPTION(to_int8(net, on(x), min_max().weights(std::nullopt)), c10::ValueError,
                        says({"weights are int8", "is nothing"}));
  BOOST_CHECK_EXCEPTION(to_int8(net, [](Module&) {}), c10::ValueError, says({"never called the model"}));
  BOOST_CHECK_EXCEPTION(to_int8(model("nothing"), on(data("nothing"))), c10::ValueError,
                        says({"nothing in the model", "Sequential"}));
  BOOST_CHECK_EXCEPTION(to_int8(model("branch"), on(data("branch"))), c10::ValueError,
                        says({"never ran",
                              "unknown: in the model's own forward; use data that takes every branch, or a "
                              "model of torch.jit.trace"}));
  BOOST_CHECK_EXCEPTION(to_int8(net, on(x * std::numeric_limits<double>::quiet_NaN())), c10::ValueError,
                        says({"finite"}));
  BOOST_CHECK_THROW(to_int8(net, on(at::zeros({1, 2, 20, 20}))), std::exception);
}

BOOST_AUTO_TEST_CASE(int8_refuses_without_an_engine,
                     *torchtap_test::only_where(
                         [] {
                           const auto choose = [] { const Engine none(at::QEngine::NoQEngine); };
                           return torchtap_test::error_of(choose).empty();
                         },
                         "since LibTorch 2.14 nobody can choose to have none")) {
  const Engine none(at::QEngine::NoQEngine);
  BOOST_CHECK_EXCEPTION(to_int8(model("residual"), on(data("residual"))), c10::ValueError,
                        says({"no quantized engine", "setQEngine"}));
}

/// LibTorch's passes remove what `forward` does not use, of which another method would be left.
BOOST_AUTO_TEST_CASE(methods_beside_forward_are_not_converted) {
  torch::manual_seed(4);
  const auto linear = [] {
    Module leaf("Leaf");
    leaf.register_parameter("w", torch::rand({4, 4}), false);
    leaf.define("def forward(self, x):\n    return torch.linear(x, self.w)\n");
    return leaf;
  };
  Module both("Both");
  both.register_module("a", linear());
  both.register_module("e", linear());
  both.define("def half(self, x):\n    return self.a.forward(x)\n");
  both.define("def forward(self, x):\n    return self.half(x)\n");
  both.define("def side(self, x):\n    return self.e.forward(x)\n");
  both.eval();
  const at::Tensor x = torch::rand({8, 4});
  for (const auto& [engine, id] : engines()) {
    const Engine set(id);
    Module int8 = to_int8(both, on(x));
    BOOST_TEST(operators(int8)["quantized::linear"] == 1);
    const at::Tensor expected = output(both, x), got = output(int8, x);
    BOOST_TEST(got.sizes() == expected.sizes());
    if (is_exact(id)) BOOST_TEST((got - expected).abs().max().item<double>() < 0.1);
  }
  BOOST_TEST(both.find_method("side").has_value());
}

/// Python's layers of one class share it, whether `forward` calls, reads or ignores them.
BOOST_AUTO_TEST_CASE(modules_of_one_class_need_not_all_be_called) {
  torch::manual_seed(4);
  Module leaf("Leaf");
  leaf.register_parameter("w", torch::rand({4, 4}), false);
  leaf.define("def forward(self, x):\n    return torch.linear(x, self.w)\n");
  Module net("Net");
  for (const char* const name : {"a", "read", "side", "ignored"}) net.register_module(name, leaf.deepcopy());
  net.define("def forward(self, x):\n    return self.a.forward(x) + self.read.w[0]\n");
  net.define("def by_side(self, x):\n    return self.side.forward(x)\n");
  net.eval();
  const at::Tensor x = torch::rand({8, 4});
  Module int8 = to_int8(net, on(x));
  BOOST_TEST(operators(int8)["quantized::linear"] == 1);
  BOOST_TEST(output(int8, x).sizes() == output(net, x).sizes());
}

BOOST_AUTO_TEST_CASE(what_saw_no_rows_is_named) {
  torch::manual_seed(4);
  Module leaf("Rows");
  leaf.register_parameter("w", torch::rand({4, 4}), false);
  leaf.define("def forward(self, x):\n    return torch.linear(x, self.w)\n");
  Module inner("Inner"), root("Root");
  inner.register_module("leaf", leaf);
  inner.define("def forward(self, x):\n    return self.leaf.forward(x[:0])\n");
  root.register_module("inner", inner);
  root.define("def forward(self, x):\n    return self.inner.forward(x)\n");
  root.eval();
  BOOST_CHECK_EXCEPTION(to_int8(root, on(torch::rand({8, 4}))), c10::ValueError,
                        says({"or on no rows", "inner"}));
}

/// LibTorch's passes would put `relu_` behind what comes after it.
BOOST_AUTO_TEST_CASE(changes_in_place_whose_results_are_not_used_keep_their_order) {
  torch::manual_seed(4);
  Module net("InPlace");
  net.register_parameter("w", torch::rand({4, 4}) - 0.5, false);
  net.register_parameter("v", torch::rand({4, 4}) - 0.5, false);
  net.define(
      "def forward(self, x):\n    y = torch.linear(x, self.w)\n    y.relu_()\n    y.add_(1)\n    y.mul_(2)\n"
      "    return torch.linear(y, self.v)\n");
  net.eval();
  const at::Tensor x = torch::rand({64, 4}) - 0.5;
  Module int8 = to_int8(net, on(x));
  auto found = operators(int8);
  BOOST_TEST(found["quantized::linear_relu"] == 1);  // in the right order, it is one operator
  BOOST_TEST(found["quantized::linear"] == 1);
  BOOST_TEST(error(output(int8, x), output(net, x)) < 0.05);
}

/// What was written is what was converted: tuples whose parts are real, in tuples, lists and branches.
BOOST_AUTO_TEST_CASE(several_outputs_can_be_loaded) {
  torch::manual_seed(4);
  const at::Tensor x = torch::rand({8, 4}) - 0.5;
  for (const std::string body : {
           "return self.l.forward(x), self.k.forward(x)",
           "return (self.l.forward(x),)",
           "y = self.l.forward(x)\n    return y, y",
           "return self.l.forward(x), (self.k.forward(x), self.l.forward(x + 1))",
           "return self.l.forward(x), x.argmax(1), 3",
           "return [self.l.forward(x), self.k.forward(x)]",
           "return [self.l.forward(x), self.k.forward(x)], self.l.forward(x)",
           "return {'l': self.l.forward(x), 'k': self.k.forward(x)}",
           "if bool(x.sum() > 0):\n        return self.l.forward(x), self.k.forward(x)\n    return "
           "self.k.forward(x), self.l.forward(x)",
           "a, b = self.pair(x)\n    return self.k.forward(a), b",
       }) {
    Module net("Outputs");
    for (const char* const name : {"l", "k"}) {
      Module leaf("Leaf");
      leaf.register_parameter("w", torch::rand({4, 4}), false);
      leaf.define("def forward(self, x):\n    return torch.linear(x, self.w)\n");
      net.register_module(name, leaf);
    }
    net.define("def pair(self, x):\n    return self.l.forward(x), self.k.forward(x)\n");
    net.define("def forward(self, x):\n    " + body + "\n");
    net.eval();
    for (const auto& [engine, id] : engines()) {
      const Engine set(id);
      BOOST_TEST_CONTEXT(engine << ": " << body) {
        Module int8 = to_int8(net, [&](Module& prepared) {
          for (const double sign : {-1., 1.}) prepared.forward({x * sign});
        });
        std::stringstream file;
        int8.save(file);
        const auto tensors = [&](Module& model) {
          const torch::NoGradGuard no_gradients;
          std::vector<at::Tensor> all;
          model.forward({x}).visit([&](const c10::IValue& part) {
            if (part.isTensor()) all.push_back(part.toTensor());
            return false;
          });
          return all;
        };
        Module loaded = torch::jit::load(file);
        BOOST_TEST(loaded.forward({x}).type()->isSubtypeOf(*int8.forward({x}).type()));
        const auto expected = tensors(net), got = tensors(int8), read = tensors(loaded);
        BOOST_TEST_REQUIRE(got.size() == expected.size());
        BOOST_TEST_REQUIRE(read.size() == expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
          BOOST_TEST(at::equal(read[i], got[i]));
          BOOST_TEST(read[i].scalar_type() == expected[i].scalar_type());
          if (is_exact(id) && expected[i].is_floating_point()) BOOST_TEST(error(read[i], expected[i]) < 0.1);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_branch_that_ran_is_converted) {
  const Module net = model("branch");
  const at::Tensor x = data("branch");
  Module float_model = net;
  for (const auto& [engine, id] : engines()) {
    if (!is_exact(id)) continue;
    const Engine set(id);
    Module converted = to_int8(net, [&](Module& prepared) {
      for (const double sign : {-1., 1.}) prepared.forward({x + 1e6 * sign});
    });
    for (const double sign : {-1., 1.}) {
      const at::Tensor input = x + 1e6 * sign;
      BOOST_TEST_CONTEXT(engine)
      BOOST_TEST(error(output(converted, input), output(float_model, input)) < 0.05);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
