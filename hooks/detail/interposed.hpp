#pragma once

/// Finds the hooks of a module by its address, because an interposed call knows only `this`.

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>

#include <torchtap/base/api.hpp>
#include <torchtap/hooks/detail/hook_point.hpp>
#include <torchtap/hooks/extend/called_module.hpp>

namespace torch::nn {
class Module;
}

namespace torchtap::hooks::detail {

/// The hooks of one module, or of one method of a TorchScript module. Never freed and never moved to another
/// bucket, because a late call may read it. Reused for another module only after its gate was seen empty.
struct InterposedEntry {
  std::atomic<const void*> module{nullptr};
  std::atomic<InterposedEntry*> next{nullptr};
  std::weak_ptr<const void> owner;  // expired: another module may have this address
  Gate gate;

  /// Call only inside the gate.
  bool belongs_to(const torch::nn::Module& other) const noexcept {
    return module.load() == &other && !owner.expired();
  }
};

/// Maps addresses to entries. Read without a lock and without counting readers, because chains only grow.
class TORCHTAP_API InterposedTable {
 public:
  /// Call both under the registry's lock.
  InterposedEntry& insert(const void* module, std::weak_ptr<const void> owner);
  void erase(InterposedEntry& entry) noexcept;
  /// Null if the module has no hooks. Otherwise enter the entry's gate and check that it belongs to the
  /// module.
  InterposedEntry* find(const void* module) const noexcept;

  bool empty() const noexcept { return used_ == 0; }

 private:
  static constexpr std::size_t kBuckets = 8192;
  static std::size_t bucket_of(const void* module) noexcept;

  std::array<std::atomic<InterposedEntry*>, kBuckets> buckets_{};
  std::size_t used_ = 0;
  std::deque<InterposedEntry> all_;
};

/// The `torch::nn` modules hooked by address. Lives as long as the process.
TORCHTAP_API InterposedTable& interposed_table();

/// False while no module is hooked by address and no observer is set.
TORCHTAP_API extern std::atomic<bool> interposed_table_in_use;

/// Call under the registry's lock after changing `interposed_table`.
TORCHTAP_API void note_interposed_table() noexcept;

/// Who is told of every module that is called; null if nobody is.
extern std::atomic<extend::CalledModule> called_module;

TORCHTAP_API InterposedEntry* look_up_interposed(torch::nn::Module& module);

/// The module's entry; null if it has no hooks. Enter its gate, then check `belongs_to`.
inline InterposedEntry* find_interposed(torch::nn::Module& module) {
  const bool in_use = interposed_table_in_use.load(std::memory_order_acquire);
  return __builtin_expect(!in_use, 1) ? nullptr : look_up_interposed(module);
}

}  // namespace torchtap::hooks::detail
