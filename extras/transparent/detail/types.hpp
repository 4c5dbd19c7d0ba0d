#pragma once

// The `forward`s that this library defines in place of LibTorch's.

#include <typeinfo>
#include <vector>

#include <torchtap/hooks/extend/builtins.hpp>

namespace torch::nn {
#define TORCHTAP_DECLARE(Name) class Name##Impl;
#define TORCHTAP_DECLARE_TEMPLATE(Template, D, Name) TORCHTAP_DECLARE(Name)
TORCHTAP_BUILTINS(TORCHTAP_DECLARE, TORCHTAP_DECLARE_TEMPLATE)
#undef TORCHTAP_DECLARE_TEMPLATE
#undef TORCHTAP_DECLARE
}  // namespace torch::nn

namespace torchtap::transparent::detail {

/// One `forward` that this library defines.
struct Definition {
  const std::type_info* type;
  const void* function;  ///< our definition
  bool in_header;        ///< LibTorch exports no symbol for it
};

std::vector<Definition> symbol_definitions();
std::vector<Definition> entry_point_definitions();
std::vector<Definition> norm_definitions();

}  // namespace torchtap::transparent::detail
