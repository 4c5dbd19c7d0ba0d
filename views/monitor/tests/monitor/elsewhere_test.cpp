// A watcher whose model another process judges: what it tells, as bytes, leads to the same alarms, incidents
// and metrics. A learner learns what a monitor does.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <torchtap/hooks/nn.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/views/monitor/extend/judge.hpp>
#include <torchtap/views/monitor/incident.hpp>
#include <torchtap/views/monitor/learner.hpp>
#include <torchtap/views/monitor/monitor.hpp>

#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(monitor_elsewhere)

namespace tap = torchtap;
namespace fs = std::filesystem;
namespace extend = tap::views::monitor::extend;
using tap::views::monitor::Alarm;
using tap::views::monitor::Learner;
using tap::views::monitor::Monitor;
using tap::views::monitor::MonitorOptions;
using Folder = torchtap_test::TemporaryDirectory;

namespace {

torch::nn::Sequential mlp() {
  torch::manual_seed(5);
  torch::nn::Sequential model(torch::nn::Linear(6, 16), torch::nn::ReLU(), torch::nn::Linear(16, 3));
  model->eval();
  return model;
}

/// Requests, the first of which are like those that were learned.
void serve(torch::nn::Sequential& model, int forwards, double scale = 1) {
  const torch::NoGradGuard no_grad;
  for (int i = 0; i < forwards; ++i) model->forward(torch::randn({16, 6}) * scale);
}

/// The other process: it has the ring's memory, and bytes.
struct Other final : extend::Subject {
  std::vector<char> memory = std::vector<char>(extend::FlightRecorder::room_for(1 << 20) + 4096);
  char* ring = memory.data() + (4096 - reinterpret_cast<std::uintptr_t>(memory.data()) % 4096);
  std::vector<std::string> bytes;
  extend::Counts latest;

  extend::Elsewhere elsewhere() {
    return {[this](const extend::Told& told) { bytes.push_back(packed(told)); }, ring};
  }
  extend::Counts counts() const override { return latest; }
  std::vector<extend::KeptForward> forwards() const override { return extend::forwards_in(ring); }
  void note_window(const std::string& /*text*/) override {}
  std::vector<tap::model::ModuleRef> living(
      std::vector<std::shared_ptr<const void>>& /*keep*/) const override {
    return {};
  }
};

/// What alarms are about.
std::set<std::string> about(const std::vector<Alarm>& alarms) {
  std::set<std::string> all;
  for (const Alarm& one : alarms) all.insert(one.finding.rule + " " + one.finding.path);
  return all;
}

std::string text_of(const std::string& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string lines_without_costs(const std::string& metrics) {
  std::string kept;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);)
    if (line.find("seconds_total") == std::string::npos) kept += line + "\n";
  return kept;
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_is_told_is_judged_as_it_is_here) {
  const Folder folder;
  torch::nn::Sequential model = mlp();
  {
    Monitor learns(model, "", MonitorOptions().learn(folder / "reference"));
    serve(model, 300);
  }
  const auto options = [&](const char* incidents) {
    return MonitorOptions().cost(1).thread(false).window(128).ring(1 << 20).incidents(folder / incidents);
  };
  Other other;
  const auto watcher = std::make_shared<extend::Watcher>(tap::model::walk_modules(*model),
                                                         MonitorOptions().cost(1).window(128).ring(1 << 20),
                                                         other.elsewhere());
  watcher->start();
  const std::string about_model = packed(watcher->judged());
  std::vector<Alarm> here;
  std::string metrics_here;
  {
    Monitor monitor(model, folder / "reference", options("here"));
    monitor.on_alarm([&](const Alarm& alarm) { here.push_back(alarm); });
    serve(model, 16);
    serve(model, 16, 3);
    const torch::NoGradGuard no_grad;
    model->forward(torch::full({16, 6}, NAN));
    serve(model, 7);  // the fifth window ends
    monitor.flush();
    metrics_here = monitor.metrics();
  }
  watcher->close();

  extend::Judge judge(extend::unpacked_model(about_model), folder / "reference", options("there"), other);
  std::vector<Alarm> there;
  judge.on_alarm([&](const Alarm& alarm) { there.push_back(alarm); });
  judge.prepare();
  for (const std::string& bytes : other.bytes) {
    extend::Told told = extend::unpacked(bytes);
    other.latest = told.counts;
    judge.judge(std::move(told));
  }
  BOOST_TEST(extend::unpacked(other.bytes.back()).ended);
  BOOST_TEST(about(here).count("nonfinite ") == 1U);
  BOOST_TEST(here.size() > 2U);
  BOOST_TEST((about(there) == about(here)));
  BOOST_TEST(judge.raised() > 0);
  BOOST_TEST(lines_without_costs(judge.metrics()) == lines_without_costs(metrics_here));

  // An incident has the forwards of the ring, and says of which parameters.
  const auto incident = std::find_if(there.begin(), there.end(), [](const Alarm& one) {
                          return one.finding.rule == "nonfinite" && one.finding.path.empty();
                        })->incident;
  BOOST_TEST_REQUIRE(fs::exists(incident + "/inputs/manifest.json"));
  const auto same_incident = std::find_if(here.begin(), here.end(), [](const Alarm& one) {
                               return one.finding.rule == "nonfinite" && one.finding.path.empty();
                             })->incident;
  const auto digest = [](const std::string& place) {
    const std::string text = text_of(place + "/incident.json");
    const std::size_t at = text.find("\"parameters\":");
    return text.substr(at, text.find(',', at) - at);
  };
  BOOST_TEST(digest(incident) == digest(same_incident));
  BOOST_TEST(digest(incident).size() > 20U);
}

BOOST_AUTO_TEST_CASE(a_window_that_goes_on_is_told_and_goes_on) {
  torch::nn::Sequential model = mlp();
  Other other;
  const auto watcher = std::make_shared<extend::Watcher>(
      tap::model::walk_modules(*model), MonitorOptions().cost(1).window(128), other.elsewhere());
  watcher->start();
  serve(model, 3);
  const auto window = watcher->unfinished(), again = watcher->unfinished();
  BOOST_TEST(window.rows == 48);
  BOOST_TEST(window.number == 0);
  BOOST_TEST(again.rows == window.rows);
  BOOST_TEST(window.seen.size() == again.seen.size());
  serve(model, 5);
  const auto told = extend::unpacked(other.bytes.at(0));
  BOOST_TEST_REQUIRE(told.windows.size() == 1U);
  BOOST_TEST(told.windows.front().rows == 128);
  BOOST_TEST(watcher->unfinished().number == 1);
  BOOST_TEST(watcher->unfinished().rows == 0);
  watcher->close();
}

BOOST_AUTO_TEST_CASE(a_judge_makes_an_incident_of_the_last_forwards) {
  const Folder folder;
  torch::nn::Sequential model = mlp();
  Other other;
  const auto watcher = std::make_shared<extend::Watcher>(
      tap::model::walk_modules(*model), MonitorOptions().cost(1).ring(1 << 20), other.elsewhere());
  watcher->start();
  extend::Judge judge(watcher->judged(), "", MonitorOptions().incidents(folder / "incidents"), other);
  BOOST_TEST(judge.crashed(false).empty());  // there was no forward
  serve(model, 4);
  BOOST_TEST(judge.crashed(/*if_suspicious=*/true).empty());
  const std::string incident = judge.crashed(false);
  BOOST_TEST(fs::path(incident).filename().string().find("-crash") != std::string::npos);
  const std::string forwards = text_of(incident + "/forwards.jsonl");
  BOOST_TEST(std::count(forwards.begin(), forwards.end(), '\n') == 4);
  watcher->close();
}

BOOST_AUTO_TEST_CASE(a_learner_learns_what_a_monitor_does) {
  const Folder folder;
  torch::nn::Sequential model = mlp();
  Learner learner(model);
  {
    Monitor learns(model, "", MonitorOptions().learn(folder / "reference"));
    serve(model, 20);
  }
  const auto saved = tap::storage::load(folder / "reference");
  const std::vector<tap::storage::Entry> entries = learner.entries();
  BOOST_TEST_REQUIRE(static_cast<std::int64_t>(entries.size()) == saved.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& one = saved.at(static_cast<std::int64_t>(i));
    BOOST_TEST(entries[i].path == one.path());
    BOOST_TEST(entries[i].samples == 20);
    BOOST_TEST((entries[i].value == one.value()));
  }
  // It goes on with another object.
  torch::nn::Sequential again = mlp();
  learner.follow(again);
  serve(again, 5);
  serve(model, 5);
  BOOST_TEST(learner.entries().front().samples == 25);
  torch::nn::Sequential other(torch::nn::Linear(6, 2));
  BOOST_CHECK_EXCEPTION(learner.follow(other), c10::ValueError, [](const c10::ValueError& error) {
    return std::string(error.what_without_backtrace()).find("Learner::follow") != std::string::npos;
  });
}

BOOST_AUTO_TEST_SUITE_END()
