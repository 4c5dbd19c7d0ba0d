#pragma once

// Lines of alarms.jsonl (views/monitor/FORMAT.md).

#include <cstdint>
#include <string>

#include <torchtap/json/json.hpp>
#include <torchtap/views/monitor/alarm.hpp>

namespace torchtap::views::monitor::detail {

/// The line of an alarm.
json::Json json_of(const Alarm& alarm, const std::string& model);
/// A line that is about no alarm, without its end.
std::string note_line(const std::string& note, const std::string& model, std::int64_t time_ns);
/// Adds a line to `incidents/alarms.jsonl` by one write, which the lines of other processes do not divide. If
/// a killed process or a full disk has cut off the last line, the new one begins on the next. Throws
/// `c10::Error` if that fails; the file is as before then.
void append_line(const std::string& incidents, std::string line);

}  // namespace torchtap::views::monitor::detail
