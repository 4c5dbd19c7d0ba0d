#pragma once

#include <torch/nn/module.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <torchtap/hooks/detail/hook_point.hpp>
#include <vector>

namespace torch::nn {
class SequentialImpl;
}

/// Hooks on what a container calls: the holder inside an `AnyModule`.
///
/// `Sequential` calls its entries through the virtual `AnyModulePlaceholder::forward` of a holder whose type,
/// `AnyModuleHolder<M, Args…>`, depends on the module and on its forward's signature. Nothing but the code
/// that made the holder knows that type, so no other holder can take its place without breaking `at<M>()`,
/// `ptr<M>()` or `clone()` for modules of the user's own. The holder therefore stays the very object it is,
/// and while hooks are attached its virtual table pointer leads to a copy of its own table in which
/// `forward`, `copy` and the destructors are ours. Type information, layout and everything that LibTorch
/// reads from it are untouched, and taking the hooks off writes the former pointer back.
///
/// This is outside of ISO C++ and inside of the Itanium C++ ABI, which GCC and Clang follow on Linux, macOS
/// and the BSDs; `HolderPatchPool` checks the layout it relies on once and refuses otherwise. See
/// docs/rationale.md.
namespace torchtap::hooks::detail {

struct HolderPatch;

/// A `Sequential` whose own calls are seen through its entries: its inputs are the first entry's, its outputs
/// the last one's. Never freed while the process runs, so that a late call may look at it.
struct Sequence {
  torch::nn::SequentialImpl* module = nullptr;
  std::weak_ptr<torch::nn::Module> keep;  // empty for one on the stack
  bool shared = false;
  Gate gate;
  std::atomic<bool> scope_only{false};  // only the beginnings of its forwards are of interest
  std::vector<HolderPatch*> patches;    // guarded by the registry
  std::atomic<std::size_t> entries{0};  // of the Sequential, when they were patched

  bool has_grown() const;
};

struct HolderPatch {
  static constexpr std::size_t kMaxSlots = 16;

  /// What precedes and makes up a virtual table; the patched pointer leads to `slots`.
  struct Table {
    HolderPatch* patch = nullptr;
    std::ptrdiff_t offset_to_top = 0;
    const void* type_info = nullptr;
    std::array<const void*, kMaxSlots> slots{};
  } table;

  const void* const* original = nullptr;  // the holder's own table
  std::atomic<torch::nn::AnyModulePlaceholder*> holder{nullptr};
  Gate gate;                   // the hooks of the module that the holder calls
  const void* site = nullptr;  // the module, while it is hooked; guarded by the registry
  std::atomic<Sequence*> sequence{nullptr};
  std::atomic<std::size_t> position{0};  // of the entry in the sequence
  std::atomic<bool> last{false};
  std::atomic<bool> has_defaults{false};  // the module's forward has default arguments
};

/// Patches holders. A patch that is taken off is kept for the next holder of the same type, because a call in
/// another thread may be about to look at it. Guarded by the registry's lock.
class HolderPatchPool {
 public:
  /// Throws `c10::NotImplementedError` where virtual tables are not laid out as expected.
  HolderPatch& apply(torch::nn::AnyModulePlaceholder* holder);
  void restore(HolderPatch& patch) noexcept;

 private:
  std::vector<std::unique_ptr<HolderPatch>> all_;
  std::vector<HolderPatch*> free_;
};

}  // namespace torchtap::hooks::detail
