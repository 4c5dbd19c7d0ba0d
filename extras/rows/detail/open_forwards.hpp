#pragma once

/// Tells the forwards that a thread is in apart, and keeps their groups.

#include <cstdint>
#include <memory>

#include <torchtap/hooks/event.hpp>
#include <torchtap/hooks/forward.hpp>
#include <torchtap/model/module_ref.hpp>
#include <torchtap/rows/detail/dump.hpp>

namespace torchtap::rows::detail {

/// The group of a call, and its number in its forward.
struct Call {
  std::shared_ptr<Group> group;
  std::int64_t number = 0;
};

/// Finds the forward of a call. Where the root of a module cannot be hooked, all calls inside of one
/// `core::Context` (`Context::together`) are one forward, and without a context each call of the outermost
/// hooked module is.
class OpenForwards {
 public:
  explicit OpenForwards(const model::ModuleRef& module);
  /// In the hook of the call. `module` is any address that is the module's alone.
  Call of(Dump& dump, const void* module, const hooks::Event& event, at::IntArrayRef sizes) const;

 private:
  const hooks::Forwards forwards_;
  const bool hooked_;
};

}  // namespace torchtap::rows::detail
