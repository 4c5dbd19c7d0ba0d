#pragma once

#include <torchtap/core/api.hpp>

namespace torchtap::model::detail {

/// Marks modules that run hooks around their own `forward`. The room hooks derives its hook point from this.
class TORCHTAP_API RunsHooks {
 public:
  virtual ~RunsHooks() = default;

 protected:
  RunsHooks() noexcept = default;
  RunsHooks(const RunsHooks&) noexcept = default;
  RunsHooks& operator=(const RunsHooks&) noexcept = default;
};

}  // namespace torchtap::model::detail
