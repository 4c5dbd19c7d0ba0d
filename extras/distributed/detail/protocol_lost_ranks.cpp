// Finds the rank that a merge failed for: all ranks agree on one answer, which names the ranks that died,
// hang or did not come.
#include <algorithm>
#include <sstream>
#include <thread>

#include <torchtap/base/error.hpp>
#include <torchtap/distributed/detail/protocol.hpp>

namespace torchtap::distributed::detail {
namespace {

std::string listed(const std::vector<int>& ranks) {
  std::ostringstream text;
  text << (ranks.size() == 1 ? "rank " : "ranks ");
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i != 0) text << (i + 1 == ranks.size() ? " and " : ", ");
    text << ranks[i];
  }
  return text.str();
}

}  // namespace

/// The message for a store that does not answer, with the rank that serves it if known.
std::string Protocol::store_gone(const LinkError& error) const {
  const int server = all_links_->server();
  if (server < 0)
    return c10::str("rank ", rank_, ": ", without_stop(error.what()),
                    "; the process that serves it died or ended");
  return c10::str("rank ", server, ", which serves the store, died or ended (", without_stop(error.what()),
                  ")");
}

/// Why the merge failed, the same on all ranks; "" if it succeeded. Throws `LinkError` if the store ended.
std::string Protocol::settled(const std::string& what) {
  OverStore& roll = *links_.roll;
  const auto decision_within = [&](Milliseconds time) {
    const auto end = Clock::now() + time;
    auto decision = roll.decision();
    while (!decision.has_value() && Clock::now() < end) {
      std::this_thread::sleep_for(Milliseconds(10));
      decision = roll.decision();
    }
    return decision;
  };
  const bool first = roll.alarm();
  roll.answer();
  auto decision = first ? roll.decision() : decision_within(time_to_answer() * 2);
  if (decision.has_value()) return *decision;
  std::string why = who_is_lost(what);
  if (roll.decide(why)) return why;
  decision = decision_within(time_to_answer());
  return decision.value_or(why);
}

Milliseconds Protocol::time_to_answer() const {
  return std::min(options_.timeout(), 4 * Pulse::period(options_.timeout()) + Milliseconds(1000));
}

/// Asks the store for ranks that did not come, and ranks that came but do not answer.
std::string Protocol::who_is_lost(const std::string& what) {
  std::vector<int> silent, absent;
  const auto end = Clock::now() + time_to_answer();
  for (int rank = 0; rank < size_; ++rank) {
    auto sign = links_.roll->sign_of(rank);
    while ((sign == OverStore::Sign::beats || sign == OverStore::Sign::absent) && Clock::now() < end) {
      std::this_thread::sleep_for(Milliseconds(10));
      sign = links_.roll->sign_of(rank);
    }
    if (sign == OverStore::Sign::beats) silent.push_back(rank);
    if (sign == OverStore::Sign::absent) absent.push_back(rank);
  }
  std::string why;
  if (!silent.empty()) {
    why =
        c10::str(listed(silent), silent.size() == 1 ? " died or hangs" : " died or hang",
                 ": nothing was heard within ", time_to_answer().count(), " ms when rank ", rank_, " asked");
  }
  if (!absent.empty()) {
    why += c10::str(why.empty() ? "" : "; ", listed(absent), " did not come, or died before (the timeout is ",
                    options_.timeout().count(), " ms)");
  }
  return why.empty() ? c10::str("rank ", rank_, " reports: ", what) : why;
}

}  // namespace torchtap::distributed::detail
