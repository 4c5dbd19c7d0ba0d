#pragma once

/// Runs an operation of a `Scope` and sees what it calls in its turn.

#include <torchtap/base/api.hpp>
#include <torchtap/operations/scope.hpp>

namespace torchtap::operations {

/// `event.run()`, which calls `inside` for each operation that this one calls, whatever the level of the
/// scope:
///
///     operations::Scope scope([](operations::Event& event) {
///       operations::run_inside(event, [](operations::Event& part) { count(part.name()); });
///     });
///
/// No scope sees those. `inside` is called as a scope's callback is; it may call `run_inside` of its event to
/// see all nested operations. Throws as `Event::run` does, and `c10::ValueError` if `inside` is empty.
TORCHTAP_API void run_inside(Event& event, const Callback& inside);

}  // namespace torchtap::operations
