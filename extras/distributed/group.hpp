#pragma once

/// The ranks of a merge: a process group of c10d, a store of c10d, or both.

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <type_traits>

#include <torchtap/base/api.hpp>

namespace torchtap::distributed {

namespace detail {
class Links;
}

/// The ranks of a merge. A regular value; copies refer to the same ranks.
///
/// With only a process group, an error names a rank that died or hangs only on the root, and the group is
/// unusable after a timeout (Gloo closes its connections). With a store beside it, the errors of all ranks
/// name that rank, and a failure before data moves leaves the group in order. A store needs no group, but is
/// slower for large states.
///
/// All ranks have to call the functions that take a group in the same order. They use send, recv and
/// broadcast of the group, so no other thread may use the same group meanwhile: give torchtap a separate
/// group beside the group of the training.
class TORCHTAP_API Group {
 public:
  /// The ranks of `group`: any `c10d::ProcessGroup`, or in LibTorch 2 any `c10d::Backend` (Gloo, NCCL, MPI).
  /// With NCCL states go through the current CUDA device.
  template <class T, class = std::enable_if_t<std::is_base_of_v<c10d::ProcessGroup, T> ||
                                              std::is_base_of_v<c10d::Backend, T>>>
  Group(const c10::intrusive_ptr<T>& group, const c10::intrusive_ptr<c10d::Store>& store = {})  // NOLINT
      : Group(base(group), store, 0) {}
  /// Makes a group of `*group`. An `intrusive_ptr` has to own the object, as with all of c10d's groups.
  template <class T, class = std::enable_if_t<std::is_base_of_v<c10d::ProcessGroup, T> ||
                                              std::is_base_of_v<c10d::Backend, T>>>
  Group(T& group, const c10::intrusive_ptr<c10d::Store>& store = {})  // NOLINT
      : Group(c10::intrusive_ptr<T>::reclaim_copy(&group), store) {}
  /// The ranks that share `store`, without a process group. Throws `c10::ValueError` unless 0 <= rank < size.
  Group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);

  /// This process's rank, from 0.
  int rank() const noexcept;
  /// The number of ranks.
  int size() const noexcept;

  /// For torchtap: the connections to the other ranks.
  const std::shared_ptr<detail::Links>& links() const noexcept { return links_; }
  /// For torchtap.
  explicit Group(std::shared_ptr<detail::Links> links) : links_(std::move(links)) {}

 private:
  template <class T>
  static auto base(const c10::intrusive_ptr<T>& group) {
    using Base =
        std::conditional_t<std::is_base_of_v<c10d::ProcessGroup, T>, c10d::ProcessGroup, c10d::Backend>;
    return c10::intrusive_ptr<Base>(group);
  }
  Group(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const c10::intrusive_ptr<c10d::Store>& store,
        int);
  Group(const c10::intrusive_ptr<c10d::Backend>& group, const c10::intrusive_ptr<c10d::Store>& store, int);

  std::shared_ptr<detail::Links> links_;
};

}  // namespace torchtap::distributed
