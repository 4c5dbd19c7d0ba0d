#pragma once

/// Marks modules that run hooks around their own `forward`.

#include <string>

#include <torchtap/base/api.hpp>

namespace torchtap::model::extend {

/// Marks modules that run hooks around their own `forward`. The hook point in hooks/ derives from it.
class TORCHTAP_API RunsHooks {
 public:
  virtual ~RunsHooks() = default;
  /// Why calls of its forward may pass by its hooks; empty if none do. For notes.
  virtual std::string torchtap_why_unseen() const { return {}; }

 protected:
  RunsHooks() noexcept = default;
  RunsHooks(const RunsHooks&) noexcept = default;
  RunsHooks& operator=(const RunsHooks&) noexcept = default;
};

}  // namespace torchtap::model::extend
