#include "explored_pages.hpp"

#include <c10/util/Exception.h>

#include <filesystem>

#include "terminal/message.hpp"

namespace torchtap::tools::preload {

std::string ExploredPages::open(Report& report, const std::string& folder) {
  std::error_code error;
  if (opened_.count(report.number) != 0 || !std::filesystem::exists(folder + "/explorer/run.tapx", error))
    return {};
  opened_.insert(report.number);
  try {
    const auto options = views::explorer::ServeOptions().port(report.is_program ? config_.port : 0);
    const auto [server, is_new] = servers_.emplace(report.number, views::explorer::Server({folder}, options));
    const std::string& url = server->second.url();
    return report.is_program ? url : c10::str("process ", report.process, " (", report.program, "): ", url);
  } catch (const std::exception& failed) {
    report.lost = config_.save.empty();
    return (report.lost ? "nothing is shown: " : "there is no page, but the run is saved: ") +
           tools::message_of(failed);
  }
}

}  // namespace torchtap::tools::preload
