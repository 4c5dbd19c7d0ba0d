#pragma once

// Findings of the rules about a run, with the step at which each began.

#include <cstdint>
#include <vector>

#include <torchtap/rules/rules.hpp>
#include <torchtap/views/explorer/detail/run.hpp>

namespace torchtap::views::explorer::detail {

/// A rule that holds for a tensor of a call from the step `since` on.
struct Ill {
  std::int32_t call = 0;
  What what = What::output;
  std::int64_t since = 0;
  rules::Finding finding;
};

/// The rules that hold for the newest values; for NaN and infinities, the rules that ever held.
std::vector<Ill> ills_of(Run& run);

}  // namespace torchtap::views::explorer::detail
