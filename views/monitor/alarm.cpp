// Alarms as a line for people, and as a line of alarms.jsonl.
#include <time.h>

#include <cmath>
#include <cstdio>
#include <ostream>

#include <torchtap/base/rapidjson.hpp>
#include <torchtap/views/monitor/alarm.hpp>
#include <torchtap/views/monitor/detail/alarm_lines.hpp>
#include <torchtap/views/text/characters.hpp>
#include <torchtap/views/text/units.hpp>

namespace torchtap::views::monitor {
namespace {

using AlarmBuffer = base::rapid::StringBuffer;
using AlarmJson = base::rapid::Writer<AlarmBuffer>;

std::string alarm_number(const char* format, double number) {
  char text[48];
  std::snprintf(text, sizeof text, format, number);
  return text;
}

void put_text(AlarmJson& json, const char* key, const std::string& text) {
  json.Key(key);
  json.String(text::utf8_text(text).c_str());
}

void put_number(AlarmJson& json, const char* key, double number) {
  json.Key(key);
  if (std::isfinite(number)) {
    json.Double(number);
  } else {
    json.Null();
  }
}

void put_integer(AlarmJson& json, const char* key, std::int64_t number) {
  json.Key(key);
  json.Int64(number);
}

void begin_line(AlarmJson& json, std::int64_t time_ns, const std::string& model) {
  json.StartObject();
  put_integer(json, "format", 1);
  put_text(json, "time", detail::time_text(time_ns));
  put_text(json, "model", model);
}

}  // namespace

std::string detail::time_text(std::int64_t time_ns) {
  const std::time_t seconds = time_ns / 1'000'000'000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[64];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + size, sizeof text - size, ".%03dZ", static_cast<int>(time_ns / 1'000'000 % 1000));
  return text;
}

std::ostream& operator<<(std::ostream& stream, const Alarm& alarm) {
  const rules::Finding& finding = alarm.finding;
  if (!alarm.raised) stream << "cleared  ";
  stream << finding.rule << "  " << (finding.path.empty() ? "(model)" : finding.path) << "  "
         << rules::name_of(finding.tensor);
  if (finding.slot != 0) stream << ' ' << finding.slot;
  if (alarm.drift) {
    const Drift& drift = *alarm.drift;
    stream << "  " << text::count_text(drift.rows) << " rows  T² " << alarm_number("%.3g", drift.t2)
           << " (limit " << alarm_number("%.3g", drift.limit) << ")  PSI " << alarm_number("%.2g", drift.psi)
           << "  mean " << alarm_number("%+.2f", drift.shift) << " std  zeros "
           << alarm_number("%+.1f", 100 * drift.zeros) << " %";
  } else if (!finding.sentence.empty()) {
    stream << "  " << finding.sentence;
  }
  if (alarm.window >= 0) {
    stream << "  " << (alarm.raised ? "since" : "in") << " window " << alarm.window;
  } else {
    stream << "  forward " << alarm.forward;
  }
  if (!alarm.incident.empty()) stream << "  " << alarm.incident;
  return stream;
}

std::string to_json(const Alarm& alarm, const std::string& model) {
  AlarmBuffer buffer;
  AlarmJson json(buffer);
  const rules::Finding& finding = alarm.finding;
  begin_line(json, alarm.time_ns, model);
  put_text(json, "state", alarm.raised ? "raised" : "cleared");
  put_text(json, "rule", finding.rule);
  put_text(json, "module", finding.path);
  put_text(json, "type", finding.type);
  put_text(json, "tensor", std::string(rules::name_of(finding.tensor)));
  put_integer(json, "slot", finding.slot);
  put_number(json, "value", finding.value);
  put_number(json, "limit", finding.limit);
  put_text(json, "sentence", finding.sentence);
  put_integer(json, "forward", alarm.forward);
  json.Key("window");
  if (alarm.window >= 0) {
    json.Int64(alarm.window);
  } else {
    json.Null();
  }
  if (alarm.drift) {
    put_integer(json, "rows", alarm.drift->rows);
    put_number(json, "psi", alarm.drift->psi);
    put_number(json, "shift", alarm.drift->shift);
    put_number(json, "ratio", alarm.drift->ratio);
    put_number(json, "zeros", alarm.drift->zeros);
  }
  put_text(json, "incident", alarm.incident);
  json.EndObject();
  return buffer.GetString();
}

std::string detail::note_line(const std::string& note, const std::string& model, std::int64_t time_ns) {
  AlarmBuffer buffer;
  AlarmJson json(buffer);
  begin_line(json, time_ns, model);
  put_text(json, "note", note);
  json.EndObject();
  return buffer.GetString();
}

}  // namespace torchtap::views::monitor
