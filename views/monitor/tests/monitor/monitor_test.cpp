// Monitors of running models: windows, alarms, drift, metrics, what fails, threads, processes.
#include <boost/test/unit_test.hpp>
#include <fashion_mnist/idx.hpp>
#include <sys/wait.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include <torchtap/hooks/nn.hpp>
#include <torchtap/json/json.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/views/monitor/incident.hpp>
#include <torchtap/views/monitor/monitor.hpp>
#include <torchtap/views/monitor/reference.hpp>

#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(monitor_runs)

namespace tap = torchtap;
namespace fs = std::filesystem;
namespace sel = tap::selectors;
using tap::views::monitor::Alarm;
using tap::views::monitor::Monitor;
using tap::views::monitor::MonitorOptions;
using torchtap_test::contains;
using torchtap_test::says;
using Folder = torchtap_test::TemporaryDirectory;

namespace {

const std::string fashion_mnist = "/usr/share/datasets/fashion-mnist";

/// Every forward is sampled, and windows are judged in the forward that ends them.
MonitorOptions at_once(std::int64_t rows) {
  return MonitorOptions().cost(1).thread(false).window(rows);
}

/// The value of a sample in Prometheus' text, such as `torchtap_forwards_total{model="model"}`; NaN if there
/// is none.
double metric(const std::string& text, const std::string& sample) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(sample + " ", 0) == 0) return std::stod(line.substr(sample.size() + 1));
  }
  return std::nan("");
}

double metric_of_model(const std::string& text, const std::string& name) {
  return metric(text, name + "{model=\"model\"}");
}

std::string read(const std::string& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<tap::json::Json> lines_of(const std::string& file) {
  std::vector<tap::json::Json> all;
  std::istringstream stream(read(file));
  for (std::string line; std::getline(stream, line);) {
    all.push_back(tap::json::parse(line));
    BOOST_TEST(all.back()["format"] == 1);
  }
  return all;
}

bool has_alarm(const std::vector<Alarm>& alarms, const std::string& rule, const std::string& path) {
  return std::any_of(alarms.begin(), alarms.end(), [&](const Alarm& alarm) {
    return alarm.finding.rule == rule && alarm.finding.path == path;
  });
}

torch::nn::Sequential mlp() {
  torch::manual_seed(5);
  return torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::ReLU(), torch::nn::Linear(16, 3));
}

torch::nn::Sequential cnn() {
  torch::manual_seed(5);
  return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).stride(2)),
                               torch::nn::ReLU(),
                               torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).stride(2)),
                               torch::nn::ReLU(), torch::nn::Flatten(), torch::nn::Linear(288, 10));
}

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(torch::nn::Sequential layers) : inner(register_module("inner", std::move(layers))) {}
  at::Tensor forward(const at::Tensor& x) { return inner->forward(x); }
  torch::nn::Sequential inner;
};
TORCHTAP_MODULE(Block);

boost::test_tools::assertion_result has_fashion_mnist(boost::unit_test::test_unit_id) {
  boost::test_tools::assertion_result result(fs::exists(fashion_mnist));
  result.message() << "Debian's package dataset-fashion-mnist is not installed";
  return result;
}

/// Runs the images in batches.
void run(torch::nn::Sequential& model, const at::Tensor& images, std::int64_t batch = 32) {
  const torch::NoGradGuard no_grad;
  for (std::int64_t i = 0; i + batch <= images.size(0); i += batch) {
    model->forward(images.slice(0, i, i + batch));
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(drift_alarms_for_other_data_and_not_for_the_same,
                     *boost::unit_test::precondition(has_fashion_mnist)) {
  const Folder folder;
  const Dataset data = read_test_set(fashion_mnist, 10'000);
  torch::nn::Sequential model = cnn();
  const std::string reference = folder / "reference";
  {
    Monitor learns(*model, "", MonitorOptions().learn(reference));
    run(model, data.images.slice(0, 0, 6000), 20);
    learns.flush();
    BOOST_TEST(tap::views::monitor::Reference::load(reference).tensors().size() == 8U);
    run(model, data.images.slice(0, 6000, 6400), 20);
  }
  const auto learned = tap::storage::load(reference);
  BOOST_TEST(learned.at(0).samples() == 320);  // with those after flush
  BOOST_TEST(learned.at(0).reduction() == "Blocks(512)");
  BOOST_TEST(!learned.at(0).state().empty());

  std::vector<Alarm> alarms;
  Monitor watch(*model, reference, at_once(256).incidents(folder / "incidents"));
  watch.on_alarm([&](const Alarm& alarm) { alarms.push_back(alarm); });
  run(model, data.images.slice(0, 6400, 10'000));
  BOOST_TEST(metric_of_model(watch.metrics(), "torchtap_windows_total") == 14);
  BOOST_TEST(metric_of_model(watch.metrics(), "torchtap_reference_blocks") == 320);
  BOOST_TEST(alarms.empty());
  for (const Alarm& alarm : alarms) BOOST_TEST_MESSAGE(alarm);

  torch::manual_seed(1);
  const at::Tensor images = data.images.slice(0, 6400, 6912);
  run(model, images + 0.3 * at::randn_like(images));
  BOOST_TEST(has_alarm(watch.alarms(), "drift", ""));
  BOOST_TEST(has_alarm(watch.alarms(), "drift", "0"));
  std::size_t raised = alarms.size();
  for (const Alarm& alarm : alarms) {
    BOOST_TEST(alarm.raised);
    BOOST_TEST(alarm.finding.rule == "drift");
    BOOST_REQUIRE(alarm.drift.has_value());
    BOOST_TEST(alarm.drift->drifted);
    BOOST_TEST(alarm.drift->rows == 256);
    BOOST_TEST(alarm.window >= 14);
  }
  const std::string text = watch.metrics();
  BOOST_TEST(metric(text, "torchtap_alarm{model=\"model\",module=\"0\",rule=\"drift\"}") == 1);
  BOOST_TEST(metric(text, "torchtap_drift_t2_limit_ratio{model=\"model\",module=\"0\",tensor=\"output\"}") >
             1);
  BOOST_TEST(metric(text, "torchtap_drift_psi{model=\"model\",module=\"0\",tensor=\"output\"}") > 0.02);
  BOOST_TEST(fs::exists(alarms.front().incident + "/incident.json"));
  BOOST_TEST(tap::views::monitor::Reference::load(alarms.front().incident + "/statistics").paths().size() ==
             7U);

  // As before: cleared after two windows, by no alarm in between.
  run(model, data.images.slice(0, 6400, 6400 + 512));
  run(model, data.images.slice(0, 6912, 6912 + 512));
  BOOST_TEST(watch.alarms().empty());
  BOOST_TEST(alarms.size() == 2 * raised);
  for (; raised < alarms.size(); ++raised) BOOST_TEST(!alarms[raised].raised);
  BOOST_TEST(metric(watch.metrics(), "torchtap_alarm{model=\"model\",module=\"0\",rule=\"drift\"}") == 0);
  BOOST_TEST(lines_of(folder / "incidents/alarms.jsonl").size() == alarms.size());
}

BOOST_AUTO_TEST_CASE(a_rule_that_holds_on_and_off_raises_once) {
  torch::nn::Sequential model(torch::nn::ReLU{}, torch::nn::Linear(4, 2));
  int raised = 0, cleared = 0;
  Monitor watch(model, "", at_once(8));
  watch.on_alarm([&](const Alarm& alarm) {
    if (alarm.finding.rule != "dead_relu") return;
    BOOST_TEST(alarm.finding.path == "0");
    BOOST_TEST(alarm.finding.value == 1);
    ++(alarm.raised ? raised : cleared);
  });
  const torch::NoGradGuard no_grad;
  const auto dead = [&](bool is) { model->forward(at::full({8, 4}, is ? -1.0 : 1.0)); };
  dead(false);
  BOOST_TEST(raised == 0);
  for (int i = 0; i < 4; ++i) {
    dead(true);
    dead(false);
  }
  BOOST_TEST(raised == 1);
  BOOST_TEST(cleared == 0);
  dead(false);
  BOOST_TEST(cleared == 1);
  BOOST_TEST(!has_alarm(watch.alarms(), "dead_relu", "0"));
  dead(true);
  BOOST_TEST(raised == 2);
}

BOOST_AUTO_TEST_CASE(a_window_ends_by_its_rows_or_by_time_with_enough_of_them) {
  torch::nn::Sequential model = mlp();
  const auto windows = [](const Monitor& watch) {
    return metric_of_model(watch.metrics(), "torchtap_windows_total");
  };
  {
    Monitor watch(model, "", at_once(10));
    for (int i = 0; i < 9; ++i) model->forward(at::randn({4, 6}));
    BOOST_TEST(windows(watch) == 3);
    BOOST_TEST(metric(watch.metrics(), "torchtap_values_total{model=\"model\",module=\"1\"}") == 36 * 16);
  }
  Monitor watch(model, "", at_once(1'000'000).window_seconds(1e-9));
  for (int i = 0; i < 21; ++i) model->forward(at::randn({3, 6}));
  BOOST_TEST(windows(watch) == 0);
  model->forward(at::randn({3, 6}));
  BOOST_TEST(windows(watch) == 1);
  BOOST_TEST(metric(watch.metrics(), "torchtap_values_total{model=\"model\",module=\"1\"}") == 66 * 16);
}

BOOST_AUTO_TEST_CASE(no_element_is_lost_between_windows_of_eight_threads) {
  for (const bool thread : {true, false}) {
    const Folder folder;
    torch::nn::Sequential model = mlp();
    std::atomic<int> not_finite{0};
    constexpr int kForwards = 150;
    {
      Monitor watch(model, "",
                    MonitorOptions().cost(1).window(64).thread(thread).metrics_file(folder / "metrics.prom"));
      std::vector<std::thread> threads;
      for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&] {
          const torch::NoGradGuard no_grad;
          for (int i = 0; i < kForwards; ++i) {
            if (!model->forward(at::randn({3, 6})).isfinite().all().item<bool>()) ++not_finite;
          }
        });
      }
      for (auto& one : threads) one.join();
      watch.flush();
      BOOST_TEST(metric_of_model(watch.metrics(), "torchtap_windows_total") > 1);
    }
    const std::string text = read(folder / "metrics.prom");  // written at the end of the last window
    BOOST_TEST(metric_of_model(text, "torchtap_forwards_total") == 8 * kForwards);
    BOOST_TEST(metric_of_model(text, "torchtap_forwards_sampled_total") == 8 * kForwards);
    for (const auto& [module, width] : {std::pair("", 3), {"0", 16}, {"1", 16}, {"2", 3}}) {
      BOOST_TEST(metric(text, std::string("torchtap_values_total{model=\"model\",module=\"") + module +
                                  "\"}") == 8 * kForwards * 3 * width);
    }
    BOOST_TEST(metric_of_model(text, "torchtap_monitor_errors_total") == 0);
    BOOST_TEST(not_finite == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_nan_is_found_within_its_forward_and_written_with_its_input) {
  for (const bool thread : {true, false}) {
    const Folder folder;
    torch::nn::Sequential model = mlp();
    // So little may be taken that hardly any forward is sampled.
    Monitor watch(model, "", MonitorOptions().cost(1e-9).thread(thread).incidents(folder / "incidents"));
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < 20; ++i) model->forward(at::randn({2, 6}));
    at::Tensor bad = at::randn({2, 6});
    bad[1][3] = std::nan("");
    model->forward(bad);
    watch.flush();
    BOOST_TEST(metric_of_model(watch.metrics(), "torchtap_forwards_sampled_total") < 20);
    const auto alarms = watch.alarms();
    BOOST_REQUIRE(alarms.size() == 1U);
    BOOST_TEST(alarms[0].finding.rule == "nonfinite");
    BOOST_TEST(alarms[0].finding.path == "");
    BOOST_TEST(alarms[0].finding.value == 3);
    BOOST_TEST(alarms[0].finding.sentence == "3 NaN of 6 values");
    BOOST_TEST(alarms[0].forward == 20);
    BOOST_TEST(alarms[0].window == -1);
    BOOST_TEST(metric(watch.metrics(), "torchtap_nonfinite_values_total{model=\"model\",module=\"\"}") == 3);
    const auto replayed =
        tap::views::monitor::replay(alarms[0].incident, static_cast<torch::nn::Module&>(*model),
                                    [&](const std::vector<at::Tensor>& inputs) {
                                      return std::vector<at::Tensor>{model->forward(inputs.at(0))};
                                    });
    BOOST_REQUIRE(replayed.size() == 21U);
    BOOST_TEST(replayed.back().forward == 20);
    BOOST_TEST(replayed.back().nan == 3);
    for (const auto& one : replayed) BOOST_TEST(one.same_bits);
    // Further ones are the same alarm.
    const double before =
        metric(watch.metrics(), "torchtap_alarms_total{model=\"model\",rule=\"nonfinite\"}");
    model->forward(bad);
    watch.flush();
    BOOST_TEST(metric(watch.metrics(), "torchtap_alarms_total{model=\"model\",rule=\"nonfinite\"}") ==
               before);
  }
}

BOOST_AUTO_TEST_CASE(a_forward_that_throws_is_noticed_by_the_next_one) {
  const Folder folder;
  bool throws = false;
  torch::nn::Sequential model(torch::nn::Linear(6, 3), torch::nn::Functional([&](const at::Tensor& x) {
                                if (throws) throw std::runtime_error("in the middle");
                                return x;
                              }));
  Monitor watch(model, "", at_once(1000).incidents(folder / "incidents"));
  model->forward(at::randn({2, 6}));
  throws = true;
  BOOST_CHECK_THROW(model->forward(at::randn({2, 6})), std::runtime_error);
  throws = false;
  BOOST_TEST(watch.alarms().empty());
  model->forward(at::randn({2, 6}));
  const auto alarms = watch.alarms();
  BOOST_REQUIRE(alarms.size() == 1U);
  BOOST_TEST(alarms[0].finding.rule == "forward_failed");
  BOOST_TEST(alarms[0].forward == 1);
  BOOST_TEST(metric_of_model(watch.metrics(), "torchtap_forwards_failed_total") == 1);
  BOOST_TEST(metric_of_model(watch.metrics(), "torchtap_forwards_total") == 3);
  BOOST_TEST(fs::exists(alarms[0].incident + "/incident.json"));
}

BOOST_AUTO_TEST_CASE(a_forward_that_throws_is_noticed_though_none_follows) {
  torch::nn::Sequential model(torch::nn::Linear(6, 3), torch::nn::Functional([&](const at::Tensor& x) {
                                throw std::runtime_error("in the middle");
                                return x;
                              }));
  for (const bool thread : {true, false}) {
    Monitor watch(model, "", at_once(1000).thread(thread));
    const auto fails = [&] { BOOST_CHECK_THROW(model->forward(at::randn({2, 6})), std::runtime_error); };
    for (int i = 0; i < 5; ++i) std::thread([&] { fails(); }).join();  // as a server with a thread a request
    watch.flush();
    BOOST_TEST(metric_of_model(watch.metrics(), "torchtap_forwards_failed_total") == 5);
    BOOST_TEST(has_alarm(watch.alarms(), "forward_failed", ""));
  }
}

BOOST_AUTO_TEST_CASE(a_program_that_ends_at_once_is_told_of_drift) {
  const Folder folder;
  torch::nn::Sequential model = mlp();
  const torch::NoGradGuard no_grad;
  {
    Monitor learns(model, "", MonitorOptions().learn(folder / "reference"));
    for (int i = 0; i < 120; ++i) model->forward(at::randn({32, 6}));
  }
  std::vector<Alarm> alarms;
  {
    Monitor watch(model, folder / "reference", MonitorOptions().cost(1));
    watch.on_alarm([&](const Alarm& alarm) { alarms.push_back(alarm); });
    for (int i = 0; i < 32; ++i) model->forward(at::randn({32, 6}) * 9 + 3);
  }
  std::set<std::string> paths;
  for (const Alarm& alarm : alarms) {
    BOOST_TEST(alarm.finding.rule == "drift");
    BOOST_TEST(alarm.drift->rows == 256);  // though the tests were made meanwhile
    paths.insert(alarm.finding.path);
  }
  BOOST_TEST((paths == std::set<std::string>{"", "0", "1", "2"}));
  BOOST_TEST(alarms.size() == 5U);  // with the input
}

BOOST_AUTO_TEST_CASE(a_nan_in_training_is_replayed_with_the_parameters_it_had) {
  const Folder folder;
  torch::nn::Sequential model = mlp();
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.1));
  std::string incident;
  {
    Monitor watch(model, "", MonitorOptions().incidents(folder / "incidents"));
    for (int i = 0; i < 40; ++i) {
      at::Tensor x = at::randn({8, 6});
      if (i == 30) x[3][2] = std::nan("");
      sgd.zero_grad();
      at::Tensor loss = model->forward(x).square();
      loss = i == 30 ? loss.nan_to_num().sum() : loss.sum();
      loss.backward();
      for (at::Tensor& parameter : model->parameters()) parameter.mutable_grad().nan_to_num_();
      sgd.step();
    }
    watch.flush();
    for (const Alarm& alarm : watch.alarms())
      if (alarm.finding.rule == "nonfinite" && alarm.finding.path.empty()) incident = alarm.incident;
  }
  BOOST_REQUIRE(!incident.empty());
  torch::nn::Sequential other = mlp();
  other->train();
  bool seen = false;
  for (const auto& forward :
       tap::views::monitor::replay(incident, *other, [&](const std::vector<at::Tensor>& inputs) {
         return std::vector<at::Tensor>{other->forward(inputs.at(0))};
       })) {
    if (forward.forward != 30) continue;
    seen = true;
    BOOST_TEST(forward.nan > 0);
    BOOST_TEST(forward.same_bits);
  }
  BOOST_TEST(seen);
}

BOOST_AUTO_TEST_CASE(lines_that_could_not_be_written_are_told_once_they_can) {
  const Folder folder;
  const std::string incidents = folder / "incidents", file = incidents + "/alarms.jsonl";
  torch::nn::Sequential model(torch::nn::ReLU{});
  Monitor watch(model, "", at_once(4).incidents(incidents));
  fs::create_directory(file);  // as good as a full disk
  model->forward(at::full({4, 4}, std::nan("")));
  const double lost = metric_of_model(watch.metrics(), "torchtap_alarm_lines_lost_total");
  BOOST_TEST(lost >= 1);
  fs::remove(file);
  std::ofstream(file) << "{\"format\":1,\"torn";  // by a killed process
  watch.on_alarm([](const Alarm&) { throw std::runtime_error("a note"); });
  model->forward(at::full({4, 4}, -1.0));
  watch.flush();
  std::vector<std::string> lines;
  std::istringstream stream(read(file));
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  BOOST_REQUIRE(lines.size() >= 3U);
  BOOST_TEST(lines[0] == "{\"format\":1,\"torn");
  bool told = false;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    BOOST_TEST(tap::json::parse_object(lines[i]).is_object());
    told = told || contains(lines[i], "before could not be written");
  }
  BOOST_TEST(told);
}

BOOST_AUTO_TEST_CASE(a_rule_of_the_program_that_throws_turns_no_other_off) {
  const Folder folder;
  torch::nn::Sequential model(torch::nn::ReLU{});
  tap::rules::Rules rules;
  rules.add("mine", [](const tap::rules::Facts&) -> std::optional<std::string> {
    throw std::runtime_error("no such column");
  });
  Monitor watch(model, "", at_once(4).rules(rules).incidents(folder / "incidents"));
  model->forward(at::full({4, 4}, -1.0));
  BOOST_TEST(has_alarm(watch.alarms(), "dead_relu", "0"));
  BOOST_TEST(contains(read(folder / "incidents/alarms.jsonl"), "no such column"));
}

BOOST_AUTO_TEST_CASE(what_a_callback_throws_does_not_reach_the_model) {
  const Folder folder;
  torch::nn::Sequential model(torch::nn::ReLU{});
  for (const bool thread : {true, false}) {
    const std::string incidents = folder / (thread ? "thread" : "forward");
    {
      Monitor watch(model, "", at_once(4).thread(thread).incidents(incidents));
      std::atomic<int> calls{0};
      watch.on_alarm([&](const Alarm&) {
        ++calls;
        watch.flush();  // which does nothing here
        watch.metrics();
        model->forward(at::ones({4, 4}));  // a forward in a callback is one like any other
        throw std::runtime_error("no such pager");
      });
      model->forward(at::full({4, 4}, -1.0));
      watch.flush();
      BOOST_TEST(calls > 0);
    }
    bool noted = false;
    for (const auto& line : lines_of(incidents + "/alarms.jsonl")) {
      noted = noted || (line.contains("note") && contains(line["note"].get<std::string>(), "no such pager"));
    }
    BOOST_TEST(noted);
  }
}

BOOST_AUTO_TEST_CASE(incidents_are_written_when_asked_for) {
  const Folder folder;
  torch::nn::Sequential model = mlp();
  Monitor watch(model, "", at_once(1000).incidents(folder / "incidents"));
  model->forward(at::randn({2, 6}));
  const std::string captured = watch.capture("by hand");
  BOOST_TEST(fs::exists(captured + "/incident.json"));
  const auto count = [&] { return metric_of_model(watch.metrics(), "torchtap_incidents_total"); };
  BOOST_TEST(count() == 1);
  watch.request_capture();
  BOOST_TEST(count() == 1);
  model->forward(at::randn({2, 6}));
  BOOST_TEST(count() == 2);
  model->forward(at::randn({2, 6}));
  BOOST_TEST(count() == 2);
  Monitor without(model, "", at_once(1000));
  BOOST_CHECK_EXCEPTION(without.capture("x"), c10::Error, says({"capture", "incidents"}));
}

/// What the monitor does changes no bit, in any mode.
BOOST_AUTO_TEST_CASE(outputs_and_gradients_keep_their_bits_and_no_trace_is_left) {
  const Folder folder;
  const auto train = [&](bool watched, std::vector<at::Tensor>& results) {
    torch::nn::Sequential model = mlp();
    torch::manual_seed(9);
    const auto owners = [&] { return model->ptr(0).use_count(); };
    const auto before = owners();
    std::unique_ptr<Monitor> watch;
    if (watched) {
      watch = std::make_unique<Monitor>(model, "",
                                        at_once(16)
                                            .gradients(true)
                                            .parameters(true)
                                            .incidents(folder / "incidents")
                                            .tensorboard(folder / "runs"));
    }
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    for (int i = 0; i < 20; ++i) {
      at::Tensor x = at::randn({8, 6});
      x.requires_grad_(true);
      const at::Tensor y = model->forward(at::dropout(x, 0.3, true));
      optimizer.zero_grad();
      y.square().mean().backward();
      results.push_back(y.detach());
      results.push_back(x.grad());
      for (const auto& parameter : model->parameters()) results.push_back(parameter.grad().clone());
      optimizer.step();
    }
    for (const auto& parameter : model->parameters()) results.push_back(parameter.detach());
    {
      const c10::InferenceMode inference;
      results.push_back(model->forward(at::randn({8, 6})).clone());
    }
    if (!watched) return;
    const std::string text = watch->metrics();
    BOOST_TEST(metric_of_model(text, "torchtap_monitor_errors_total") == 0);
    BOOST_TEST(metric_of_model(text, "torchtap_windows_total") == 10);
    watch.reset();
    // Nothing is attached any more: a forward is none of the monitor's.
    BOOST_TEST(owners() == before);
    model->forward(at::full({8, 6}, std::nan("")));
    BOOST_TEST(!fs::exists(folder / "incidents/alarms.jsonl"));
  };
  std::vector<at::Tensor> with, without;
  train(true, with);
  train(false, without);
  BOOST_REQUIRE(with.size() == without.size());
  for (std::size_t i = 0; i < with.size(); ++i) BOOST_TEST(with[i].equal(without[i]));
}

BOOST_AUTO_TEST_CASE(gradients_and_parameters_are_judged_in_training) {
  torch::nn::Sequential model = mlp();
  const auto train = [&](Monitor& watch, double loss, double rate, int steps) {
    torch::optim::SGD optimizer(model->parameters(), rate);
    for (int i = 0; i < steps; ++i) {
      optimizer.zero_grad();
      (model->forward(at::randn({8, 6})).square().sum() * loss).backward();
      optimizer.step();
    }
    watch.flush();
    return watch.alarms();
  };
  {
    Monitor watch(model, "", at_once(16).gradients(true));
    BOOST_TEST(has_alarm(train(watch, 1e6, 0, 4), "exploding_gradient", "2"));
  }
  {
    Monitor watch(model, "", at_once(16).gradients(true).loss_scale(1e6));
    const auto alarms = train(watch, 1e6, 0, 4);
    BOOST_TEST(!has_alarm(alarms, "exploding_gradient", "2"));
    BOOST_TEST(!has_alarm(alarms, "vanishing_gradient", "2"));
  }
  {
    Monitor watch(model, "", at_once(16).gradients(true));
    BOOST_TEST(has_alarm(train(watch, 1e-9, 0, 4), "vanishing_gradient", "2"));
  }
  {
    Monitor watch(model, "", at_once(16).parameters(true));
    BOOST_TEST(!has_alarm(train(watch, 1, 1e-4, 10), "update_ratio", "0"));
  }
  {
    Monitor watch(model, "", at_once(16).parameters(true));
    for (int i = 0; i < 10; ++i) {
      model->forward(at::randn({8, 6}));
      const torch::NoGradGuard no_grad;
      model->parameters()[0].mul_(-1);
    }
    BOOST_TEST(has_alarm(watch.alarms(), "update_ratio", "0"));
    BOOST_TEST(has_alarm(watch.alarms(), "unchanged_tensor", "2"));
    for (const Alarm& alarm : watch.alarms()) {
      BOOST_TEST((alarm.finding.rule != "unchanged_tensor" || alarm.finding.path != "0" ||
                  alarm.finding.slot == 1));  // the bias
    }
  }
}

BOOST_AUTO_TEST_CASE(modules_that_never_ran_and_rules_of_the_program_are_told) {
  torch::jit::Module script("Script");
  torch::jit::Module inner("Inner");
  inner.define("def forward(self, x):\n  return x.relu()\n");
  script.register_module("used", inner);
  torch::jit::Module other("Other");
  other.define("def forward(self, x):\n  return x + 1\n");
  script.register_module("unused", other);
  script.define(
      "def forward(self, x, deep: bool = False):\n  if deep:\n    x = self.unused.forward(x)\n  return "
      "self.used.forward(x) "
      "* 2\n");
  tap::rules::Rules rules;
  rules.add("large", [](const tap::rules::Facts& facts) -> std::optional<std::string> {
    if (facts.max.value_or(0) > 100) return "it is large";
    return std::nullopt;
  });
  const Folder folder;
  Monitor watch(script, "", at_once(4).rules(rules).incidents(folder / "incidents"));
  script.forward({at::ones({4, 2})});
  BOOST_TEST(has_alarm(watch.alarms(), "never_ran", "unused"));
  BOOST_TEST(!has_alarm(watch.alarms(), "never_ran", "used"));
  BOOST_TEST(!has_alarm(watch.alarms(), "large", ""));
  script.forward({at::full({4, 2}, 60.0)});
  BOOST_TEST(has_alarm(watch.alarms(), "large", ""));
  BOOST_TEST(!has_alarm(watch.alarms(), "large", "used"));
  script.forward({at::ones({4, 2}), true});
  script.forward({at::ones({4, 2})});
  BOOST_TEST(!has_alarm(watch.alarms(), "never_ran", "unused"));
  // A NaN in TorchScript, and a forward that fails there.
  script.forward({at::full({4, 2}, std::nan(""))});
  BOOST_TEST(has_alarm(watch.alarms(), "nonfinite", ""));
  BOOST_TEST(has_alarm(watch.alarms(), "nonfinite", "used"));
  BOOST_TEST(metric_of_model(watch.metrics(), "torchtap_monitor_errors_total") == 0);
}

BOOST_AUTO_TEST_CASE(what_may_have_run_unseen_is_not_said_never_to_have_run) {
  torch::nn::TransformerEncoderLayer layer(torch::nn::TransformerEncoderLayerOptions(8, 2));
  torch::nn::Sequential model(layer);
  Monitor watch(model, "", at_once(4));
  model->forward(at::randn({4, 2, 8}));  // attention reads out_proj's parameters without a call
  for (const Alarm& alarm : watch.alarms()) BOOST_TEST(alarm.finding.rule != "never_ran");
  // A module that ran, and whose output cannot be counted.
  torch::nn::Sequential sparse(torch::nn::Functional([](const at::Tensor& x) { return x.to_sparse(); }),
                               torch::nn::Functional([](const at::Tensor& x) { return x.to_dense(); }));
  Monitor second(sparse, "", at_once(4));
  sparse->forward(at::randn({4, 2}));
  for (const Alarm& alarm : second.alarms()) BOOST_TEST(alarm.finding.rule != "never_ran");
}

BOOST_AUTO_TEST_CASE(the_monitor_goes_while_threads_run_the_model_and_wait) {
  for (const bool thread : {true, false}) {
    for (int i = 0; i < 10; ++i) {
      torch::nn::Sequential model = mlp();
      std::atomic<bool> stops{false};
      std::atomic<int> forwards{0};
      std::vector<std::thread> threads;
      auto watch = std::make_unique<Monitor>(model, "", at_once(4).thread(thread));
      std::atomic<int> calls{0};
      watch->on_alarm([&](const Alarm&) { ++calls; });
      for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
          const torch::NoGradGuard no_grad;
          while (!stops) {
            model->forward(at::full({2, 6}, -1.0));
            ++forwards;
          }
        });
      }
      while (forwards < 20) std::this_thread::yield();
      watch.reset();
      const int before = calls;
      const int then = forwards;
      while (forwards < then + 20) std::this_thread::yield();
      stops = true;
      for (auto& one : threads) one.join();
      BOOST_TEST(calls == before);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_forked_child_runs_the_model_without_the_monitor) {
  const Folder folder;
  for (const bool thread : {true, false}) {
    torch::nn::Sequential model = mlp();
    const std::string incidents = folder / (thread ? "thread" : "forward");
    auto watch = std::make_unique<Monitor>(model, "", at_once(4).thread(thread).incidents(incidents));
    int calls = 0;
    watch->on_alarm([&](const Alarm&) { ++calls; });
    const torch::NoGradGuard no_grad;
    model->forward(at::ones({1, 6}));
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
      for (int i = 0; i < 10; ++i) model->forward(at::full({4, 6}, std::nan("")));
      watch->flush();
      const bool silent = calls == 0 && watch->alarms().empty() && watch->metrics().empty();
      watch.reset();
      ::_exit(silent ? 0 : 1);
    }
    int status = -1;
    BOOST_TEST(::waitpid(child, &status, 0) == child);
    BOOST_TEST(status == 0);
    BOOST_TEST(metric_of_model(watch->metrics(), "torchtap_forwards_total") == 1);
    BOOST_TEST(!fs::exists(incidents + "/alarms.jsonl"));
    // The ring's file is still the parent's.
    model->forward(at::full({4, 6}, std::nan("")));
    watch->flush();
    BOOST_TEST(has_alarm(watch->alarms(), "nonfinite", ""));
    const auto alarms = watch->alarms();
    BOOST_TEST(
        std::any_of(alarms.begin(), alarms.end(), [](const Alarm& one) { return !one.incident.empty(); }));
  }
}

BOOST_AUTO_TEST_CASE(several_monitors_of_one_model_and_of_models_inside_of_others) {
  torch::nn::Sequential inner = mlp();
  torch::nn::Sequential outer(torch::nn::Linear(6, 6), Block(inner), torch::nn::Linear(3, 3));
  Monitor a(outer, "", at_once(8)), b(outer, "", at_once(4)), c(inner, "", at_once(2));
  const auto forwards = [](const Monitor& watch) {
    return metric_of_model(watch.metrics(), "torchtap_forwards_sampled_total");
  };
  outer->forward(at::randn({4, 6}));
  inner->forward(at::randn({4, 6}));
  BOOST_TEST(forwards(a) == 1);
  BOOST_TEST(forwards(b) == 1);
  BOOST_TEST(forwards(c) == 2);
  BOOST_TEST(metric(b.metrics(), "torchtap_values_total{model=\"model\",module=\"1.inner.0\"}") == 64);
  Monitor moved(std::move(a));
  outer->forward(at::randn({4, 6}));
  BOOST_TEST(forwards(moved) == 2);
  BOOST_CHECK_EXCEPTION(a.alarms(), c10::Error, says({"moved from"}));
  moved = std::move(b);
  BOOST_TEST(forwards(moved) == 2);
}

/// The program calls the forward of a type of its own, so that hooks see its modules and not the root.
BOOST_AUTO_TEST_CASE(forwards_of_a_root_that_cannot_be_seen_begin_with_its_first_module) {
  struct Hidden : torch::nn::Module {
    Hidden() {
      register_module("last", last);
      register_module("first", first);
    }
    at::Tensor forward(const at::Tensor& x) {
      return last->forward(first->forward(first->inner->forward(x)));
    }
    Block last{torch::nn::Sequential(torch::nn::Linear(6, 2))},
        first{torch::nn::Sequential(torch::nn::Linear(6, 6), torch::nn::ReLU())};
  };
  const Folder folder;
  auto hidden = std::make_shared<Hidden>();
  Monitor watch(*hidden, "", at_once(8).incidents(folder / "incidents"));
  const auto forwards = [&] { return metric_of_model(watch.metrics(), "torchtap_forwards_total"); };
  BOOST_TEST(metric(watch.metrics(), "torchtap_modules{model=\"model\",state=\"unreachable\"}") == 1);
  for (int i = 0; i < 5; ++i) {
    hidden->forward(at::randn({4, 6}));
    BOOST_TEST(forwards() == i + 1);
  }
  // That the last module returned is known from the second forward on.
  BOOST_TEST(metric_of_model(watch.metrics(), "torchtap_forwards_sampled_total") == 4);
  BOOST_TEST(metric_of_model(watch.metrics(), "torchtap_windows_total") == 2);
  BOOST_TEST(metric_of_model(watch.metrics(), "torchtap_forwards_failed_total") == 0);
  hidden->forward(at::full({4, 6}, std::nan("")));
  BOOST_TEST(has_alarm(watch.alarms(), "nonfinite", ""));
  BOOST_TEST(watch.alarms()[0].forward == 5);
}

BOOST_AUTO_TEST_CASE(series_are_limited_and_shallow_modules_first) {
  torch::nn::Sequential inner = mlp();
  torch::nn::Sequential outer(torch::nn::Linear(6, 6), Block(inner));
  const auto series = [&](std::int64_t most) {
    Monitor watch(outer, "", at_once(4).max_series(most));
    outer->forward(at::randn({4, 6}));
    std::string modules;
    const std::string text = watch.metrics();
    for (const char* module : {"", "0", "1.inner.0", "1.inner.1", "1.inner.2"}) {
      if (!std::isnan(metric(text, std::string("torchtap_module_rms{model=\"model\",module=\"") + module +
                                       "\",tensor=\"output\"}")))
        modules += std::string(module) + ";";
    }
    return modules;
  };
  BOOST_TEST(series(200) == ";0;1.inner.0;1.inner.1;1.inner.2;");
  BOOST_TEST(series(3) == ";0;");
  BOOST_TEST(series(1) == ";");
  BOOST_TEST(series(0) == "");
}

BOOST_AUTO_TEST_CASE(metrics_are_written_whole_at_the_end_of_each_window) {
  const Folder folder;
  torch::nn::Sequential model = mlp();
  Monitor watch(model, "", at_once(4).model("a\"b").metrics_file(folder / "monitor.prom"));
  BOOST_TEST(!fs::exists(folder / "monitor.prom"));
  at::Tensor x = at::randn({4, 6}), y = model->forward(x);
  const std::string text = read(folder / "monitor.prom");
  BOOST_TEST(text == watch.metrics());
  BOOST_TEST(metric(text, "torchtap_forwards_total{model=\"a\\\"b\"}") == 1);
  BOOST_TEST(metric(text, "torchtap_module_mean{model=\"a\\\"b\",module=\"\",tensor=\"output\"}") ==
                 y.to(at::kDouble).mean().item<double>(),
             boost::test_tools::tolerance(1e-6));
  // Each sample belongs to the family before it, and no family comes twice.
  std::set<std::string> families;
  std::string family;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# TYPE ", 0) == 0) {
      family = line.substr(7, line.find(' ', 7) - 7);
      BOOST_TEST(families.insert(family).second);
    } else if (line[0] != '#') {
      BOOST_TEST((line.rfind(family + "{", 0) == 0 || line.rfind(family + " ", 0) == 0));
    }
  }
}

BOOST_AUTO_TEST_CASE(mistakes_are_errors_that_say_what_to_do) {
  const Folder folder;
  torch::nn::Sequential model = mlp();
  BOOST_CHECK_EXCEPTION(Monitor(model, "", MonitorOptions().cost(0)), c10::ValueError,
                        says({"cost", "positive"}));
  BOOST_CHECK_EXCEPTION(Monitor(model, "", MonitorOptions().window(0)), c10::ValueError,
                        says({"window", "got 0"}));
  BOOST_CHECK_EXCEPTION(Monitor(model, "", MonitorOptions().loss_scale(-1)), c10::ValueError,
                        says({"loss_scale"}));
  BOOST_CHECK_EXCEPTION(Monitor(model, folder / "none"), c10::ValueError, says({"none"}));
  BOOST_CHECK_EXCEPTION(Monitor(std::vector<tap::model::ModuleRef>{}, ""), c10::ValueError,
                        says({"no modules"}));
  torch::nn::Sequential other(torch::nn::Linear(6, 6), Block(mlp()));
  const auto only = [](const char* name) { return MonitorOptions().select(sel::names(name)); };
  {
    Monitor learns(other, "", only("1.inner.0").learn(folder / "reference"));
    other->forward(at::randn({4, 6}));
  }
  BOOST_CHECK_EXCEPTION(Monitor(model, "", only("nothing")), c10::Error, says({"nothing"}));
  Monitor partly(other, folder / "reference", at_once(4));
  BOOST_TEST(metric(partly.metrics(), "torchtap_modules{model=\"model\",state=\"without_reference\"}") == 3);
  fs::create_directories(folder / "real");
  fs::create_directory_symlink(folder / "real", folder / "link");
  BOOST_CHECK_EXCEPTION(Monitor(model, "", MonitorOptions().incidents(folder / "link")), c10::ValueError,
                        says({"symbolic link"}));
  // Before hours of learning, not behind them.
  std::ofstream(folder / "file") << "text";
  BOOST_CHECK_EXCEPTION(Monitor(model, "", MonitorOptions().learn(folder / "file")), c10::ValueError,
                        says({"learn", "file", "something else"}));
  BOOST_CHECK_EXCEPTION(Monitor(model, "", MonitorOptions().learn(folder / "file/reference")),
                        c10::ValueError, says({"learn", "file/reference", "cannot write"}));
  // A module of the program's own type, which hooks cannot reach.
  struct Plain : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x + 1; }
  };
  auto plain = std::make_shared<Plain>();
  BOOST_CHECK_EXCEPTION(Monitor(*plain, ""), c10::ValueError, says({"Plain"}));
}

BOOST_AUTO_TEST_CASE(a_reference_of_another_model_is_refused) {
  const Folder folder;
  torch::nn::Sequential one({{"a", torch::nn::Linear(3, 3)}}), other({{"b", torch::nn::Linear(3, 3)}});
  {
    Monitor learning(one, "", MonitorOptions().learn(folder / "reference"));
    one->forward(at::randn({4, 3}));
  }
  BOOST_CHECK_NO_THROW(Monitor(one, folder / "reference"));
  BOOST_CHECK_EXCEPTION(Monitor(other, folder / "reference"), c10::ValueError,
                        says({"views::monitor::Monitor", "reference", "\"b\"", "\"a\"", "another model"}));
}

BOOST_AUTO_TEST_SUITE_END()
