#include <cmath>
#include <functional>
#include <vector>

#include <torchtap/views/report/detail/marks.hpp>
#include <torchtap/views/watch/verdict.hpp>

namespace torchtap::views::report::detail {
namespace {

void visit(ModuleRow& row, const std::function<void(ModuleRow&)>& function) {
  function(row);
  for (ModuleRow& child : row.children) visit(child, function);
}

bool is_bad(const NonFinite& values) {
  return values.nan > 0 || values.inf > 0;
}

}  // namespace

void mark(ModuleRow& root, bool ran) {
  double previous = 0;  // the root mean square of the neighbour's gradient
  visit(root, [&](ModuleRow& row) {
    const auto add = [&](Mark mark) { row.marks.push_back(mark); };
    if (ran && row.has_forward && row.reachable && !row.summed && !row.used_without_call &&
        row.forward.inclusive.calls == 0 && row.inputs.empty() && row.outputs.empty()) {
      add(Mark::never_ran);
    }
    if (row.children.empty() && row.zero_fraction.value_or(0) >= watch::dead_share) add(Mark::dead);
    if (is_bad(row.forward.in) || is_bad(row.forward.out) || is_bad(row.backward.in) ||
        is_bad(row.backward.out) || is_bad(row.parameter_values)) {
      add(Mark::non_finite);
    }
    if (!row.gradient_norm) return;
    const double own = *row.gradient_ratio;
    row.gradient_ratio.reset();
    if (previous > 0 && std::isfinite(own)) row.gradient_ratio = own / previous;
    const watch::Gradient verdict = watch::verdict_on_gradient(own, previous);
    if (verdict == watch::Gradient::exploding) add(Mark::exploding);
    if (verdict == watch::Gradient::vanishing) add(Mark::vanishing);
    if (std::isfinite(own) && own > 0) previous = own;
  });
}

}  // namespace torchtap::views::report::detail
