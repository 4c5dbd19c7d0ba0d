#include <atomic>
#include <torchtap/core/direct.hpp>

namespace torchtap::core {
namespace {
std::atomic<const DirectCalls*> installed{nullptr};
}

const DirectCalls* direct_calls() noexcept {
  return installed.load();
}

void set_direct_calls(const DirectCalls* calls) noexcept {
  installed.store(calls);
}

}  // namespace torchtap::core
