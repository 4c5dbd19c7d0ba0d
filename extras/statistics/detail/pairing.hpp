#pragma once

/// Pairs the samples of a record with their companions, which may come before or after them.

#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torchtap/core/context.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/hooks/forward.hpp>
#include <torchtap/statistics/companion.hpp>

namespace torchtap::statistics::detail {

class FoldPaired;

/// A call of the recorded module, and the tensors that arrived for it.
struct Pair {
  std::weak_ptr<FoldPaired> owner;
  const FoldPaired* taker = nullptr;
  bool in_context = false;                 // whether a context says what belongs together
  std::uint64_t forward = 0;               // of the thread; in a context, of its root in that
  const core::Context* context = nullptr;  // whose end releases it, if not its forward's
  std::int64_t call = 0;                   // of the module in this forward
  bool sampled = false, refused = false;
  c10::SmallVector<at::Tensor, 1> samples;     // prepared, if the sample came first
  c10::SmallVector<std::int64_t, 1> versions;  // of the samples, where they are aliases
  c10::SmallVector<at::Tensor, 1> companions;  // undefined until they arrive

  bool complete() const;
};

/// Pairs the samples of a record with their companions (`RecorderOptions::with`): call k of the recorded
/// module with call k of the other one, in one forward of their root. If their roots differ, forward f of one
/// root in a context (`Context::together`) belongs to forward f of the other; where a root cannot be hooked,
/// all calls in the context count as one forward. Whichever comes first waits; tensors that still wait when
/// the forward or the context ends are counted as unmatched and released.
class Pairing {
 public:
  /// Throws `c10::ValueError` if a companion's path leads nowhere, `c10::NotImplementedError` if it is one of
  /// an exported model. Keep `hooks` as long as companions shall be taken.
  Pairing(const std::shared_ptr<FoldPaired>& taker, const model::ModuleRef& module,
          std::vector<hooks::Handle>& hooks);

  /// The pair of this call in this thread, of the recorded module or of a companion's. Throws
  /// `c10::ValueError` if the roots differ and there is no context. Valid until the next call.
  Pair& of_call(const std::shared_ptr<FoldPaired>& taker, std::int64_t call,
                std::optional<std::size_t> companion) const;
  /// Takes a pair out, to be folded.
  static Pair taken(Pair& pair);

 private:
  bool elsewhere_;                         // their root cannot be hooked, or a companion is of another model
  bool hooked_ = true;                     // all roots can be
  std::vector<hooks::Forwards> forwards_;  // of each root, the recorded module's first
  std::vector<std::size_t> root_of_;       // of the recorded module, then of its companions
};

}  // namespace torchtap::statistics::detail
