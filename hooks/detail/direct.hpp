#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <torchtap/core/direct.hpp>
#include <torchtap/core/hook_point.hpp>

namespace torch::nn {
class Module;
}

/// Hooks on modules that are found by their address: a call has nothing but `this` to go by.
namespace torchtap::hooks::detail {

/// The hooks of one module, or of one method of a TorchScript module. Never freed and for ever in the same
/// bucket, so that a late call may look at it; given to another module only once its gate was seen empty.
struct DirectEntry {
  std::atomic<const void*> module{nullptr};
  std::atomic<DirectEntry*> next{nullptr};
  core::Direct direct = core::Direct::no;
  std::weak_ptr<const void> owner;  // expired: another module may live at the address
  core::Gate gate;

  /// To be asked inside the gate.
  bool belongs_to(const torch::nn::Module& other, core::Direct how) const noexcept {
    return module.load() == &other && direct == how && !owner.expired();
  }
};

/// From address to entry. Read without a lock and without a count of readers: chains only ever grow.
class DirectTable {
 public:
  /// Both guarded by the registry's lock.
  DirectEntry& insert(const void* module, std::weak_ptr<const void> owner, core::Direct direct);
  void erase(DirectEntry& entry) noexcept;
  /// Null if the module has no hooks; else the entry has to be asked whose it is once its gate is entered.
  DirectEntry* find(const void* module) const noexcept;

  bool empty() const noexcept { return used_ == 0; }

 private:
  static constexpr std::size_t kBuckets = 8192;
  static std::size_t bucket_of(const void* module) noexcept;

  std::array<std::atomic<DirectEntry*>, kBuckets> buckets_{};
  std::size_t used_ = 0;
  std::deque<DirectEntry> all_;
};

/// The `torch::nn` modules that are hooked in this way. Lives as long as the process.
DirectTable& direct_table();

/// False while no module is hooked in this way and nobody asks which ones are called.
extern std::atomic<bool> direct_table_in_use;

/// Told of every module that is called, before its hooks are looked for; may attach some. For recording in a
/// program that knows nothing of torchtap. Null takes it back.
using CalledModule = void (*)(torch::nn::Module& module);
void set_called_module(CalledModule observer) noexcept;

/// To be called, under the registry's lock, when `direct_table` has changed.
void note_direct_table() noexcept;

DirectEntry* look_up_direct(torch::nn::Module& module);

/// The module's entry, which has to be asked whose it is once its gate is entered; null if it has no hooks.
inline DirectEntry* find_direct(torch::nn::Module& module) {
  const bool in_use = direct_table_in_use.load(std::memory_order_acquire);
  return __builtin_expect(!in_use, 1) ? nullptr : look_up_direct(module);
}

}  // namespace torchtap::hooks::detail
