// 100 NaN, each made by another module in another forward, are noticed, kept, replayed and traced back to it.
#include <boost/test/unit_test.hpp>
#include <torch/csrc/jit/api/module.h>
#include <torch/torch.h>

#include <algorithm>
#include <random>
#include <string>

#include <torchtap/views/monitor/incident.hpp>
#include <torchtap/views/monitor/monitor.hpp>
#include <torchtap/views/report/report.hpp>

#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(monitor_injections)

namespace monitor = torchtap::views::monitor;
namespace report = torchtap::views::report;

namespace {

constexpr int layers = 6, forwards = 4;

/// Layer k adds number k of `shift` before a logarithm: a negative one makes NaN of finite values there.
torch::jit::Module chain() {
  torch::jit::Module root("Chain");
  std::string body = "def forward(self, x, shift):\n";
  for (int i = 0; i < layers; ++i) {
    torch::jit::Module layer("Layer");
    layer.register_parameter("weight", at::randn({8, 8}) / 3, false);
    layer.define(
        "def forward(self, x, shift):\n  return torch.log(torch.abs(torch.mm(x, self.weight)) + shift)\n");
    const std::string name = "layer" + std::to_string(i);
    root.register_module(name, layer);
    body += "  x = self." + name + ".forward(x, shift[" + std::to_string(i) + "])\n";
  }
  root.define(body + "  return x\n");
  root.eval();
  return root;
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_of_100_is_noticed_replayed_and_traced_to_its_module) {
  torch::manual_seed(0);
  std::mt19937 random(0);
  for (int injection = 0; injection < 100; ++injection) {
    const torchtap_test::TemporaryDirectory folder;
    torch::jit::Module model = chain();
    const int layer = static_cast<int>(random() % layers), bad = static_cast<int>(random() % forwards);
    BOOST_TEST_CONTEXT("layer " << layer << ", forward " << bad) {
      std::string incident;
      {
        const torch::NoGradGuard no_grad;
        monitor::Monitor watch(model, "", monitor::MonitorOptions().incidents(folder.path()).ring(1 << 20));
        for (int i = 0; i < forwards; ++i) {
          at::Tensor shift = at::ones({layers});
          if (i == bad) shift[layer] = -1e3;
          model.forward({at::randn({4, 8}), shift});
          watch.flush();
          const auto alarms = watch.alarms();
          BOOST_REQUIRE(alarms.size() == (i < bad ? 0U : 1U));
          if (i != bad) continue;
          BOOST_TEST(alarms.front().finding.rule == "nonfinite");
          BOOST_TEST(alarms.front().forward == bad);
          incident = alarms.front().incident;
        }
      }
      const auto replayed = monitor::replay(incident, model);
      BOOST_TEST(replayed.size() == static_cast<std::size_t>(bad) + 1);
      BOOST_TEST(
          std::all_of(replayed.begin(), replayed.end(), [](const auto& one) { return one.same_bits; }));
      BOOST_TEST(replayed.back().nan > 0);

      // A copy, as in another process: the monitor's calls have warmed the original up, and newer versions of
      // LibTorch keep the kernels that they fused then.
      torch::jit::Module copy = model.clone();
      report::Report search(copy, report::ReportOptions().memory(false).work(false));
      monitor::ReplayOptions options;
      options.from = bad;
      options.to = bad;
      options.around_last = [&](const std::function<void()>& run) {
        const auto repeat = search.record();
        run();
      };
      monitor::replay(incident, copy, options);
      const auto findings = search.results().findings;
      const auto producer = std::find_if(findings.begin(), findings.end(),
                                         [](const auto& one) { return one.role == report::Role::producer; });
      BOOST_REQUIRE(producer != findings.end());
      BOOST_TEST(producer->module == "layer" + std::to_string(layer));
      BOOST_TEST(producer->function == "aten::log");
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
