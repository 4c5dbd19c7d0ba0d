#include "told_alarms.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <torchtap/views/monitor/alarm.hpp>

#include "files/json.hpp"

namespace torchtap::tools::preload {
namespace {

std::string file_in(const std::string& incidents) {
  return incidents + "/alarms.jsonl";
}

/// As far as an alarm's line for people says it.
views::monitor::Alarm alarm_in(const json::Reader& line) {
  const auto text = [&](const char* name) { return line.get<std::string>(name, ""); };
  views::monitor::Alarm alarm;
  rules::Finding& finding = alarm.finding;
  finding.rule = text("rule");
  finding.path = text("module");
  finding.type = text("type");
  for (const auto tensor :
       {rules::Tensor::input, rules::Tensor::output, rules::Tensor::gradient, rules::Tensor::parameter}) {
    if (text("tensor") == rules::name_of(tensor)) finding.tensor = tensor;
  }
  finding.slot = line.get("slot", finding.slot);
  finding.value = line.get("value", finding.value);
  finding.limit = line.get("limit", finding.limit);
  finding.sentence = text("sentence");
  alarm.forward = line.get("forward", alarm.forward);
  alarm.window = line.get("window", std::int64_t{-1});
  alarm.incident = text("incident");
  if (line.find("psi") != nullptr) {
    views::monitor::Drift& drift = alarm.drift.emplace();
    drift.t2 = finding.value;
    drift.limit = finding.limit;
    drift.psi = line.get("psi", drift.psi);
    drift.shift = line.get("shift", drift.shift);
    drift.ratio = line.get("ratio", drift.ratio);
    drift.zeros = line.get("zeros", drift.zeros);
    drift.rows = line.get("rows", drift.rows);
  }
  return alarm;
}

}  // namespace

std::int64_t size_of_alarms(const std::string& incidents) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file_in(incidents), error);
  return error ? 0 : static_cast<std::int64_t>(size);
}

ToldAlarms alarms_told(const std::string& incidents, std::int64_t from, const std::string& shown) {
  ToldAlarms told;
  std::ifstream file(file_in(incidents), std::ios::binary);
  file.seekg(from);
  for (std::string text; std::getline(file, text);) {
    const Json document = json::parse_object(text);
    const json::Reader line(document);
    if (line.find("note") != nullptr) {
      told.notes.push_back(line.get<std::string>("note", ""));
    } else if (line.get<std::string>("state", "") == "raised") {
      views::monitor::Alarm alarm = alarm_in(line);
      if (alarm.incident.rfind(incidents, 0) == 0)
        alarm.incident = shown + alarm.incident.substr(incidents.size());
      std::ostringstream words;
      words << alarm;
      told.raised.push_back(words.str());
    }
  }
  return told;
}

}  // namespace torchtap::tools::preload
