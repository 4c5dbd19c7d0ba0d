#pragma once

// Turns the numbers of a window into facts for rules.

#include <torchtap/core/value.hpp>
#include <torchtap/rules/facts.hpp>

namespace torchtap::views::monitor::detail {

/// Sets facts from the results of `reductions::Blocks`, over all of their blocks, of values divided by
/// `scale`, which is positive.
void set_facts(rules::Facts& facts, const core::Results& blocks, double scale = 1);

}  // namespace torchtap::views::monitor::detail
