#pragma once

// The interface of the operator library, a separate library that needs only LibTorch: Python loads it to
// compile a tapped model, and a tapped package does not load without it. Tensors are handles of LibTorch's C
// interface, which is the same in all versions.

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstddef>
#include <string_view>

#include <torchtap/base/api.hpp>

namespace torchtap::exported::detail {

/// Receives the tensors of the taps of one running model, on the thread that runs it.
class Receiver {
 public:
  /// The place for the tensors of the tap at `path`; null if no hook wants them.
  virtual void* wanted(std::string_view path) noexcept = 0;
  /// `place` is the result of `wanted`. The tensors are the model's own, valid during the call. If
  /// `replaceable`, the model continues with the values that are written to them.
  virtual void receive(void* place, const AtenTensorHandle* tensors, std::size_t count, std::string_view kind,
                       bool replaceable) noexcept = 0;

 protected:
  ~Receiver() = default;
};

/// Sets the receiver of this thread, null for none, and returns the former one.
TORCHTAP_API Receiver* exchange_receiver(Receiver* receiver) noexcept;

}  // namespace torchtap::exported::detail
