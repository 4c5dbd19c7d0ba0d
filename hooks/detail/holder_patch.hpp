#pragma once

/// Runs hooks around calls through the holders inside `AnyModule`, by which containers call their entries.
///
/// `Sequential` calls its entries through the virtual `AnyModulePlaceholder::forward` of a holder. The
/// holder's type, `AnyModuleHolder<M, Args…>`, depends on the module and on the signature of its forward, and
/// only the code that made the holder knows it. Another holder in its place would therefore break `at<M>()`,
/// `ptr<M>()` or `clone()` for user-defined modules. Instead the holder stays the same object, and while
/// hooks are attached its virtual table pointer refers to a copy of its own table in which `forward`, `copy`
/// and the destructors are torchtap's. Type information, layout and everything else that LibTorch reads are
/// unchanged, and detaching restores the pointer.
///
/// This is outside ISO C++ and relies on the Itanium C++ ABI, which GCC and Clang follow on Linux, macOS and
/// the BSDs. `HolderPatchPool` checks the layout once and throws if it differs. See docs/rationale.md.

#include <torch/nn/module.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <torchtap/hooks/detail/hook_point.hpp>

namespace torch::nn {
class SequentialImpl;
}

namespace torchtap::hooks::detail {

struct HolderPatch;

/// A `Sequential` whose calls are observed through its entries: its inputs are the first entry's, its outputs
/// the last one's. Never freed, because a late call may still read it.
struct Sequence {
  torch::nn::SequentialImpl* module = nullptr;
  std::weak_ptr<torch::nn::Module> keep;  // empty for a module on the stack
  bool shared = false;
  Gate gate;
  std::atomic<bool> scope_only{false};       // the hooks need only the start of each forward
  std::unordered_set<HolderPatch*> patches;  // guarded by the registry, as is
  const void* site = nullptr;                // the module's place there
  std::atomic<std::size_t> entries{0};       // size of the Sequential when it was patched

  bool has_grown() const;
};

struct HolderPatch {
  static constexpr std::size_t kMaxSlots = 16;
  static constexpr auto kMagic = static_cast<std::uintptr_t>(0x7061746863726F74u);  // "torchtap" in memory

  /// The layout of a virtual table; a patched pointer points to `slots`. Other copies of torchtap in the
  /// process, of other versions too, read `magic`: its value and its place, four words in front of the slots,
  /// stay as they are.
  struct Table {
    std::uintptr_t magic = kMagic;
    HolderPatch* patch = nullptr;
    std::ptrdiff_t offset_to_top = 0;
    const void* type_info = nullptr;
    std::array<const void*, kMaxSlots> slots{};
  } table;

  const void* const* original = nullptr;  // the holder's own table
  std::atomic<torch::nn::AnyModulePlaceholder*> holder{nullptr};
  Gate gate;                   // hooks of the module behind the holder
  const void* site = nullptr;  // that module, while it is hooked; guarded by the registry
  std::atomic<Sequence*> sequence{nullptr};
  std::atomic<std::size_t> position{0};  // index of the entry in the sequence
  std::atomic<bool> last{false};
  std::atomic<bool> has_defaults{false};  // the module's forward has default arguments
};

/// Patches holders. A removed patch is kept for the next holder of the same type, because a call in another
/// thread may be about to read it. Guarded by the registry's lock.
class HolderPatchPool {
 public:
  /// Throws `c10::NotImplementedError` if virtual tables do not have the expected layout, and
  /// `c10::ValueError`, which names `module`, if another copy of torchtap has patched the holder.
  HolderPatch& apply(torch::nn::AnyModulePlaceholder* holder, const std::string& module);
  void restore(HolderPatch& patch) noexcept;

 private:
  std::vector<std::unique_ptr<HolderPatch>> all_;
  std::unordered_map<const void*, std::vector<HolderPatch*>> free_;  // by the table of the holder's type
};

}  // namespace torchtap::hooks::detail
