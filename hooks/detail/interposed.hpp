#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <torchtap/core/api.hpp>
#include <torchtap/hooks/detail/hook_point.hpp>
#include <torchtap/model/detail/interposed.hpp>

namespace torch::nn {
class Module;
}

/// Hooks on modules that are found by their address: a call has nothing but `this` to go by.
namespace torchtap::hooks::detail {

/// The hooks of one module, or of one method of a TorchScript module. Never freed and for ever in the same
/// bucket, so that a late call may look at it; given to another module only once its gate was seen empty.
struct InterposedEntry {
  std::atomic<const void*> module{nullptr};
  std::atomic<InterposedEntry*> next{nullptr};
  model::detail::Interposed interposed = model::detail::Interposed::no;
  std::weak_ptr<const void> owner;  // expired: another module may live at the address
  Gate gate;

  /// To be asked inside the gate.
  bool belongs_to(const torch::nn::Module& other, model::detail::Interposed how) const noexcept {
    return module.load() == &other && interposed == how && !owner.expired();
  }
};

/// From address to entry. Read without a lock and without a count of readers: chains only ever grow.
class TORCHTAP_API InterposedTable {
 public:
  /// Both guarded by the registry's lock.
  InterposedEntry& insert(const void* module, std::weak_ptr<const void> owner,
                          model::detail::Interposed interposed);
  void erase(InterposedEntry& entry) noexcept;
  /// Null if the module has no hooks; else the entry has to be asked whose it is once its gate is entered.
  InterposedEntry* find(const void* module) const noexcept;

  bool empty() const noexcept { return used_ == 0; }

 private:
  static constexpr std::size_t kBuckets = 8192;
  static std::size_t bucket_of(const void* module) noexcept;

  std::array<std::atomic<InterposedEntry*>, kBuckets> buckets_{};
  std::size_t used_ = 0;
  std::deque<InterposedEntry> all_;
};

/// The `torch::nn` modules that are hooked in this way. Lives as long as the process.
TORCHTAP_API InterposedTable& interposed_table();

/// False while no module is hooked in this way and nobody asks which ones are called.
TORCHTAP_API extern std::atomic<bool> interposed_table_in_use;

/// Told of every module that is called, before its hooks are looked for; may attach some. For recording in a
/// program that knows nothing of torchtap. Null takes it back.
using CalledModule = void (*)(torch::nn::Module& module);
TORCHTAP_API void set_called_module(CalledModule observer) noexcept;

/// To be called, under the registry's lock, when `interposed_table` has changed.
TORCHTAP_API void note_interposed_table() noexcept;

TORCHTAP_API InterposedEntry* look_up_interposed(torch::nn::Module& module);

/// The module's entry, which has to be asked whose it is once its gate is entered; null if it has no hooks.
inline InterposedEntry* find_interposed(torch::nn::Module& module) {
  const bool in_use = interposed_table_in_use.load(std::memory_order_acquire);
  return __builtin_expect(!in_use, 1) ? nullptr : look_up_interposed(module);
}

}  // namespace torchtap::hooks::detail
