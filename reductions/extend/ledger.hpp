#pragma once

/// What a part needs to add samples up in place of reductions, which take them in later.

#include <torchtap/core/sink.hpp>
#include <torchtap/reductions/detail/device_rows.hpp>
#include <torchtap/reductions/detail/intake.hpp>
#include <torchtap/reductions/detail/ledger.hpp>
#include <torchtap/reductions/pass.hpp>

namespace torchtap::reductions::extend {

using detail::Accepts;
using detail::device_rows;
using detail::Folding;
using detail::Intake;
using detail::kernels_for;
using detail::Ledger;
using detail::MaskOf;
using detail::Rows;

/// The reduction of a sink, if it can share a pass over a sample; else null.
inline SharesPass* sharing(core::Sink& sink) noexcept {
  return static_cast<SharesPass*>(sink.pass_member());
}

}  // namespace torchtap::reductions::extend
