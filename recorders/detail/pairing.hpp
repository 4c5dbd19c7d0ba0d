#pragma once

/// Samples of a record that wait for their companions, and companions that wait for their sample.

#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <vector>

#include <torchtap/core/context.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/hooks/forward.hpp>
#include <torchtap/recorders/options.hpp>

namespace torchtap::recorders::detail {

class Record;

/// A call of the recorded module, and what arrived for it.
struct Pair {
  std::weak_ptr<Record> owner;
  const Record* record = nullptr;
  std::uint64_t forward = 0;               // 0: of a context
  const core::Context* context = nullptr;  // whose end releases it, if not its forward's
  std::int64_t call = 0;                   // of the module in its forward
  bool sampled = false, refused = false;
  c10::SmallVector<at::Tensor, 1> samples;     // prepared, if the sample came first
  c10::SmallVector<std::int64_t, 1> versions;  // of the samples, where they are aliases
  c10::SmallVector<at::Tensor, 1> companions;  // undefined until they arrive

  bool complete() const;
};

/// How the samples of a record find their companions (`Options::with`): call k of the recorded module with
/// call k of the other one, in one forward of their root, or in one context (`Context::together`) if their
/// roots differ. Whichever comes first waits; tensors that still wait when the forward or the context ends
/// are counted as unmatched and released.
class Pairing {
 public:
  /// Throws `c10::ValueError` if a companion's path leads nowhere, `c10::NotImplementedError` if it is one of
  /// an exported model. Keep `hooks` as long as companions shall be taken.
  Pairing(const std::shared_ptr<Record>& record, const model::ModuleRef& module,
          std::vector<hooks::Handle>& hooks);

  /// The pair of this call in this thread. Throws `c10::ValueError` if the roots differ and there is no
  /// context. Valid until the next call.
  Pair& of_call(const std::shared_ptr<Record>& record, std::int64_t call) const;
  /// Takes a pair out, to be folded.
  static Pair taken(Pair& pair);

 private:
  bool elsewhere_;  // their root cannot be hooked, or a companion is of another model
  hooks::Forwards forwards_;
};

}  // namespace torchtap::recorders::detail
