#pragma once

/// Finds the reduction inside an `Any` that can share a pass over a sample.

#include <torchtap/reductions/any.hpp>
#include <torchtap/reductions/pass.hpp>

namespace torchtap::reductions::detail {

/// The reduction, if it shares a pass; otherwise null.
inline SharesPass* sharing(Any& reduction) noexcept {
  return static_cast<SharesPass*>(core::Access::sink(reduction).pass_member());
}
/// Access for reading.
inline const SharesPass* sharing(const Any& reduction) noexcept {
  return static_cast<const SharesPass*>(core::Access::sink(reduction).pass_member());
}

}  // namespace torchtap::reductions::detail
