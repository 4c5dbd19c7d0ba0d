#pragma once

// Decides which alarms are raised, with hysteresis.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <torchtap/views/monitor/alarm.hpp>

namespace torchtap::views::monitor::detail {

/// An alarm is raised when its rule holds, and cleared after two windows in a row in which it did not. One
/// thread at a time.
class AlarmBook {
 public:
  /// The subject of an alarm: rule, path, tensor, slot.
  using Key = std::tuple<std::string, std::string, rules::Tensor, std::int64_t>;
  static Key key_of(const rules::Finding& finding);

  bool raised(const Key& key) const { return raised_.count(key) != 0; }
  /// Something that is about one forward. False if it is raised already. A window without the finding does
  /// not count as a window with it.
  bool raise(const Alarm& alarm);
  /// A window has ended in which these hold. Those that are `kept` are neither raised nor cleared by it.
  /// Returns the new ones among `holding`, in order, and then the cleared ones.
  std::vector<Alarm> end_window(const std::vector<Alarm>& holding,
                                const std::function<bool(const Key&)>& kept = {});
  /// An incident was written about it.
  void set_incident(const Key& key, const std::string& folder);
  std::vector<Alarm> all() const;

 private:
  static constexpr int windows_without = 2;
  struct Raised {
    Alarm alarm;
    int without = 0;
  };
  std::map<Key, Raised> raised_;
};

}  // namespace torchtap::views::monitor::detail
