#pragma once

/// Code of the program that runs for a record, its transform or its reduction, and may come back to it.

#include <torchtap/base/api.hpp>

namespace torchtap::recorders::detail {

class Slots;

/// While it lives, this thread runs such code of a subrecorder.
class TORCHTAP_API OwnCode {
 public:
  enum class What {
    transform,  ///< under no lock
    reduction,  ///< under the lock of the slots
    beside,     ///< the reduction, under the lock of this thread's sinks alone
  };
  /// Throws where it would begin in the middle of itself.
  OwnCode(const Slots& of, What what);
  ~OwnCode();
  OwnCode(const OwnCode&) = delete;
  OwnCode& operator=(const OwnCode&) = delete;
  /// Whether this thread runs it.
  static bool runs(const Slots& of, What what) noexcept;

 private:
  const Slots& of_;
  const What what_;
  const OwnCode* const outer_;
};

}  // namespace torchtap::recorders::detail
