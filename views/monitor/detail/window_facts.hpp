#pragma once

// The numbers of a window, as rules judge them.

#include <torchtap/core/value.hpp>
#include <torchtap/rules/facts.hpp>

namespace torchtap::views::monitor::detail {

/// Sets what results of `reductions::Blocks` tell, over all of their blocks, of values divided by `scale`,
/// which is positive.
void set_facts(rules::Facts& facts, const core::Results& blocks, double scale = 1);

}  // namespace torchtap::views::monitor::detail
