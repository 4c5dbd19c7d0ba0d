#pragma once

/// What reductions that feed rows of a sample to other reductions have in common.

#include <torchtap/reductions/extend/own_reduction.hpp>
#include <torchtap/statistics/detail/chosen_rows.hpp>

namespace torchtap::reductions::extend {

using statistics::detail::as_source;
using statistics::detail::choose_rows;
using statistics::detail::companion;
using statistics::detail::on_cpu;
using statistics::detail::Selection;

}  // namespace torchtap::reductions::extend
