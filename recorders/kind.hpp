#pragma once

/// The kinds of recorders, with their names as in classes and manifests: every place that asks for one asks
/// here.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include <torchtap/base/api.hpp>
#include <torchtap/hooks/event.hpp>

namespace torchtap::recorders {

/// The tensors of a module's call that a recorder sees.
enum class RecorderKind {
  forward_pre,
  forward_input,
  forward_output,
  backward_input,
  backward_output,
  backward_parameter
};

/// The facts about a kind.
struct KindTraits {
  RecorderKind kind;
  const char* name;  ///< "ForwardOutput"
  hooks::Kind hook;  ///< where the data comes from
  bool gradients;    ///< not values
  bool outputs;      ///< not inputs
  bool parameters;   ///< a subrecorder for each parameter, not for each module
};

/// In the order of `RecorderKind`.
inline constexpr std::array<KindTraits, 6> kKinds{{
    {RecorderKind::forward_pre, "ForwardPre", hooks::Kind::forward_pre, false, false, false},
    {RecorderKind::forward_input, "ForwardInput", hooks::Kind::forward, false, false, false},
    {RecorderKind::forward_output, "ForwardOutput", hooks::Kind::forward_output, false, true, false},
    {RecorderKind::backward_input, "BackwardInput", hooks::Kind::backward_input, true, false, false},
    {RecorderKind::backward_output, "BackwardOutput", hooks::Kind::backward_output, true, true, false},
    {RecorderKind::backward_parameter, "BackwardParameter", hooks::Kind::backward_parameter, true, false,
     true},
}};

/// The facts about `kind`.
constexpr const KindTraits& traits(RecorderKind kind) noexcept {
  return kKinds[static_cast<std::size_t>(kind)];
}

/// The name of a kind: "ForwardOutput".
TORCHTAP_API const std::string& name_of(RecorderKind kind) noexcept;
/// The facts about the kind called `name`; null if there is no such kind.
constexpr const KindTraits* find_kind(std::string_view name) noexcept {
  for (const KindTraits& kind : kKinds) {
    if (name == kind.name) return &kind;
  }
  return nullptr;
}
/// The kind called `name`. Throws `c10::ValueError` that lists the names.
TORCHTAP_API RecorderKind kind_of(const std::string& name);

}  // namespace torchtap::recorders
