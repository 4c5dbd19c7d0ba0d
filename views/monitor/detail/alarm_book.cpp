// Raises alarms and clears them.
#include <set>

#include <torchtap/views/monitor/detail/alarm_book.hpp>

namespace torchtap::views::monitor::detail {

AlarmBook::Key AlarmBook::key_of(const rules::Finding& finding) {
  return {finding.rule, finding.path, finding.tensor, finding.slot};
}

bool AlarmBook::raise(const Alarm& alarm) {
  const auto [at, is_new] = raised_.try_emplace(key_of(alarm.finding), Raised{alarm});
  at->second.without = -1;
  return is_new;
}

std::vector<Alarm> AlarmBook::end_window(const std::vector<Alarm>& holding,
                                         const std::function<bool(const Key&)>& kept) {
  std::vector<Alarm> changes;
  std::set<Key> hold;
  for (const Alarm& alarm : holding) {
    const Key key = key_of(alarm.finding);
    if (!hold.insert(key).second) continue;
    const auto [at, is_new] = raised_.try_emplace(key, Raised{alarm});
    at->second.without = 0;
    if (is_new) changes.push_back(alarm);
  }
  for (auto at = raised_.begin(); at != raised_.end();) {
    Raised& one = at->second;
    if (hold.count(at->first) != 0 || (kept && kept(at->first))) {
      one.without = 0;
    } else if (++one.without >= windows_without) {
      one.alarm.raised = false;
      changes.push_back(one.alarm);
      at = raised_.erase(at);
      continue;
    }
    ++at;
  }
  return changes;
}

void AlarmBook::set_incident(const Key& key, const std::string& folder) {
  const auto at = raised_.find(key);
  if (at != raised_.end()) at->second.alarm.incident = folder;
}

std::vector<Alarm> AlarmBook::all() const {
  std::vector<Alarm> alarms;
  for (const auto& [key, one] : raised_) alarms.push_back(one.alarm);
  return alarms;
}

}  // namespace torchtap::views::monitor::detail
