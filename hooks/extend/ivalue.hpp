#pragma once

/// Collects the tensors of calls whose arguments are values of `c10::IValue`.

#include <torchtap/hooks/detail/ivalue.hpp>

namespace torchtap::hooks::extend {

using detail::collect;

}  // namespace torchtap::hooks::extend
