#pragma once

/// Marks modules that run hooks around their own `forward`.

#include <torchtap/base/api.hpp>

namespace torchtap::model::extend {

/// Marks modules that run hooks around their own `forward`. The hook point in hooks/ derives from it.
class TORCHTAP_API RunsHooks {
 public:
  virtual ~RunsHooks() = default;

 protected:
  RunsHooks() noexcept = default;
  RunsHooks(const RunsHooks&) noexcept = default;
  RunsHooks& operator=(const RunsHooks&) noexcept = default;
};

}  // namespace torchtap::model::extend
