// Formats an alarm as a line for people, and as a line of alarms.jsonl.
#include <cmath>
#include <ostream>

#include <torchtap/base/numbers.hpp>
#include <torchtap/json/json.hpp>
#include <torchtap/views/monitor/alarm.hpp>
#include <torchtap/views/monitor/detail/alarm_lines.hpp>
#include <torchtap/views/text/units.hpp>

namespace torchtap::views::monitor {
namespace {

std::string with_sign(double number, int decimals) {
  return (std::signbit(number) ? "" : "+") + base::fixed_text(number, decimals);
}

json::Json begun_line(std::int64_t time_ns, const std::string& model) {
  return {{"format", 1}, {"time", text::utc_text(time_ns)}, {"model", model}};
}

}  // namespace

std::ostream& operator<<(std::ostream& stream, const Alarm& alarm) {
  const rules::Finding& finding = alarm.finding;
  if (!alarm.raised) stream << "cleared  ";
  stream << finding.rule << "  " << (finding.path.empty() ? "(model)" : finding.path) << "  "
         << rules::name_of(finding.tensor);
  if (finding.slot != 0) stream << ' ' << std::to_string(finding.slot);
  if (alarm.drift) {
    const Drift& drift = *alarm.drift;
    stream << "  " << text::count_text(drift.rows) << " rows  T² " << base::number_text(drift.t2, 3)
           << " (limit " << base::number_text(drift.limit, 3) << ")  PSI " << base::number_text(drift.psi, 2)
           << "  mean " << with_sign(drift.shift, 2) << " std  zeros " << with_sign(100 * drift.zeros, 1)
           << " %";
  } else if (!finding.sentence.empty()) {
    stream << "  " << finding.sentence;
  }
  if (alarm.window >= 0) {
    stream << "  " << (alarm.raised ? "since" : "in") << " window " << std::to_string(alarm.window);
  } else {
    stream << "  forward " << std::to_string(alarm.forward);
  }
  if (!alarm.incident.empty()) stream << "  " << alarm.incident;
  return stream;
}

json::Json detail::json_of(const Alarm& alarm, const std::string& model) {
  const rules::Finding& finding = alarm.finding;
  json::Json line = begun_line(alarm.time_ns, model);
  line.update({{"state", alarm.raised ? "raised" : "cleared"},
               {"rule", finding.rule},
               {"module", finding.path},
               {"type", finding.type},
               {"tensor", rules::name_of(finding.tensor)},
               {"slot", finding.slot},
               {"value", finding.value},
               {"limit", finding.limit},
               {"sentence", finding.sentence},
               {"forward", alarm.forward},
               {"window", alarm.window >= 0 ? std::optional(alarm.window) : std::nullopt}});
  if (alarm.drift) {
    line.update({{"rows", alarm.drift->rows},
                 {"psi", alarm.drift->psi},
                 {"shift", alarm.drift->shift},
                 {"ratio", alarm.drift->ratio},
                 {"zeros", alarm.drift->zeros}});
  }
  line["incident"] = alarm.incident;
  return line;
}

std::string to_json(const Alarm& alarm, const std::string& model) {
  return json::text(detail::json_of(alarm, model));
}

std::string detail::note_line(const std::string& note, const std::string& model, std::int64_t time_ns) {
  json::Json line = begun_line(time_ns, model);
  line["note"] = note;
  return json::text(line);
}

}  // namespace torchtap::views::monitor
