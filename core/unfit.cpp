// Emits the type information of `Unfit` once, so that all libraries of a process agree on the type.

#include <torchtap/core/unfit.hpp>

namespace torchtap::core {

Unfit::~Unfit() = default;

}  // namespace torchtap::core
