#pragma once

/// Defines `Accumulator`, in which samples are added up where they are, before a sink takes them in.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include <torchtap/base/api.hpp>

namespace torchtap::core {

class Sink;

/// Adds samples up on their device, which needs no number of the host: also in each replay of a CUDA graph
/// that has captured it. `Sink::accumulator` makes one. Not thread-safe: the owner locks.
class TORCHTAP_API Accumulator {
 public:
  virtual ~Accumulator() = default;

  /// Samples, of several accumulators of one kind, that are to be added in as few launches as can be.
  class Batch {
   public:
    virtual ~Batch() = default;
    /// How many samples.
    virtual std::size_t size() const noexcept = 0;
    /// Leaves out the `index`-th sample.
    virtual void forget(std::size_t index) = 0;
    /// Adds them, as later work of their devices' current streams, and is empty then, also if it throws.
    /// Waits for nothing.
    virtual void launch() = 0;
  };

  /// Whether `put` can take the sample; if not, the sink itself has to. Throws the errors of `Sink::update`,
  /// and those of a merge with what `sink` has. `captures`: whether the device's current stream
  /// captures a graph; then it throws `c10::NotImplementedError` if a sample has to come first that is not
  /// captured.
  virtual bool accepts(const at::Tensor& sample, const Sink& sink, bool captures) = 0;
  /// Whether a sample may stay in its batch for longer than the call in which it was accepted.
  virtual bool may_wait() const noexcept = 0;
  /// An empty batch.
  virtual std::unique_ptr<Batch> batch() const = 0;
  /// Puts the sample that was accepted last into a batch, which is to be launched on the device's current
  /// stream. The sample's memory must stay as it is until then.
  virtual void put(const at::Tensor& sample, Batch& batch, bool captures) = 0;
  /// Moves all that was added to `sink`, or discards it if that is null. Waits for the device. Returns the
  /// number of samples, those of replays among them.
  virtual std::int64_t settle(Sink* sink) = 0;
};

}  // namespace torchtap::core
