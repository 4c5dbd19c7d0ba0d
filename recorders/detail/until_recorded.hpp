#pragma once

/// How `Recorder::until_recorded` ends a forward.

#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::recorders::detail {

class Slots;

/// A forward that ends when each of several modules was recorded. Lives on the stack around it.
class UntilRecorded {
 public:
  explicit UntilRecorded(std::vector<const Slots*> waiting);
  ~UntilRecorded();
  UntilRecorded(const UntilRecorded&) = delete;
  UntilRecorded& operator=(const UntilRecorded&) = delete;

 private:
  friend void stop_if_last(const Slots& recorded);
  std::vector<const Slots*> waiting_;
  UntilRecorded* const outer_;  // of this thread
};

/// Thrown by a hook to end a forward. Not derived from `std::exception`, so that only `until_recorded`
/// catches it.
struct TORCHTAP_API StopForward {
  const UntilRecorded* until;
};

/// Called when an event was recorded. Throws `StopForward` if it is the last one that this thread's forward
/// waits for.
TORCHTAP_API void stop_if_last(const Slots& recorded);

}  // namespace torchtap::recorders::detail
