#pragma once

/// Alarms: a rule that began to hold, or drift.

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/rules/rules.hpp>
#include <torchtap/views/monitor/drift.hpp>

namespace torchtap::views::monitor {

/// A rule that holds, or drift.
struct TORCHTAP_API Alarm {
  rules::Finding finding;      ///< whose rule is "drift" for drift
  std::optional<Drift> drift;  ///< only for drift
  std::int64_t time_ns = 0;    ///< since 1970, UTC
  std::int64_t forward = 0;    ///< number of the last forward it is about, from 0
  std::int64_t window = 0;     ///< number of the window, from 0; -1 if it is about one forward
  bool raised = true;          ///< false: it is cleared
  std::string incident;        ///< folder with the inputs that led to it; empty if no folder was written
};
/// One line: "drift  layer3.1.conv2  output  256 rows  T² 412 (limit 74)  PSI 0.19 …".
TORCHTAP_API std::ostream& operator<<(std::ostream& stream, const Alarm& alarm);
/// One line of `alarms.jsonl` (views/monitor/FORMAT.md), without its end.
TORCHTAP_API std::string to_json(const Alarm& alarm, const std::string& model);

}  // namespace torchtap::views::monitor
