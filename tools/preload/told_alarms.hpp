#pragma once

// Reads alarms back from alarms.jsonl, for the launcher.

#include <cstdint>
#include <string>
#include <vector>

namespace torchtap::tools::preload {

/// The alarms that monitors wrote into the alarms.jsonl of a folder of incidents.
struct ToldAlarms {
  std::vector<std::string> raised;  ///< a line each: "drift  layer3.1.conv2  output  256 rows …"
  std::vector<std::string> notes;   ///< "not all is watched: …"
};

/// The size of the file now, 0 if there is none: new lines begin there.
std::int64_t size_of_alarms(const std::string& incidents);
/// The alarms from byte `from` on. Lines that cannot be read are left out. Paths of incidents begin as
/// `shown`, not as `incidents`.
ToldAlarms alarms_told(const std::string& incidents, std::int64_t from, const std::string& shown);

}  // namespace torchtap::tools::preload
