// What a process reports.
#include <iostream>

#include "linked.hpp"
#include "report.hpp"

namespace torchtap::preload {

void tell(Report& report, const std::string& folder, bool ended) {
  report.ended = ended;
  report.uses_torch = program_uses_torch();
  report.uses_python = program_uses_python();
  if (write(report, folder) || !ended) return;
  for (const auto& line : report.notes) std::cerr << "torchtap: " << line << std::endl;
}

}  // namespace torchtap::preload
