#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include <torchtap/views/explorer/serve.hpp>

#include "config.hpp"
#include "process_report.hpp"

namespace torchtap::tools::preload {

/// The live pages of the program's processes, which the launcher shows from the runs that it writes.
class ExploredPages {
 public:
  explicit ExploredPages(const Config& config) : config_(config) {}

  /// Opens the page of a process whose runs are in `folder`, as soon as they can be read. Returns the line to
  /// print: its address, or why there is none; empty if there is nothing new.
  std::string open(Report& report, const std::string& folder);

 private:
  const Config& config_;
  std::set<std::uint32_t> opened_;  // processes, also where it failed
  std::map<std::uint32_t, views::explorer::Server> servers_;
};

}  // namespace torchtap::tools::preload
