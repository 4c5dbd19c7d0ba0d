#pragma once

/// Defines `Accumulator`, in which samples are added up where they are, before a sink takes them in.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

#include <torchtap/base/api.hpp>

namespace torchtap::core {

class Sink;

/// Adds samples up on their device, which needs no number of the host: also in each replay of a CUDA graph that
/// has captured it. `Sink::accumulator` makes one. Not thread-safe: the owner locks.
class TORCHTAP_API Accumulator {
 public:
  virtual ~Accumulator() = default;

  /// A sample for one of several accumulators.
  struct Addition {
    Accumulator* to;
    at::Tensor sample;
  };

  /// Whether `add` can take the sample; if not, the sink itself has to. Throws the errors of `Sink::update`, and
  /// those of a merge with what `sink` has. While the device captures a graph, throws `c10::NotImplementedError`
  /// if a sample has to come first that is not captured.
  virtual bool accepts(const at::Tensor& sample, const Sink& sink) = 0;
  /// Adds samples that were accepted, of accumulators of this kind, as later work of the device's current
  /// stream, in as few launches as it can. Waits for nothing.
  virtual void add(c10::ArrayRef<Addition> additions) = 0;
  /// Moves all that was added to `sink`, or discards it if that is null. Waits for the device. Returns the
  /// number of samples, those of replays among them.
  virtual std::int64_t settle(Sink* sink) = 0;
};

}  // namespace torchtap::core
