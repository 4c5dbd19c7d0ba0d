// Thresholds of what is dead, exploding or vanishing.
#include <cmath>
#include <functional>
#include <vector>

#include <torchtap/views/report/detail/marks.hpp>

namespace torchtap::views::report::detail {
namespace {

/// A module all but this share of whose outputs is zero does nothing.
constexpr double dead_share = 0.99;
/// Ratios of the gradients of neighbours beyond which training is known to fail or to stand still.
constexpr double exploding_ratio = 1000, vanishing_ratio = 1e-3;

void visit(ModuleRow& row, const std::function<void(ModuleRow&)>& function) {
  function(row);
  for (ModuleRow& child : row.children) visit(child, function);
}

bool is_bad(const NonFinite& values) {
  return values.nan > 0 || values.inf > 0;
}

}  // namespace

void mark(ModuleRow& root, bool ran) {
  double previous = -1;  // the root mean square of the neighbour's gradient
  visit(root, [&](ModuleRow& row) {
    const auto add = [&](Mark mark) { row.marks.push_back(mark); };
    if (ran && row.has_forward && row.reachable && !row.summed && !row.used_without_call &&
        row.forward.inclusive.calls == 0 && row.inputs.empty() && row.outputs.empty()) {
      add(Mark::never_ran);
    }
    if (row.children.empty() && row.zero_fraction >= dead_share) add(Mark::dead);
    if (is_bad(row.forward.in) || is_bad(row.forward.out) || is_bad(row.backward.in) ||
        is_bad(row.backward.out) || is_bad(row.parameter_values)) {
      add(Mark::non_finite);
    }
    if (row.gradient_norm < 0) return;  // there is none
    const double own = row.gradient_ratio;
    row.gradient_ratio = previous > 0 && std::isfinite(own) ? own / previous : -1;
    if (!std::isfinite(own) || row.gradient_ratio > exploding_ratio) add(Mark::exploding);
    if (own == 0 || (row.gradient_ratio >= 0 && row.gradient_ratio < vanishing_ratio)) add(Mark::vanishing);
    if (std::isfinite(own) && own > 0) previous = own;
  });
}

}  // namespace torchtap::views::report::detail
