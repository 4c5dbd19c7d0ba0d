#pragma once

/// What reductions that feed rows of a sample to other reductions have in common.

#include <torchtap/reductions/detail/companion.hpp>
#include <torchtap/reductions/detail/sharing.hpp>

namespace torchtap::reductions::extend {

using detail::as_source;
using detail::choose_rows;
using detail::companion;
using detail::on_cpu;
using detail::Selection;
using detail::sharing;

}  // namespace torchtap::reductions::extend
