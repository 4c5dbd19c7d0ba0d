#pragma once

#include <string>
#include <vector>

#include "config.hpp"
#include "report.hpp"
#include "supervise.hpp"

namespace torchtap::preload {

/// Gives the directory that was asked for to the only recording there is, where the program itself has none:
/// `sh -c './program'` leaves what one expects.
void settle(std::vector<Report>& reports, const Config& config);

/// What there is to say when the program has ended, a sentence each: recordings but for the one that was
/// asked for, what is missing in them, why there is none. `shown` is how the user calls the directory.
std::vector<std::string> summarize(const std::vector<Report>& reports, const Config& config,
                                   const std::string& shown, const Ended& program);

}  // namespace torchtap::preload
