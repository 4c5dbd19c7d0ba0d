// What a monitor is made of: sampling, hysteresis, facts of a window, lines of alarms, steps of parameters.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <sstream>

#include <torchtap/json/json.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/reductions/blocks.hpp>
#include <torchtap/views/monitor/detail/alarm_book.hpp>
#include <torchtap/views/monitor/detail/alarm_lines.hpp>
#include <torchtap/views/monitor/detail/parameter_steps.hpp>
#include <torchtap/views/monitor/detail/sampler.hpp>
#include <torchtap/views/monitor/detail/window_blocks.hpp>
#include <torchtap/views/monitor/detail/window_facts.hpp>

#include "tests/support.hpp"

BOOST_AUTO_TEST_SUITE(monitor_parts)

namespace tap = torchtap;
namespace monitor = tap::views::monitor;
namespace rules = tap::rules;
using monitor::Alarm;
using monitor::detail::AlarmBook;
using monitor::detail::Sampler;

namespace {

/// Forwards of so many nanoseconds, one of four sampled.
void run(Sampler& sampler, int forwards, std::int64_t forward, std::int64_t always, std::int64_t sampled) {
  for (int i = 0; i < forwards; ++i) {
    const bool takes = i % 4 == 0;
    sampler.note(takes, forward, takes ? sampled : always);
  }
}

Alarm alarm_about(const std::string& rule, const std::string& path = "fc") {
  Alarm alarm;
  alarm.finding.rule = rule;
  alarm.finding.path = path;
  return alarm;
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_of_so_many_forwards_is_sampled_that_the_cost_is_kept) {
  Sampler sampler(0.01);
  BOOST_TEST(sampler.period() == 1);
  run(sampler, 128, 1'000'000, 2'000, 100'000);
  BOOST_TEST(sampler.period() == 13);  // 98 000 / (10 000 - 2 000) = 12.25
  run(sampler, 128, 10'000'000, 2'000, 100'000);
  BOOST_TEST(sampler.period() == 1);  // the model became slower
  run(sampler, 128, 100'000, 2'000, 100'000);
  BOOST_TEST(sampler.period() == Sampler::most);  // what each forward costs is more than the share
  // Outliers, as a busy machine makes them, do not count.
  run(sampler, 128, 1'000'000, 2'000, 100'000);
  for (int i = 0; i < 8; ++i) sampler.note(true, 500'000'000, 400'000'000);
  BOOST_TEST(sampler.period() == 13);
  Sampler all(1);
  run(all, 128, 1'000, 900, 500'000);
  BOOST_TEST(all.period() == 1);
}

BOOST_AUTO_TEST_CASE(sampled_forwards_are_spread_evenly_also_over_periodic_traffic) {
  Sampler sampler(0.01);
  run(sampler, 128, 1'000'000, 0, 160'000);
  BOOST_TEST(sampler.period() == 16);
  constexpr std::int64_t kForwards = 160'000;
  for (const std::int64_t period : {1, 2, 7, 16, 32}) {
    for (std::int64_t phase = 0; phase < period; ++phase) {
      std::int64_t sampled = 0;
      for (std::int64_t i = phase; i < kForwards; i += period) sampled += sampler.wants(i) ? 1 : 0;
      const double expected = static_cast<double>(kForwards / period) / 16;
      BOOST_TEST(std::abs(static_cast<double>(sampled) - expected) < 5 * std::sqrt(expected));
    }
  }
}

BOOST_AUTO_TEST_CASE(an_alarm_is_raised_once_and_cleared_after_two_windows_without) {
  AlarmBook book;
  const Alarm dead = alarm_about("dead_relu");
  BOOST_TEST(book.end_window({}).empty());
  auto changes = book.end_window({dead, alarm_about("saturated", "act"), dead});
  BOOST_TEST(changes.size() == 2U);
  BOOST_TEST((changes[0].raised && changes[0].finding.rule == "dead_relu"));
  BOOST_TEST(book.all().size() == 2U);
  // It oscillates, and is raised once.
  for (int i = 0; i < 5; ++i) {
    BOOST_TEST(book.end_window({alarm_about("saturated", "act")}).empty());
    BOOST_TEST(book.end_window({dead, alarm_about("saturated", "act")}).empty());
  }
  BOOST_TEST(book.end_window({alarm_about("saturated", "act")}).empty());
  changes = book.end_window({alarm_about("saturated", "act")});
  BOOST_TEST(changes.size() == 1U);
  BOOST_TEST((!changes[0].raised && changes[0].finding.rule == "dead_relu"));
  BOOST_TEST(!book.raised(AlarmBook::key_of(dead.finding)));
  // What is kept is neither raised nor cleared.
  const auto kept = [](const AlarmBook::Key&) { return true; };
  for (int i = 0; i < 5; ++i) BOOST_TEST(book.end_window({}, kept).empty());
  BOOST_TEST(book.all().size() == 1U);
}

BOOST_AUTO_TEST_CASE(an_alarm_of_one_forward_is_cleared_after_two_whole_windows) {
  AlarmBook book;
  BOOST_TEST(book.raise(alarm_about("nonfinite", "")));
  BOOST_TEST(!book.raise(alarm_about("nonfinite", "")));
  BOOST_TEST(book.end_window({}).empty());  // the window in which it was
  BOOST_TEST(book.end_window({}).empty());
  BOOST_TEST(book.end_window({}).size() == 1U);
  BOOST_TEST(book.all().empty());
}

BOOST_AUTO_TEST_CASE(facts_are_those_of_all_blocks) {
  torch::manual_seed(3);
  for (const double scale : {1.0, 128.0}) {
    at::Tensor x = at::randn({40, 6}, at::kDouble) * 3;
    x[0][0] = std::nan("");
    x[1][1] = std::numeric_limits<double>::infinity();
    x[2].fill_(0);
    tap::reductions::Blocks blocks(2);
    for (std::int64_t i = 0; i < 40; i += 8) blocks.update(x.slice(0, i, i + 8));
    rules::Facts facts;
    monitor::detail::set_facts(facts, blocks.results(), scale);
    const at::Tensor finite = x.masked_select(x.isfinite()) / scale;
    BOOST_TEST(*facts.count == 240);
    BOOST_TEST(*facts.nan == 1);
    BOOST_TEST(*facts.inf == 1);
    BOOST_TEST(*facts.zeros == 6);
    const auto near = boost::test_tools::tolerance(1e-12);
    BOOST_TEST(*facts.min == finite.min().item<double>(), near);
    BOOST_TEST(*facts.max == finite.max().item<double>(), near);
    BOOST_TEST(*facts.mean == finite.mean().item<double>(), boost::test_tools::tolerance(1e-9));
    BOOST_TEST(*facts.rms == finite.square().mean().sqrt().item<double>(), near);
    BOOST_TEST(*facts.std == finite.std(false).item<double>(), near);
    double counted = 0;
    for (const rules::Bin& bin : facts.bins) {
      const at::Tensor inside =
          (finite.abs() > 0)
              .logical_and(bin.low >= 0 ? (finite >= bin.low).logical_and(finite < bin.high)
                                        : (finite > bin.low).logical_and(finite <= bin.high));
      BOOST_TEST(bin.count == inside.sum().item<double>());
      counted += bin.count;
    }
    BOOST_TEST(counted == 232);
  }
  tap::reductions::Blocks only_nan(2);
  only_nan.update(at::full({3}, std::nan("")));
  rules::Facts facts;
  monitor::detail::set_facts(facts, only_nan.results());
  BOOST_TEST(*facts.nan == 3);
  BOOST_TEST(!facts.mean.has_value());
}

BOOST_AUTO_TEST_CASE(tensors_of_a_window_know_their_order) {
  monitor::detail::WindowBlocks first, second;
  first.update(at::ones({3}));
  second.update(at::ones({3}));
  first.update(at::ones({3}));
  const auto order = [](const monitor::detail::WindowBlocks& blocks) {
    return blocks.results().at("order").item<std::int64_t>();
  };
  BOOST_TEST(order(first) < order(second));
  auto merged = second.fresh();
  BOOST_TEST(merged.results().empty());
  merged.merge(second);
  merged.merge(first);
  BOOST_TEST(order(merged) == order(first));
  BOOST_TEST(merged.count() == 3);
}

BOOST_AUTO_TEST_CASE(an_alarm_is_a_line_for_people_and_a_line_of_json) {
  Alarm alarm = alarm_about("drift", "layer3.1.conv2");
  alarm.finding.value = 412;
  alarm.finding.limit = 74;
  monitor::Drift drift;
  drift.t2 = 412;
  drift.limit = 74;
  drift.psi = 0.19;
  drift.shift = 0.31;
  drift.zeros = 0.041;
  drift.rows = 256;
  alarm.drift = drift;
  alarm.window = 812;
  alarm.forward = 90311;
  alarm.time_ns = 1'795'449'895'123'000'000;
  alarm.incident = "incidents/20261123T160455-0007-drift";
  std::ostringstream line;
  line << alarm;
  BOOST_TEST(
      line.str() ==
      "drift  layer3.1.conv2  output  256 rows  T² 412 (limit 74)  PSI 0.19  mean +0.31 std  zeros +4.1 %"
      "  since window 812  incidents/20261123T160455-0007-drift");

  tap::json::Json json = tap::json::parse(monitor::to_json(alarm, "res\"net\n"));
  BOOST_TEST(json["format"] == 1);
  BOOST_TEST(json["time"] == "2026-11-23T16:04:55.123Z");
  BOOST_TEST((json["model"] == std::string("res\"net\n")));
  BOOST_TEST(json["state"] == "raised");
  BOOST_TEST(json["module"] == "layer3.1.conv2");
  BOOST_TEST(json["psi"].get<double>() == 0.19);
  BOOST_TEST(json["rows"] == 256);
  BOOST_TEST(json["window"] == 812);

  Alarm nan = alarm_about("nonfinite", "");
  nan.finding.sentence = "3 NaN of 1000 values";
  nan.finding.value = std::numeric_limits<double>::infinity();
  nan.forward = 7;
  nan.window = -1;
  nan.raised = false;
  line.str("");
  line << nan;
  BOOST_TEST(line.str() == "cleared  nonfinite  (model)  output  3 NaN of 1000 values  forward 7");
  json = tap::json::parse(monitor::to_json(nan, "m"));
  BOOST_TEST(json["value"] == "Infinity");
  BOOST_TEST(json["window"].is_null());
  BOOST_TEST(!json.contains("psi"));
  BOOST_TEST(json["state"] == "cleared");
}

BOOST_AUTO_TEST_CASE(steps_of_an_optimizer_are_measured_between_training_forwards) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(300, 400), torch::nn::Linear(400, 2));
  net->ptr(1)->as<torch::nn::Linear>()->bias.requires_grad_(false);
  monitor::detail::ParameterSteps steps(tap::model::walk_modules(*net));
  BOOST_TEST(steps.facts().empty());
  std::vector<at::Tensor> before;
  for (const auto& parameter : net->parameters()) before.push_back(parameter.detach().clone());
  steps.begin(true);
  steps.begin(true);  // no step in between
  {
    const torch::NoGradGuard no_grad;
    net->parameters()[0].mul_(1.25);
    net->parameters()[1].mul_(0.5);
  }
  steps.begin(true);
  {
    const torch::NoGradGuard no_grad;
    net->parameters()[0].mul_(1.5);
  }
  steps.begin(false);
  const std::vector<rules::Facts> facts = steps.facts();
  BOOST_TEST(facts.size() == 4U);
  const auto near = boost::test_tools::tolerance(1e-6);
  BOOST_TEST(facts[0].updates.size() == 2U);
  BOOST_TEST(facts[0].updates[0] == 0.25, near);
  BOOST_TEST(facts[0].updates[1] == 0.5, near);
  BOOST_TEST(facts[1].updates[0] == 0.5, near);
  BOOST_TEST(facts[1].updates[1] == 0);
  BOOST_TEST(facts[2].updates == (std::vector<double>{0, 0}));
  BOOST_TEST(facts[3].updates.empty());  // it has no gradient
  BOOST_TEST(facts[1].dimensions == 1);
  BOOST_TEST(facts[1].slot == 1);
  BOOST_TEST(*facts[3].mean == before[3].mean().item<double>(), near);
  BOOST_TEST(*facts[0].count == 60'000);  // each second one
}

BOOST_AUTO_TEST_SUITE_END()
