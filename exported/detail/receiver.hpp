#pragma once

// What the operator library hands over. It is a library of its own, which needs LibTorch alone: Python loads
// it to compile a tapped model, and a tapped package does not load without it.

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::exported::detail {

/// Gets what the taps of one running model report, on the thread that runs it.
class Receiver {
 public:
  /// Where the tensors of the tap at `path` go; null if nobody wants them.
  virtual void* wanted(std::string_view path) noexcept = 0;
  /// `place` is what `wanted` returned. The tensors are the model's own, valid during the call. If
  /// `replaceable`, the model goes on with what is written to them.
  virtual void receive(void* place, std::vector<at::Tensor>& tensors, std::string_view kind,
                       bool replaceable) noexcept = 0;

 protected:
  ~Receiver() = default;
};

/// Sets the receiver of this thread, null for none, and returns the one before.
TORCHTAP_API Receiver* exchange_receiver(Receiver* receiver) noexcept;

}  // namespace torchtap::exported::detail
