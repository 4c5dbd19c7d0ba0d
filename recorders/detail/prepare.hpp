#pragma once

/// Defines `Prepare`, which makes of a tensor what is to be recorded.

#include <ATen/core/Tensor.h>

#include <mutex>
#include <optional>

#include <torchtap/base/api.hpp>
#include <torchtap/recorders/detail/own_code.hpp>
#include <torchtap/recorders/detail/slots.hpp>

namespace torchtap::recorders::detail {

/// Detaches, transforms and converts tensors as the options say.
class TORCHTAP_API Prepare {
 public:
  explicit Prepare(const Slots& slots);

  /// Whether a tensor is recorded as it comes, without transform, device and dtype.
  bool as_it_is() const noexcept { return as_it_is_; }
  /// What is to be recorded. With a transform in the thread that has the turn.
  at::Tensor operator()(const at::Tensor& tensor) const;

  /// The turn of a thread to call the transform. Not under the lock of the slots, and taken before it, so
  /// that a transform may read what was recorded.
  class Turn {
   public:
    explicit Turn(Prepare& prepare) : lock_(prepare.turn_, std::defer_lock) {
      if (prepare.slots_.options->transform() == nullptr) return;
      own_.emplace(prepare.slots_, OwnCode::What::transform);
      lock_.lock();
    }

   private:
    std::optional<OwnCode> own_;
    std::unique_lock<std::mutex> lock_;
  };

 private:
  const Slots& slots_;
  const bool as_it_is_;
  std::mutex turn_;
};

}  // namespace torchtap::recorders::detail
