#pragma once

/// Connects ranks that meet in a store, within a time, and names those that are lost meanwhile.

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>
#include <string>

#include <torchtap/distributed/detail/transport.hpp>
#include <torchtap/distributed/group.hpp>

namespace torchtap::distributed::detail {

/// Ranks that meet.
struct Meeting {
  c10::intrusive_ptr<c10d::Store> store;  ///< with keys that no other meeting uses
  int rank = 0;
  int size = 1;
  int server = -1;       ///< the rank that serves the store; -1: none of them
  Milliseconds timeout;  ///< that the program gave
  Clock::time_point end;
};

/// The group that `connect` makes of a store, once all ranks have theirs. Throws `c10::Error`, whose message
/// is the same on all ranks, by the end of the meeting; `connect` may take longer, and its thread is left
/// behind then.
Group met(const Meeting& meeting,
          const std::function<Group(const c10::intrusive_ptr<c10d::Store>&)>& connect);

}  // namespace torchtap::distributed::detail
