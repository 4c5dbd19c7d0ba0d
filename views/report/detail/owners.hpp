#pragma once

// Finds the owner of the memory that an operation reads: a parameter, a buffer, an input.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <cstdint>
#include <string>

#include <torchtap/views/watch/region.hpp>

namespace torchtap::views::report::detail {

/// A tensor that the model holds, or is given.
struct Owned {
  std::string name;         // "layer.weight", "input 0"
  std::string path;         // of the module
  std::int64_t module = 0;  // in the tree
  enum Kind { parameter, buffer, input } kind = input;
};

/// Not thread safe: the measured model locks.
class Owners {
 public:
  void add(const at::Tensor& tensor, Owned owned) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const watch::Region region(tensor);
    if (!region.empty()) by_memory_[region.memory()].push_back({region, std::move(owned)});
  }
  /// Calls `visit(const Owned&)` for each owner of bytes of the tensor, until it returns true; returns
  /// whether it did so.
  template <class Visit>
  bool visit(const at::Tensor& tensor, Visit&& visit) const {
    if (!tensor.has_storage()) return false;
    const auto found = by_memory_.find(tensor.storage().unsafeGetStorageImpl());
    if (found == by_memory_.end()) return false;
    const watch::Region region(tensor);
    for (const Entry& entry : found->second) {
      if (entry.region.overlaps(region) && visit(entry.owned)) return true;
    }
    return false;
  }
  /// The first of them; null if there are none.
  const Owned* find(const at::Tensor& tensor) const {
    const Owned* first = nullptr;
    visit(tensor, [&](const Owned& owned) {
      first = &owned;
      return true;
    });
    return first;
  }
  void forget() { by_memory_.clear(); }

 private:
  struct Entry {
    watch::Region region;
    Owned owned;
  };

  ska::flat_hash_map<const void*, c10::SmallVector<Entry, 1>> by_memory_;
};

}  // namespace torchtap::views::report::detail
