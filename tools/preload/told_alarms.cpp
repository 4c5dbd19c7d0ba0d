#include "told_alarms.hpp"

#include <cmath>
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

double number_in(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : 0;
}

std::int64_t integer_in(const Json& line, const char* key, std::int64_t otherwise = 0) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number_integer() ? found->get<std::int64_t>() : otherwise;
}

std::string text_in(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

/// As far as an alarm's line for people says it.
views::monitor::Alarm alarm_in(const Json& line) {
  views::monitor::Alarm alarm;
  rules::Finding& finding = alarm.finding;
  finding.rule = text_in(line, "rule");
  finding.path = text_in(line, "module");
  finding.type = text_in(line, "type");
  for (const auto tensor :
       {rules::Tensor::input, rules::Tensor::output, rules::Tensor::gradient, rules::Tensor::parameter}) {
    if (text_in(line, "tensor") == rules::name_of(tensor)) finding.tensor = tensor;
  }
  finding.slot = integer_in(line, "slot");
  finding.value = number_in(line, "value");
  finding.limit = number_in(line, "limit");
  finding.sentence = text_in(line, "sentence");
  alarm.forward = integer_in(line, "forward");
  alarm.window = integer_in(line, "window", -1);
  alarm.incident = text_in(line, "incident");
  if (line.contains("psi")) {
    alarm.drift.emplace();
    const auto value = line.find("value");  // JSON has no infinity
    alarm.drift->t2 = value != line.end() && value->is_null() ? INFINITY : finding.value;
    alarm.drift->limit = finding.limit;
    alarm.drift->psi = number_in(line, "psi");
    alarm.drift->shift = number_in(line, "shift");
    alarm.drift->ratio = number_in(line, "ratio");
    alarm.drift->zeros = number_in(line, "zeros");
    alarm.drift->rows = integer_in(line, "rows");
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
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) continue;
    if (line.contains("note")) {
      told.notes.push_back(text_in(line, "note"));
    } else if (text_in(line, "state") == "raised") {
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
