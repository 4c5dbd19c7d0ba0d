#pragma once

/// What a reduction in a library of its own has in common with those of the kernel.

#include <cstdint>
#include <functional>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/detail/catalogue.hpp>
#include <torchtap/reductions/reduction.hpp>

namespace torchtap::reductions::extend {

// For a class that derives from `Reduction`.
using detail::Accepts;
using detail::Folding;
using detail::Intake;
using detail::own_copy;
using detail::Owned;
using detail::Rows;
using detail::to_text;

using detail::Arguments;
using detail::Named;

/// From now on `parse`, `restore` and `catalogue` know the reduction. Call it while no other thread uses
/// them, as when the library is loaded.
TORCHTAP_API void add_to_catalogue(Named named);

/// Calls `f(begin, end)` for parts of [0, units) on LibTorch's threads, or on the current thread if
/// `elements` is small.
TORCHTAP_API void parallel(std::int64_t units, std::int64_t elements,
                           const std::function<void(std::int64_t, std::int64_t)>& f);

}  // namespace torchtap::reductions::extend
