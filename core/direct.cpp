#include <atomic>
#include <mutex>
#include <torchtap/core/direct.hpp>
#include <typeindex>
#include <unordered_map>

namespace torchtap::core {
namespace {

std::atomic<const DirectCalls*> installed{nullptr};

struct Notes {
  std::mutex mutex;
  std::unordered_map<std::type_index, Following> types;
};

Notes& notes() {
  static auto* notes = new Notes;  // holders that are static objects may be made before and used after
  return *notes;
}

}  // namespace

void note_type(const std::type_info& type, Following following) {
  const std::lock_guard<std::mutex> lock(notes().mutex);
  notes().types.emplace(type, following);
}

std::optional<Following> noted_type(const std::type_info& type) {
  const std::lock_guard<std::mutex> lock(notes().mutex);
  const auto found = notes().types.find(type);
  if (found == notes().types.end()) return std::nullopt;
  return found->second;
}

const DirectCalls* direct_calls() noexcept {
  return installed.load();
}

void set_direct_calls(const DirectCalls* calls) noexcept {
  installed.store(calls);
}

}  // namespace torchtap::core
