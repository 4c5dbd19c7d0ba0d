#pragma once

/// Marks reductions that can share a pass over a sample.

#include <torchtap/base/api.hpp>

namespace torchtap::core::detail {

/// Marks a reduction that can share a pass over a sample with others. The core only hands it on; reductions
/// know the rest (`reductions::SharesPass`).
class TORCHTAP_API PassMember {
 protected:
  PassMember() = default;
  PassMember(const PassMember&) = default;
  PassMember(PassMember&&) = default;
  PassMember& operator=(const PassMember&) = default;
  PassMember& operator=(PassMember&&) = default;
  ~PassMember() = default;
};

}  // namespace torchtap::core::detail
