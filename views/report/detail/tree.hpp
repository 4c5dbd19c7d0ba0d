#pragma once

// The modules of a model, with the sums of each.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <torchtap/model/walk.hpp>
#include <torchtap/views/report/measurements.hpp>
#include <torchtap/views/watch/column.hpp>

namespace torchtap::views::report::detail {

/// Nanoseconds of one direction: of the repeat that runs, and of all.
struct TimeSums {
  /// Repeats of which each time is kept.
  static constexpr std::uint64_t kMost = 1'000;

  std::int64_t now = 0, total = 0, first = -1, least = 0;
  std::uint64_t repeats = 0;
  std::vector<std::int64_t> some;  // times of repeats: of all, or of `kMost`, each as likely as another

  /// Counts the repeat that runs.
  void count(std::minstd_rand& random) {
    total += now;
    least = repeats == 0 ? now : std::min(least, now);
    ++repeats;
    if (some.size() < kMost) return some.push_back(now);
    const std::uint64_t place = std::uniform_int_distribution<std::uint64_t>(0, repeats - 1)(random);
    if (place < kMost) some[place] = now;
  }
};

/// Sums for one direction of a module.
struct DirectionSums {
  std::int64_t calls = 0, calls_now = 0;
  TimeSums inclusive, self;
  Memory memory, memory_now;
  Work work, work_now, self_work, self_work_now;
  NonFinite in, out;
  bool summed_now = false;  // no call was seen, so that these are sums of the modules inside

  bool ran_now() const noexcept { return calls_now > 0 || summed_now; }
};

/// A parameter or buffer.
struct Held {
  std::string path;
  at::Tensor tensor;
  bool buffer = false;
  bool first = true;  // false if a module before holds it, too
};

/// A module of the tree. A shared module stands at its first path.
struct TreeNode {
  TreeNode(const model::ModuleRef& ref, std::int64_t index, std::int64_t above) noexcept
      : module(ref), parent(above), chain{index} {}

  model::ModuleRef module;
  std::int64_t parent;
  std::vector<std::int64_t> children;
  std::vector<std::int64_t> chain;  // itself and the modules around it in the tree, innermost first
  std::vector<Held> held;           // its own
  std::vector<TensorInfo> inputs, outputs, input_gradients, output_gradients;
  std::vector<TensorInfo> given;  // to the call that began last, which may not return
  DirectionSums forward, backward;
  NonFinite parameter_values;
  std::map<std::int64_t, watch::Column> values;  // of its outputs that were looked through, by slot
  std::optional<watch::Column> gradient;         // of its own parameters, after the last repeat
  std::int64_t order = -1;                       // in which modules first ran; -1 if no call was seen
  bool gradient_arrived = false;                 // since gradients were measured
  bool called = false, used = false;  // in any repeat: a call was seen; an operation read what it holds

  DirectionSums& direction(bool is_backward) { return is_backward ? backward : forward; }
};

/// The modules in the order of the walk, the root first.
std::vector<TreeNode> make_tree(const std::vector<model::ModuleRef>& modules);

/// A tensor without its values.
TensorInfo describe(const std::string& name, const at::Tensor& tensor);
/// Elements times their size; 0 for a nested tensor.
std::int64_t bytes_of(const at::Tensor& tensor);

}  // namespace torchtap::views::report::detail
