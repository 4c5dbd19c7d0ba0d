#pragma once

/// Defines `Takes`, by which a part says what becomes of a recorder's samples, and names what its takers are
/// made of.

#include <memory>
#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/recorders/detail/fold.hpp>
#include <torchtap/recorders/detail/prepare.hpp>
#include <torchtap/recorders/detail/slots.hpp>
#include <torchtap/recorders/detail/taker.hpp>
#include <torchtap/recorders/detail/until_recorded.hpp>
#include <torchtap/recorders/options.hpp>
#include <torchtap/storage/spool.hpp>

namespace torchtap::recorders::extend {

using detail::Fold;
using detail::Prepare;
using detail::Record;
using detail::SlotData;
using detail::Slots;
using detail::stop_if_last;
using detail::StopForward;
using detail::Taker;
using detail::TakerAround;

/// What a part does with the samples of a recorder (`RecorderOptions::takes`). Shared by recorders.
class TORCHTAP_API Takes {
 public:
  virtual ~Takes() = default;
  /// "pairs samples with companions": what the recorder does, and no replay of a graph, for messages.
  virtual const char* what() const noexcept = 0;
  /// Throws if a recorder of this kind ("ForwardOutput") cannot have these options.
  virtual void check(const std::string& kind, const RecorderOptions& options) const;
  /// Where the samples are, if the recorder has none of them: "streamed and not kept; attach …". Else "".
  virtual std::string elsewhere(const RecorderOptions& options) const;
  /// The taker of a recorder that is being attached to a module. `folds` leads to the reductions of the
  /// options; null if there are none. Throws if the options or the kind of the recorder do not allow it.
  virtual std::unique_ptr<Taker> taker(Slots& slots, Prepare& prepare, std::unique_ptr<Fold> folds) const = 0;
  /// The same where samples are spooled at once: `stream` of `spool` is the module's, and both live longer.
  /// `taker` unless a part says otherwise.
  virtual std::unique_ptr<Taker> spooling_taker(Slots& slots, Prepare& prepare, storage::Spool& spool,
                                                storage::Spool::Stream& stream) const;
};

}  // namespace torchtap::recorders::extend
