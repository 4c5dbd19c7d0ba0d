#pragma once

// The launcher's messages after the program has ended.

#include <string>
#include <vector>

#include <torchtap/views/monitor/incident.hpp>

#include "config.hpp"
#include "process_report.hpp"
#include "supervise.hpp"

namespace torchtap::tools::preload {

/// What the last forwards of a process say: of how others than the program ended, nobody knows.
views::monitor::Left left_by(const Report& report, const Ended& program);
/// Moves the only recording to the requested directory if the program itself has none, so that
/// `sh -c './program'` leaves its recording there.
void settle(std::vector<Report>& reports, const Config& config);

/// The messages after the program has ended, a sentence each: the recordings and their places, gaps in them,
/// and why there is no recording. `shown` is the user's spelling of the directory, `file` the program's file.
std::vector<std::string> summarize(const std::vector<Report>& reports, const Config& config,
                                   const std::string& shown, const Ended& program, const std::string& file);

}  // namespace torchtap::tools::preload
