#pragma once

/// Lets a program name tensors, such as labels and masks, that reductions look up while its thread records.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::core {

/// Names tensors for this thread while it lives: `core::Context named("labels", labels);` around a forward.
///
/// Inner contexts hide names of outer ones. Contexts end in the reverse order of their beginning, in their
/// own thread, as local variables do. The tensors are shared, not copied.
///
/// A context also says which forwards of several models belong together, see `together`.
///
/// The idea is dynamic scoping, as in Python's `contextvars`.
class [[nodiscard]] TORCHTAP_API Context {
 public:
  /// A name and its tensor.
  using Entry = std::pair<std::string, at::Tensor>;
  /// Names of one thread, for another.
  using Names = std::vector<Entry>;

  /// Without own names yet: see `set`.
  [[nodiscard]] Context();
  /// One name. Throws `c10::ValueError` for an undefined tensor, as all of these do.
  [[nodiscard]] Context(std::string name, at::Tensor tensor);
  Context(std::nullptr_t name, at::Tensor tensor) = delete;
  /// Several names. Throws `c10::ValueError` if one is given twice.
  [[nodiscard]] explicit Context(Names entries);
  /// The names that another thread has `here()`, and no others.
  [[nodiscard]] explicit Context(const std::shared_ptr<const Names>& names);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  /// Adds a name to this context, or replaces its tensor. Threads that were given `here()` before do not see
  /// it.
  void set(std::string name, at::Tensor tensor);

  /// All names that this thread sees now; null if there are none.
  static std::shared_ptr<const Names> here();
  /// The tensor of that name; undefined if this thread has none.
  static at::Tensor find(const std::string& name);
  /// The context whose forwards belong together, in this thread now: the innermost context that was begun
  /// without names, or else the innermost of all. Null if there is none.
  static const Context* together() noexcept;
  /// Calls `function`, which must not throw, when this context ends. To be called in its thread.
  void at_end(std::function<void()> function) const;

 private:
  c10::SmallVector<Entry, 2> named_;
  // Changed when one of them ends first.
  mutable const Context* outer_;  // null, too, where outer ones are hidden
  mutable const Context* before_;
  bool nameless_ = false;  // when it began
};

}  // namespace torchtap::core
