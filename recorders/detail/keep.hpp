#pragma once

/// Defines `Keep`, which keeps each sample in memory.

#include <c10/util/SmallVector.h>

#include <string>

#include <torchtap/recorders/detail/taker.hpp>

namespace torchtap::recorders::detail {

/// Keeps copies of samples, or aliases, as `RecorderOptions::capture` says.
class Keep : public Taker {
 public:
  Keep(Slots& slots, Prepare& prepare);
  Took take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) override;

 protected:
  using Samples = c10::SmallVectorImpl<at::Tensor>;

  /// Called under the lock, with tensors that are as the options say. Keeps all of them or none; false if
  /// they were dropped.
  virtual bool keep(Samples& samples, std::size_t first_slot);
  /// Called under the lock. Adds `count` samples without a tensor to a new slot.
  virtual void pad(std::size_t slot, std::int64_t count);
  /// Whether files have to hold the samples.
  virtual bool for_files() const noexcept { return false; }
  /// Puts nothing in place of tensors that cannot be kept, throws for quantized ones, and returns the bytes
  /// of the others.
  std::int64_t check(Samples& samples);
  void add_slots(std::size_t count);
  void append(const Samples& samples, std::size_t first_slot);
  /// The sample, or an undefined one in its place if files cannot hold it, which is counted.
  const at::Tensor& held_or_left_out(const at::Tensor& sample);

  Prepare& prepare_;

 private:
  Took keep_event(c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot);

  const bool one_;  // an event has one tensor, and not those of all slots
  bool alike_;      // a sample that is like the last one can be copied behind it
};

/// Why files cannot hold a tensor.
std::string why_not_held(const at::Tensor& tensor);

}  // namespace torchtap::recorders::detail
