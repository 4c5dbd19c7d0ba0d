#pragma once

/// A subrecorder together with its hooks.

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/recorders/recorder.hpp>

namespace torchtap::recorders {

/// A subrecorder and the hooks that feed it.
struct Recorder::Attached {
  explicit Attached(std::shared_ptr<detail::Record> record) : subrecorder(std::move(record)) {}
  void detach() noexcept {
    handle.remove();
    forward.remove();
    former.clear();
    companions.clear();
  }
  /// Attaches to `module`. Throws as `hooks::attach` does. To be called once.
  void hook(const model::ModuleRef& module);
  /// Has the hooks of `other` instead of its own.
  void take_hooks(Attached&& other) noexcept {
    handle = std::move(other.handle);
    forward = std::move(other.forward);
    companions = std::move(other.companions);
    is_its_module = std::move(other.is_its_module);
  }

  Subrecorder subrecorder;
  hooks::Handle handle;
  hooks::Handle forward;  // for recorders of gradients
  std::vector<hooks::Handle> companions;
  std::function<bool(const model::ModuleRef&)> is_its_module;
  std::deque<hooks::Handle> former;  // of modules that were replaced and may still get gradients
};

}  // namespace torchtap::recorders
