// The notices that a viewer gets while runs continue.
#include <limits>

#include <torchtap/json/json.hpp>
#include <torchtap/views/explorer/detail/viewer_notices.hpp>

namespace torchtap::views::explorer::detail {

namespace {

constexpr auto never = std::numeric_limits<std::uint64_t>::max();

}  // namespace

std::string Notices::next(const Runs& runs) {
  told_.resize(runs.size(), never);  // a viewer that came back learns which runs there are now
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::size_t index = turn_++ % runs.size();
    Run& run = *runs[index];
    std::uint64_t& told = told_[index];
    const std::uint64_t sequence = run.sequence();
    if (sequence == told) continue;
    const std::uint64_t since = told == never ? 0 : told;
    told = sequence;
    return json::text({{"run", "r" + std::to_string(index)},
                       {"step", run.steps().second},
                       {"graph", run.graph_version()},
                       {"sequence", sequence},
                       {"changed", run.changed(since)},
                       {"state", run.info().state},
                       {"identity", run.info().identity}});
  }
  return "";
}

std::string token_in(const std::string& message) {
  return json::Reader(json::parse_object(message)).get<std::string>("token", "");
}

}  // namespace torchtap::views::explorer::detail
