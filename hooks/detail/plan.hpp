#pragma once

/// Defines `Plan`, the immutable list of the hooks of one module.

#include <cstddef>
#include <memory>
#include <vector>

#include <torchtap/hooks/detail/hook.hpp>

namespace torchtap::hooks::detail {

/// An immutable list of one module's hooks; replaced as a whole.
struct Plan : std::enable_shared_from_this<Plan> {
  /// Scopes first, then sorted by kind and by place.
  std::vector<std::shared_ptr<Hook>> hooks;
  std::size_t forward_pre_begin = 0, forward_pre_end = 0;  // forward_pre
  std::size_t forward_end = 0;                             // forward and forward_output, by place
  std::size_t backward_input_end = 0;
  bool sees_inputs = false;  ///< a hook needs the inputs after forward
  bool wants_inputs = false, wants_outputs = false;

  explicit Plan(const std::vector<std::shared_ptr<Hook>>& attached);
  bool has_backward_input() const noexcept { return backward_input_end != forward_end; }
  bool has_backward_output() const noexcept { return hooks.size() != backward_input_end; }
};

}  // namespace torchtap::hooks::detail
