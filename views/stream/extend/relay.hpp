#pragma once

/// Publishing what another process recorded, as that process would have published it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/views/send/stream.hpp>

namespace torchtap::views::stream::extend {

/// A tensor that another process handed over.
struct Relayed {
  at::Tensor tensor;               ///< undefined if its bytes were not handed over
  std::string why;                 ///< they were not
  recorders::StreamSample sample;  ///< as there
  std::uint64_t time_ns = 0;       ///< when, by CLOCK_REALTIME
  std::uint32_t thread = 0;        ///< the number of the thread there
};

/// Publishes it for the readers that want it now, if there are any. `source` is one of a `Publisher`, for
/// which one thread relays; else throws `c10::TypeError`.
TORCHTAP_API void relay(recorders::StreamSource& source, const Relayed& relayed);

}  // namespace torchtap::views::stream::extend
