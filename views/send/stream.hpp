#pragma once

/// The interface of streams, to which recorders send data while the model runs (`RecorderOptions::stream`).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include <torchtap/base/api.hpp>
#include <torchtap/storage/entry.hpp>

namespace torchtap::recorders {

/// Identifies a sent tensor among the tensors of its module.
struct TORCHTAP_API StreamSample {
  std::int64_t sample = 0;  ///< the event of the module, from 0; for a result its last event
  std::int64_t call = 0;    ///< `hooks::Event::call_index`
  std::int64_t slot = 0;
  std::string_view result;  ///< of a reduction: "mean"; empty for a sample
};

/// One module of a stream. Any number of threads call it at the same time.
class TORCHTAP_API StreamSource {
 public:
  virtual ~StreamSource() = default;
  /// Whether any receiver wants data of this module. Called first at each event, so it has to cost next to
  /// nothing.
  virtual bool wanted() const noexcept = 0;
  /// The receivers that want event number `event`, for `send`; 0 if there are none. Called once an event.
  virtual std::uint64_t receivers(std::int64_t event) noexcept = 0;
  /// Sends a tensor, which may require gradients, lie on any device, be undefined, and change after the call.
  /// It must not throw because of the receivers.
  virtual void send(const at::Tensor& tensor, const StreamSample& sample, std::uint64_t receivers) = 0;
};

/// Makes a source for each module that a recorder is attached to. `views::stream::Publisher` converts to it.
class TORCHTAP_API Stream {
 public:
  virtual ~Stream() = default;
  /// The source of a module. The recorder keeps it as long as it is attached.
  virtual std::shared_ptr<StreamSource> source(const storage::EntryId& id) = 0;
};

}  // namespace torchtap::recorders
