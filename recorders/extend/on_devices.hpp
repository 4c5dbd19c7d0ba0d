#pragma once

/// How a part has devices add up the samples of recorders.

#include <memory>

#include <torchtap/base/api.hpp>
#include <torchtap/hooks/forward.hpp>
#include <torchtap/recorders/detail/together.hpp>
#include <torchtap/recorders/extend/takes.hpp>
#include <torchtap/recorders/options.hpp>

namespace torchtap::recorders::extend {

using detail::Update;
using detail::update_together;

/// Has devices add up the samples of one recorder. Its modules share it.
class TORCHTAP_API OnDevices {
 public:
  virtual ~OnDevices() = default;
  /// A fold around `inner`, which has the samples of the CPU. `owner` keeps it alive. `forwards`: of the
  /// module's root, if samples are to wait for their ends and these can be seen; else null. It lives as long
  /// as the owner, and changes under the lock.
  virtual std::unique_ptr<Fold> around(Slots& slots, Prepare& prepare, std::unique_ptr<Fold> inner,
                                       std::weak_ptr<const void> owner,
                                       const std::shared_ptr<const hooks::Forwards>& forwards) = 0;
};

/// Makes one for a recorder of these options.
using MakeOnDevices = std::shared_ptr<OnDevices> (*)(const RecorderOptions& options);
/// Sets the maker for tensors of devices that come from now on; null, as it is at first: each is folded by
/// its reduction.
TORCHTAP_API void install(MakeOnDevices make) noexcept;

}  // namespace torchtap::recorders::extend
