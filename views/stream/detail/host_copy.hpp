#pragma once

// One tensor on its way into the CPU's memory, which no thread of the program waits for.

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>

namespace torchtap::views::stream::detail {

/// One thread at a time may call it.
class HostCopy {
 public:
  /// Puts a copy of `tensor` into the queue of its device's current stream, behind earlier computations and
  /// before later ones, and returns. It goes into pinned memory where the device's backend has any. A tensor
  /// of the CPU is copied at once. Throws `c10::Error` if the backend has no events, which show when a copy
  /// is done, if the stream is being captured into a graph, or if there is too little memory.
  explicit HostCopy(const at::Tensor& tensor);
  HostCopy(HostCopy&&) = default;
  HostCopy& operator=(HostCopy&&) = default;
  ~HostCopy() = default;

  /// Whether all bytes are there. Throws the device's error. For a thread that does nothing else: its current
  /// device becomes the tensor's.
  bool done() const;
  /// Contiguous, row by row.
  const void* data() const { return to_.data_ptr(); }
  /// Gives the copy up before it is done. The device may still write, so that the memory is never given back.
  void abandon();

 private:
  void begin(const at::Tensor& tensor);
  void give_back(const c10::impl::VirtualGuardImpl& guard, const c10::Stream& stream);

  at::Tensor from_;  // a device that does not know which streams use a tensor has it until the copy is done
  at::Tensor to_;
  std::unique_ptr<c10::Event> event_;  // null for the CPU
};

}  // namespace torchtap::views::stream::detail
