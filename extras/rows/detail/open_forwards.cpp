// Keeps the forwards of each thread until they end.
#include <algorithm>
#include <map>
#include <vector>

#include <torchtap/base/of_thread.hpp>
#include <torchtap/core/context.hpp>
#include <torchtap/rows/detail/open_forwards.hpp>

namespace torchtap::rows::detail {
namespace {

/// A forward in which a dump has recorded.
struct Forward {
  std::uint64_t dump = 0;
  const core::Context* context =
      nullptr;  // that is the forward; else its number in the thread says which it is
  std::uint64_t in_thread = 0;
  std::int64_t number = 0;
  std::vector<std::shared_ptr<Group>> groups;
  std::map<const void*, std::int64_t> calls;  // where a context counts them
};

constexpr std::size_t kMost = 8;  // in a thread; the ends of some are not seen

struct ForwardsHere {
  std::vector<Forward> list;  // the latest is the last
};

void drop(std::uint64_t dump, const core::Context* context, std::uint64_t in_thread) noexcept {
  auto& list = base::of_thread<ForwardsHere>().list;
  list.erase(std::remove_if(list.begin(), list.end(),
                            [&](const Forward& one) {
                              return one.dump == dump && one.context == context && one.in_thread == in_thread;
                            }),
             list.end());
}

}  // namespace

OpenForwards::OpenForwards(const model::ModuleRef& module)
    : forwards_(module.root()), hooked_(module.root().reachable()) {}

Call OpenForwards::of(Dump& dump, const void* module, const hooks::Event& event,
                      at::IntArrayRef sizes) const {
  const core::Context* const context = hooked_ ? nullptr : core::Context::together();
  const std::uint64_t in_thread = context != nullptr ? 0 : forwards_.current(), serial = dump.serial();
  auto& list = base::of_thread<ForwardsHere>().list;
  auto found = std::find_if(list.begin(), list.end(), [&](const Forward& one) {
    return one.dump == serial && one.context == context && one.in_thread == in_thread;
  });
  if (found == list.end()) {
    if (list.size() >= kMost) list.erase(list.begin());
    const auto ended = [serial, context, in_thread] { drop(serial, context, in_thread); };
    if (context != nullptr) {
      context->at_end(ended);
    } else {
      forwards_.at_end(ended);  // or later, when there are too many
    }
    list.push_back({serial, context, in_thread, dump.next_forward(), {}, {}});
    found = std::prev(list.end());
  }
  Call call{nullptr, context != nullptr ? found->calls[module]++ : event.call_index()};
  Named named(dump.asked());
  for (const auto& group : found->groups) {
    if (group->is_of(named, sizes)) call.group = group;
  }
  if (call.group == nullptr) {
    call.group = dump.make(std::move(named), sizes, found->number);
    found->groups.push_back(call.group);
  }
  return call;
}

}  // namespace torchtap::rows::detail
