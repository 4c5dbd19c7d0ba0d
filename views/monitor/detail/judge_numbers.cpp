// Tells numbers: metrics, and TensorBoard's events.
#include <torch/version.h>

#include <ostream>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/write_file.hpp>
#include <torchtap/version.hpp>
#include <torchtap/views/monitor/detail/judge.hpp>
#include <torchtap/views/monitor/detail/prometheus_text.hpp>

namespace torchtap::views::monitor::detail {
namespace {

double number_of(std::int64_t number) {
  return static_cast<double>(number);
}

}  // namespace

std::string Judge::metrics() const {
  const std::lock_guard lock(data_mutex_);
  PrometheusText out;
  count(out);
  tell_alarms(out);
  tell_modules(out);
  return out.text();
}

void Judge::count(PrometheusText& out) const {
  const std::string& model = model_.name;
  const Counts counts = subject_.counts();
  const auto one = [&](const char* name, const char* type, const char* help, double value) {
    out.family(name, type, help);
    out.sample({{"model", model}}, value);
  };
  out.family("torchtap_build_info", "gauge", "Versions of torchtap and LibTorch.");
  out.sample({{"version", TORCHTAP_VERSION}, {"libtorch", TORCH_VERSION}}, 1);
  one("torchtap_forwards_total", "counter", "Forwards that began.", number_of(counts.forwards));
  one("torchtap_forwards_sampled_total", "counter", "Forwards of which all watched modules were counted.",
      number_of(counts.sampled));
  one("torchtap_forwards_failed_total", "counter", "Forwards that began and did not return.",
      number_of(counts.failures));
  one("torchtap_sampling_period", "gauge", "One of so many forwards is sampled.", number_of(counts.period));
  one("torchtap_monitor_seconds_total", "counter", "Time of forwards that the monitor took, estimated.",
      number_of(counts.own_ns) / 1e9);
  one("torchtap_monitor_errors_total", "counter", "What the monitor could not count or do.",
      number_of(errors_));
  one("torchtap_windows_total", "counter", "Windows that were judged.", static_cast<double>(windows_told_));
  one("torchtap_window_rows", "gauge", "Rows of a window.", static_cast<double>(options_.window()));
  one("torchtap_reference_blocks", "gauge", "The least number of blocks that a reference has.",
      static_cast<double>(blocks_));
  one("torchtap_incidents_total", "counter", "Incidents that were written.", number_of(incidents_));
  one("torchtap_incidents_lost_total", "counter", "Incidents that could not be written.",
      number_of(lost_incidents_));
  one("torchtap_alarm_lines_lost_total", "counter", "Lines of alarms.jsonl that could not be written.",
      number_of(lost_lines_));
  one("torchtap_drift_not_judged", "gauge", "Tensors of the reference whose drift cannot be judged by it.",
      number_of(not_judged_));
  one("torchtap_ring_skipped_total", "counter", "Forwards whose inputs are too large for the ring.",
      number_of(counts.ring_skipped));
  out.family("torchtap_modules", "gauge",
             "Modules that are watched, that hooks do not reach, and those of the "
             "watched ones that are not in the reference.");
  out.sample({{"model", model}, {"state", "watched"}}, static_cast<double>(model_.chosen.size()));
  out.sample({{"model", model}, {"state", "unreachable"}}, static_cast<double>(model_.unreachable));
  out.sample({{"model", model}, {"state", "without_reference"}}, static_cast<double>(without_reference_));
}

void Judge::tell_alarms(PrometheusText& out) const {
  const std::string& model = model_.name;
  out.family("torchtap_alarms_total", "counter", "Alarms that were raised.");
  for (const auto& [rule, number] : raised_by_rule_) {
    out.sample({{"model", model}, {"rule", rule}}, static_cast<double>(number));
  }
  out.family("torchtap_alarm", "gauge", "1 while an alarm is raised.");
  std::map<std::pair<std::string, std::string>, bool> now = ever_raised_;
  for (const Alarm& alarm : book_.all()) now[{alarm.finding.path, alarm.finding.rule}] = true;
  for (const auto& [key, raised] : now) {
    out.sample({{"model", model}, {"module", key.first}, {"rule", key.second}}, raised ? 1 : 0);
  }
}

void Judge::tell_modules(PrometheusText& out) const {
  const std::string& model = model_.name;
  out.family("torchtap_nonfinite_values_total", "counter",
             "NaN and infinities: of the model's outputs in all forwards, of modules in sampled ones.");
  if (const double all = number_of(subject_.counts().nonfinite); all > 0)
    out.sample({{"model", model}, {"module", ""}}, all);
  for (const auto& [module, number] : nonfinite_by_module_) {
    out.sample({{"model", model}, {"module", module}}, static_cast<double>(number));
  }
  out.family("torchtap_values_total", "counter", "Values of a module's outputs that were counted.");
  for (const auto& [module, number] : values_by_module_) {
    out.sample({{"model", model}, {"module", module}}, static_cast<double>(number));
  }
  const auto gauges = [&](const char* name, const char* help, std::optional<double> Series::*field) {
    out.family(name, "gauge", help);
    for (const auto& [key, series] : series_) {
      if (!(series.*field)) continue;
      const std::string tensor(rules::name_of(key.second));
      out.sample({{"model", model}, {"module", key.first}, {"tensor", tensor}}, *(series.*field));
    }
  };
  gauges("torchtap_module_mean", "Mean in the last window.", &Series::mean);
  gauges("torchtap_module_rms", "Root mean square in the last window.", &Series::rms);
  gauges("torchtap_module_zero_ratio", "Share of zeros in the last window.", &Series::zeros);
  gauges("torchtap_drift_psi", "Population stability index of the last window against the reference.",
         &Series::psi);
  gauges("torchtap_drift_t2_limit_ratio", "Hotelling's T² of the last window, divided by its limit.",
         &Series::t2);
}

void Judge::write_events(const std::vector<rules::Facts>& facts, std::int64_t step) {
  if (events_ == nullptr || events_failed_) return;
  try {
    for (const rules::Facts& one : facts) {
      if (!one.count) continue;
      std::string tag =
          (one.path.empty() ? "model" : one.path) + "/" + std::string(rules::name_of(one.tensor));
      if (one.slot != 0) tag += "/" + std::to_string(one.slot);
      std::vector<double> low, high, counts;
      for (const rules::Bin& bin : one.bins) {
        low.push_back(bin.low);
        high.push_back(bin.high);
        counts.push_back(bin.count);
      }
      tensorboard::HistogramValue histogram = tensorboard::histogram_of(low, high, counts, *one.zeros);
      const double finite = *one.count - *one.nan - *one.inf;
      histogram.num = finite;
      histogram.min = one.min.value_or(0);
      histogram.max = one.max.value_or(0);
      histogram.sum = one.mean.value_or(0) * finite;
      histogram.sum_squares = one.rms.value_or(0) * one.rms.value_or(0) * finite;
      if (finite > 0) events_->histogram(tag, step, histogram);
      if (one.mean) events_->scalar(tag + "/mean", step, *one.mean);
      if (one.std) events_->scalar(tag + "/std", step, *one.std);
      if (*one.count > 0) events_->scalar(tag + "/zeros", step, *one.zeros / *one.count);
      if (*one.nan + *one.inf > 0) events_->scalar(tag + "/nonfinite", step, *one.nan + *one.inf);
      if (!one.updates.empty()) events_->scalar(tag + "/update_ratio", step, one.updates.back());
    }
    events_->flush();
  } catch (const c10::Error& error) {  // a full disk, say: once
    events_failed_ = true;
    note(std::string("TensorBoard's events are not written any more: ") + error.what_without_backtrace());
  }
}

void Judge::write_metrics() {
  if (options_.metrics_file().empty()) return;
  try {
    const std::string text = metrics();
    base::write_file(
        "views::monitor::MonitorOptions::metrics_file", options_.metrics_file(),
        [&](std::ostream& stream) { stream << text; }, /*sync=*/false);
  } catch (const c10::Error& error) {
    ++errors_;
    if (!std::exchange(metrics_failed_, true)) {
      note(std::string("metrics are not written: ") + error.what_without_backtrace());
    }
  }
}

}  // namespace torchtap::views::monitor::detail
