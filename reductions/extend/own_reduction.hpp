#pragma once

/// What a reduction in a library of its own has in common with those of the kernel.

#include <cstdint>
#include <functional>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/detail/intake.hpp>
#include <torchtap/reductions/detail/nested.hpp>
#include <torchtap/reductions/detail/sharing.hpp>
#include <torchtap/reductions/pass.hpp>
#include <torchtap/reductions/reduction.hpp>
// A name for `parse` and `restore`, where the component statistics was built.
#if __has_include(<torchtap/reductions/extend/named.hpp>)
#include <torchtap/reductions/extend/named.hpp>
#endif

namespace torchtap::reductions::extend {

// For a class that derives from `Reduction`.
using core::detail::checked_reduction;
using core::detail::has_recipe;
using detail::Accepts;
using detail::all_fresh_v;
using detail::as_reduction;
using detail::Assignable;
using detail::companions;
using detail::describe;
using detail::expect_no_companions;
using detail::Folding;
using detail::has_check;
using detail::Intake;
using detail::kernel_type;
using detail::Ledger;
using detail::Lines;
using detail::mean_type;
using detail::Memory;
using detail::own_copy;
using detail::Owned;
using detail::parts_of;
using detail::recipe;
using detail::recipe_of;
using detail::Rows;
using detail::sharing;
using detail::tabulate;
using detail::to_text;
using detail::wide_type;

/// Writes each element to `numbers`, of float32 (not for float64) or float64. Returns false, and does
/// nothing, for another pair of dtypes.
TORCHTAP_API bool copy(const Memory& x, c10::ScalarType to, void* numbers);

/// Calls `f(begin, end)` for parts of [0, units) on LibTorch's threads, or on the current thread if
/// `elements` is small.
TORCHTAP_API void parallel(std::int64_t units, std::int64_t elements,
                           const std::function<void(std::int64_t, std::int64_t)>& f);

}  // namespace torchtap::reductions::extend
