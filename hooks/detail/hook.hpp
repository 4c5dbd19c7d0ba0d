#pragma once

/// Defines `Hook`, one attached callback, and what keeps the counting of forwards alive.

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <torchtap/base/api.hpp>
#include <torchtap/hooks/attach.hpp>

namespace torchtap::hooks::detail {

struct ScopeHold;

/// Does not keep the tensor alive.
using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
/// LibTorch's pointer to an autograd node: a std::shared_ptr, in newer versions a c10::intrusive_ptr.
using NodePtr = std::decay_t<decltype(std::declval<const at::Tensor&>().grad_fn())>;

/// One attached callback. Shared by its handle, the plans that contain it and the graphs that will report
/// gradients.
struct Hook {
  Kind kind = Kind::forward;
  bool is_scope = false;  ///< no callback: counts the forwards of the root
  bool on_root = false;   ///< attached to the root: each call is a new forward
  Callback callback;
  LeftOut left_out;  ///< empty if nobody asks
  std::string path;
  std::string type;
  std::shared_ptr<Hook> scope;            ///< the root's scope hook; null if the root cannot be hooked
  std::shared_ptr<ScopeHold> kept_scope;  ///< of a handle that was released
  const void* module = nullptr;
  std::optional<WeakTensor> leaf;  ///< the parameter that it was put on instead of a module
  std::atomic<bool> active{true};
  std::size_t counter;   ///< index into each thread's counters
  std::uint64_t serial;  ///< distinguishes it from former users of that index

  Hook();
  ~Hook();
  Hook(const Hook&) = delete;
  Hook& operator=(const Hook&) = delete;
};

/// Keeps a root's scope hook attached while other hooks count by it.
struct ScopeHold {
  std::shared_ptr<Hook> hook;

  explicit ScopeHold(std::shared_ptr<Hook> held) noexcept : hook(std::move(held)) {}
  ~ScopeHold();
  ScopeHold(const ScopeHold&) = delete;
  ScopeHold& operator=(const ScopeHold&) = delete;
};

/// Throws if the hook took the gradient away.
void check_given(const Hook& hook, const at::Tensor& gradient);

}  // namespace torchtap::hooks::detail
