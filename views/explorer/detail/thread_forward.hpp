#pragma once

// The forwards that a thread runs.

#include <cstdint>
#include <memory>
#include <vector>

#include <torchtap/views/explorer/detail/watched_model_forward.hpp>

namespace torchtap::views::explorer::detail {

/// One model's forward in this thread.
struct ThreadForward {
  std::weak_ptr<WatchedModel> watched;
  std::uint64_t serial;
  std::unique_ptr<Forward> forward;
  std::unique_ptr<operations::Scope> left_open{};  // of a forward that ended in a backward

  /// Whether it threw: a forward that began later does not run inside of it.
  bool is_stale() const;

  /// Those of this thread.
  static std::vector<ThreadForward>& all();
  /// Numbers forwards in the order in which they begin.
  static std::int64_t next();
  /// Closes the scopes of forwards that began inside of one which threw, the innermost first, as scopes have
  /// to be.
  static void close_scopes_inside(const Forward& forward);
};

}  // namespace torchtap::views::explorer::detail
