// LibTorch's record functions have another layout in the headers of a debug build, and check what a release
// of LibTorch does not keep; torchtap may be a debug build where LibTorch is a release.
#ifndef NDEBUG
#define NDEBUG
#endif
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include <torchtap/views/report/detail/autograd_nodes.hpp>

namespace torchtap::views::report::detail {
namespace {

constexpr std::size_t most_watches = 16;

/// Callbacks are plain functions, so each watch has its own, with a place for its listener.
struct Places {
  std::mutex mutex;
  std::array<std::weak_ptr<NodeListener>, most_watches> listeners;
  std::array<bool, most_watches> used{};

  static Places& instance() {
    static auto* places = new Places;  // threads may be in a callback when the program ends
    return *places;
  }
  std::shared_ptr<NodeListener> at(std::size_t slot) {
    const std::lock_guard lock(mutex);
    return listeners[slot].lock();
  }
};

struct Running final : at::ObserverContext {
  std::shared_ptr<NodeListener> listener;
};

template <std::size_t slot>
std::unique_ptr<at::ObserverContext> begins(const at::RecordFunction& function) {
  auto listener = Places::instance().at(slot);
  if (listener == nullptr) return nullptr;
  NodeStart node;
  node.thread = function.forwardThreadId();
  node.sequence = static_cast<std::uint64_t>(function.seqNr());
  node.accumulates = std::strstr(function.name(), "AccumulateGrad") != nullptr;
  for (const c10::IValue& input : function.inputs()) {
    node.gradients.push_back(input.isTensor() ? input.toTensor() : at::Tensor());
  }
  if (!listener->node_begins(node)) return nullptr;
  auto running = std::make_unique<Running>();
  running->listener = std::move(listener);
  return running;
}

void ends(const at::RecordFunction& /*function*/, at::ObserverContext* context) {
  if (context != nullptr) static_cast<Running*>(context)->listener->node_ends();
}

template <std::size_t... slots>
constexpr auto make_starts(std::index_sequence<slots...> /*all*/) {
  return std::array<at::RecordFunctionCallback::StartCallback, sizeof...(slots)>{&begins<slots>...};
}

}  // namespace

std::uint64_t autograd_thread_id() {
  return at::RecordFunction::currentThreadId();
}

NodeWatch::NodeWatch(const std::shared_ptr<NodeListener>& listener) {
  static const auto starts = make_starts(std::make_index_sequence<most_watches>());
  Places& places = Places::instance();
  const std::lock_guard lock(places.mutex);
  for (slot_ = 0; slot_ < most_watches && places.used[slot_]; ++slot_) {
  }
  TORCH_CHECK_VALUE(slot_ < most_watches, "views::report::Report::record: ", most_watches,
                    " recordings are open in this process; end one first.");
  places.used[slot_] = true;
  places.listeners[slot_] = listener;
  callback_.emplace(at::addThreadLocalCallback(at::RecordFunctionCallback(starts[slot_], &ends)
                                                   .needsInputs(true)
                                                   .scopes({at::RecordScope::BACKWARD_FUNCTION})));
}

NodeWatch::~NodeWatch() {
  callback_.reset();
  Places& places = Places::instance();
  const std::lock_guard lock(places.mutex);
  places.used[slot_] = false;
  places.listeners[slot_].reset();
}

}  // namespace torchtap::views::report::detail
