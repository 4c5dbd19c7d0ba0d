#pragma once

/// A table of tensors, or of memory, by address.

#include <ATen/core/Tensor.h>
#include <c10/util/flat_hash_map.h>

#include <cstddef>
#include <utility>

namespace torchtap::views::watch {

/// The memory that the tensor's elements are in, which its views share; null if it has none (sparse tensors).
inline const c10::StorageImpl* memory_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

namespace detail {

/// Finds by the tensor itself: two variables of a program share it if one was assigned to the other.
struct Itself {
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  static const void* address(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl(); }
  static Weak weak(const at::Tensor& tensor) { return Weak(tensor.getIntrusivePtr()); }
};

struct ItsMemory {
  using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;
  static const void* address(const at::Tensor& tensor) { return memory_of(tensor); }
  static Weak weak(const at::Tensor& tensor) { return tensor.storage().getWeakStorageImpl(); }
};

template <class Which, class Value>
class ByAddress {
 public:
  /// The tensor's entry; null if it has none.
  Value* find(const at::Tensor& tensor) { return find(Which::address(tensor)); }
  const Value* find(const at::Tensor& tensor) const { return const_cast<ByAddress&>(*this).find(tensor); }
  Value* find(const void* address) {
    const auto found = known_.find(address);
    return found == known_.end() ? nullptr : &found->second.value;
  }
  /// The tensor's entry; if it has none, a new `Value` made of `arguments`.
  template <class... Arguments>
  Value& get(const at::Tensor& tensor, Arguments&&... arguments) {
    if (Value* const value = find(tensor)) return *value;
    return known_
        .emplace(Which::address(tensor),
                 Known{Which::weak(tensor), Value{std::forward<Arguments>(arguments)...}})
        .first->second.value;
  }
  void set(const at::Tensor& tensor, Value value) {
    if (Value* const known = find(tensor)) {
      *known = std::move(value);
    } else {
      get(tensor, std::move(value));
    }
  }
  void reserve(std::size_t size) { known_.reserve(size); }
  void clear() { known_.clear(); }

 private:
  struct Known {
    typename Which::Weak alive;
    Value value;
  };

  ska::flat_hash_map<const void*, Known> known_;
};

}  // namespace detail

/// A `Value` for each tensor that it was made for: `find`, `get`, `set`, `reserve`, `clear`. Keeps no
/// tensor's values, but its address: nothing else gets it while this lives. A pointer to a value is valid
/// until the next one is made. Not for several threads at once.
template <class Value>
using ByTensor = detail::ByAddress<detail::Itself, Value>;
/// A `Value` for each memory of tensors that have one: views share it.
template <class Value>
using ByMemory = detail::ByAddress<detail::ItsMemory, Value>;

}  // namespace torchtap::views::watch
