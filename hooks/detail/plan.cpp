// Sorts the hooks of a module by when they run.

#include <algorithm>

#include <torchtap/hooks/detail/plan.hpp>

namespace torchtap::hooks::detail {
namespace {

int rank(const Hook& hook) {
  if (hook.is_scope) return 0;
  switch (hook.kind) {
    case Kind::forward_pre:
      return 1;
    case Kind::forward:
    case Kind::forward_output:
      return 2;
    case Kind::backward_input:
      return 3;
    case Kind::backward_output:
    case Kind::backward_parameter:  // of a tensor, and never in a plan
      return 4;
  }
  return 4;
}

}  // namespace

Plan::Plan(const std::vector<std::shared_ptr<Hook>>& attached) : hooks(attached) {
  std::stable_sort(hooks.begin(), hooks.end(),
                   [](const auto& a, const auto& b) { return rank(*a) < rank(*b); });
  const auto count = [&](int most) {
    return static_cast<std::size_t>(
        std::count_if(hooks.begin(), hooks.end(), [&](const auto& hook) { return rank(*hook) <= most; }));
  };
  forward_pre_begin = count(0);
  forward_pre_end = count(1);
  forward_end = count(2);
  backward_input_end = count(3);
  sees_inputs = std::any_of(hooks.begin(), hooks.end(),
                            [](const auto& hook) { return !hook->is_scope && hook->kind == Kind::forward; });
  wants_inputs = forward_pre_begin != forward_pre_end || sees_inputs || has_backward_input();
  wants_outputs = forward_end != forward_pre_end || has_backward_input() || has_backward_output();
}

}  // namespace torchtap::hooks::detail
