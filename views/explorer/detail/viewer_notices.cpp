// The notices that a viewer gets while runs continue.
#include <limits>

#include <torchtap/base/rapidjson.hpp>
#include <torchtap/views/explorer/detail/json.hpp>
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
    Json json;
    json.begin();
    json.field("run", "r" + std::to_string(index));
    json.field("step", run.steps().second);
    json.field("graph", run.graph_version());
    json.field("sequence", sequence);
    json.list("changed");
    for (const std::int32_t series : run.changed(since)) json.item(series);
    json.end_list();
    json.field("state", run.info().state);
    json.field("identity", run.info().identity);
    json.end();
    told = sequence;
    return json.text();
  }
  return "";
}

std::string token_in(const std::string& message) {
  namespace rapid = base::rapid;
  rapid::Document document;
  document.Parse<rapid::kParseIterativeFlag>(message.data(), message.size());
  if (document.HasParseError() || !document.IsObject()) return "";
  const auto found = document.FindMember("token");
  if (found == document.MemberEnd() || !found->value.IsString()) return "";
  return {found->value.GetString(), found->value.GetStringLength()};
}

}  // namespace torchtap::views::explorer::detail
