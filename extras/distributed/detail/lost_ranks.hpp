#pragma once

/// Finds the ranks that a merge or a meeting failed for: all ranks agree on one answer.

#include <string>

#include <torchtap/distributed/detail/transport.hpp>

namespace torchtap::distributed::detail {

/// How long ranks that live may take to answer an alarm, if they beat with the period of `timeout`.
Milliseconds time_to_answer(Milliseconds timeout);

/// How ranks are asked.
struct RollCall {
  Milliseconds timeout;     ///< for which ranks that did not come were waited for
  Milliseconds answer;      ///< the time that they have to answer
  bool absent_lost = true;  ///< whether ranks that did not come are lost, and not only late
};

/// Why it failed, the same on all ranks: the ranks that died, hang or did not come, or else `what`, as this
/// rank's report; "" if it succeeded nevertheless. Throws `LinkError` if the store ended.
std::string settled(OverStore& roll, const std::string& what, const RollCall& call);

/// The message for a store that does not answer, with the rank that serves it, unless that is below 0.
std::string store_gone(int server, int rank, const LinkError& error);

}  // namespace torchtap::distributed::detail
