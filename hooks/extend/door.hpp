#pragma once

/// Defines `Door`, a way to run hooks around the calls of a module, and lets parts add kinds of doors.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/hooks/detail/another_copy.hpp>
#include <torchtap/hooks/detail/hook_point.hpp>
#include <torchtap/hooks/detail/interposed.hpp>
#include <torchtap/hooks/detail/plan.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torchtap::hooks::extend {

using detail::check_copy;
using detail::Gate;
using detail::InterposedEntry;
using detail::InterposedTable;
using detail::Plan;

/// One way by which calls of a module reach its hooks. Open from its construction to its destruction, which
/// both happen under the registry's lock, as all calls of it.
class TORCHTAP_API Door {
 public:
  Door() = default;
  virtual ~Door() = default;
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  /// Where the calls find the hooks. Late calls may read it after the door was closed.
  virtual Gate& gate() noexcept = 0;
  /// Called when the hooks have changed, before the gate leads to them.
  virtual void show(const Plan& /*plan*/) {}
  /// Whether the module was destroyed. For doors of modules whose death nothing else reports.
  virtual bool expired() const noexcept { return false; }
};

/// The open doors of one module.
struct OpenDoors {
  const void* key = nullptr;  ///< by which the registry knows the module
  std::vector<std::unique_ptr<Door>> doors;

  /// Points to the door with this gate, or behind the last.
  auto find(const Gate& gate) const noexcept {
    return std::find_if(doors.begin(), doors.end(), [&](const auto& door) { return &door->gate() == &gate; });
  }
  bool has(const Gate& gate) const noexcept { return find(gate) != doors.end(); }
};

/// A kind of doors. Lives as long as the process.
class TORCHTAP_API DoorKind {
 public:
  /// What tells the module from others that have doors of this kind; null if it leaves that to the module's
  /// identity.
  virtual const void* key_of(const model::ModuleRef& /*module*/) const { return nullptr; }
  /// Adds those doors of this kind that lead to the module and are not open yet. `named` is the module in
  /// errors.
  virtual void open(const model::ModuleRef& module, const std::string& named, OpenDoors& doors) = 0;
  /// Called after hooks were attached or removed, several where that was put together.
  virtual void settle() {}

 protected:
  ~DoorKind() = default;
};

/// Adds a kind for the whole process.
TORCHTAP_API void add_door_kind(DoorKind& kind);

}  // namespace torchtap::hooks::extend
