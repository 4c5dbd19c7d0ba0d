#pragma once

/// The one list of the kinds of recorders, with their names as in classes and manifests.

#include <array>
#include <cstddef>
#include <string>

#include <torchtap/hooks/event.hpp>

namespace torchtap::recorders::detail {

enum class Kind {
  forward_pre,
  forward_input,
  forward_output,
  backward_input,
  backward_output,
  backward_parameter
};

struct KindTraits {
  Kind kind;
  const char* name;
  hooks::Kind hook;  // where the data comes from
  bool gradients;    // not values
  bool outputs;      // not inputs
  bool parameters;   // a subrecorder for each parameter, not for each module
};

/// In the order of `Kind`.
inline constexpr std::array<KindTraits, 6> kKinds{{
    {Kind::forward_pre, "ForwardPre", hooks::Kind::forward_pre, false, false, false},
    {Kind::forward_input, "ForwardInput", hooks::Kind::forward, false, false, false},
    {Kind::forward_output, "ForwardOutput", hooks::Kind::forward_output, false, true, false},
    {Kind::backward_input, "BackwardInput", hooks::Kind::backward_input, true, false, false},
    {Kind::backward_output, "BackwardOutput", hooks::Kind::backward_output, true, true, false},
    {Kind::backward_parameter, "BackwardParameter", hooks::Kind::backward_parameter, true, false, true},
}};

constexpr const KindTraits& traits(Kind kind) noexcept {
  return kKinds[static_cast<std::size_t>(kind)];
}

/// The name of a kind: "ForwardOutput".
const std::string& name_of(Kind kind) noexcept;
/// The kind called `name`. Throws `c10::ValueError` that lists the names.
Kind kind_of(const std::string& name);

}  // namespace torchtap::recorders::detail
