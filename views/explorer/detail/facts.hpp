#pragma once

// What an operation does with the values of its arguments.

#include <c10/util/flat_hash_map.h>

#include <vector>

#include <torchtap/operations/event.hpp>

namespace torchtap::views::explorer::detail {

/// What holds for all calls of an operation.
struct OperationFacts {
  /// The result depends on the shapes of the arguments alone: `zeros_like`, `new_full`.
  bool shapes_only = false;
  /// Of each argument: what was in it before plays no part, as in `fill_` and in `out`.
  std::vector<bool> overwritten;
};

/// Facts by operation. Not for several threads at once.
class FactTable {
 public:
  const OperationFacts& of(const operations::Event& event);

 private:
  ska::flat_hash_map<const c10::FunctionSchema*, OperationFacts> facts_;
};

}  // namespace torchtap::views::explorer::detail
