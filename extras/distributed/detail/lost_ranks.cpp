// All ranks agree on one answer, which names the ranks that died, hang or did not come.
#include <algorithm>
#include <sstream>
#include <thread>

#include <torchtap/base/error.hpp>
#include <torchtap/distributed/detail/lost_ranks.hpp>
#include <torchtap/distributed/detail/pulse.hpp>

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

/// Asks the store for ranks that did not come, and ranks that came but do not answer; "" if there are none.
std::string lost_ranks(OverStore& roll, const RollCall& call) {
  std::vector<int> silent, absent;
  const auto end = Clock::now() + call.answer;
  const auto waits_for = [&](OverStore::Sign sign) {
    return sign == OverStore::Sign::beats || (sign == OverStore::Sign::absent && call.absent_lost);
  };
  for (int rank = 0; rank < roll.size(); ++rank) {
    auto sign = roll.sign_of(rank);
    while (waits_for(sign) && Clock::now() < end) {
      std::this_thread::sleep_for(Milliseconds(10));
      sign = roll.sign_of(rank);
    }
    if (!waits_for(sign)) continue;
    (sign == OverStore::Sign::beats ? silent : absent).push_back(rank);
  }
  std::string why;
  if (!silent.empty()) {
    why =
        c10::str(listed(silent), silent.size() == 1 ? " died or hangs" : " died or hang",
                 ": nothing was heard within ", call.answer.count(), " ms when rank ", roll.rank(), " asked");
  }
  if (!absent.empty()) {
    why += c10::str(why.empty() ? "" : "; ", listed(absent), " did not come, or died before (the timeout is ",
                    call.timeout.count(), " ms)");
  }
  return why;
}

}  // namespace

std::string store_gone(int server, int rank, const LinkError& error) {
  if (server < 0)
    return c10::str("rank ", rank, ": ", without_stop(error.what()),
                    "; the process that serves it died or ended");
  return c10::str("rank ", server, ", which serves the store, died or ended (", without_stop(error.what()),
                  ")");
}

std::string settled(OverStore& roll, const std::string& what, const RollCall& call) {
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
  auto decision = first ? roll.decision() : decision_within(call.answer * 2);
  if (decision.has_value()) return *decision;
  std::string why = lost_ranks(roll, call);
  if (why.empty()) why = c10::str("rank ", roll.rank(), " reports: ", what);
  if (roll.decide(why)) return why;
  decision = decision_within(call.answer);
  return decision.value_or(why);
}

Milliseconds time_to_answer(Milliseconds timeout) {
  return std::min(timeout, 4 * Pulse::period(timeout) + Milliseconds(1000));
}

}  // namespace torchtap::distributed::detail
