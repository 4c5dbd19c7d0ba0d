#include "kept_code.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <unordered_set>
#include <utility>
#include <vector>

namespace torchtap::tools::preload {
namespace {

/// By the tables of the functions of reference counts. Never destroyed: programs call modules while they end.
struct Tables {
  std::mutex mutex;
  std::unordered_set<const void*> known;
  std::vector<const void*> noted;
  std::atomic<bool> any_noted{false};
};

Tables& tables() {
  static Tables& all = *new Tables;
  return all;
}

}  // namespace

void note_code_of(const std::weak_ptr<const torch::nn::Module>& module) noexcept {
  // As libstdc++ lays them out: the object, and its counts, which begin with their table.
  struct Words {
    const void* object;
    const void* const* counts;
  } words;
  static_assert(sizeof(words) == sizeof(module));
  std::memcpy(&words, &module, sizeof words);
  if (words.counts == nullptr) return;
  Tables& all = tables();
  try {
    const std::lock_guard lock(all.mutex);
    if (!all.known.insert(*words.counts).second) return;
    all.noted.push_back(*words.counts);
    all.any_noted = true;
  } catch (const std::exception&) {
    // There is no memory.
  }
}

void keep_noted_code() noexcept {
  Tables& all = tables();
  if (!all.any_noted.load(std::memory_order_relaxed)) return;
  std::vector<const void*> noted;
  {
    const std::lock_guard lock(all.mutex);
    noted.swap(all.noted);
    all.any_noted = false;
  }
  for (const void* const table : noted) {
    Dl_info library{};
    if (::dladdr(table, &library) != 0 && library.dli_fname != nullptr && *library.dli_fname != '\0')
      ::dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  }
}

}  // namespace torchtap::tools::preload
