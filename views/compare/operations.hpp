#pragma once

/// Finds the first operation inside of a call that differs.

#include <array>
#include <cstdint>
#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/views/compare/run.hpp>
#include <torchtap/views/compare/verdict.hpp>

namespace torchtap::views::compare {

/// A call of a module: its path, and its number among the recorded calls of the module in a thread; of
/// several threads, that which was given what has the digest `given`, or the first.
struct CallOf {
  const Run& run;  ///< the run that has the call
  std::string path;
  std::uint32_t sample = 0;
  std::array<std::uint64_t, 2> given = {};  ///< 0 for the first of the threads
};

/// The first operation of `a` whose arguments agree with the operation of `b` at the same place, and whose
/// result does not: "aten::native_batch_norm, operation 2 of 5". Empty if no operation differs, or if one run
/// has no operations of the call. Operations are paired by their results, their names and their order.
TORCHTAP_API std::string first_operation(const CallOf& a, const CallOf& b, const Thresholds& thresholds = {});

}  // namespace torchtap::views::compare
