// Keeps the forwards of a thread.
#include <torch/csrc/autograd/function.h>

#include <algorithm>

#include <torchtap/base/of_thread.hpp>
#include <torchtap/base/thread.hpp>
#include <torchtap/views/explorer/detail/thread_forward.hpp>
#include <torchtap/views/explorer/detail/watched_model.hpp>

namespace torchtap::views::explorer::detail {

std::vector<ThreadForward>& ThreadForward::all() {
  static_cast<void>(
      base::thread_lives());  // the state that its scopes put back has to be destroyed after them
  return base::of_thread<std::vector<ThreadForward>>();
}

std::int64_t ThreadForward::next() {
  thread_local std::int64_t last = 0;
  return ++last;
}

bool ThreadForward::is_stale() const {
  return std::any_of(all().begin(), all().end(), [&](const ThreadForward& other) {
    const Forward& later = *other.forward;
    return later.counts && forward->counts && !later.open.empty() && later.began > forward->began &&
           later.open.front().depth <= forward->open.back().depth;
  });
}

void ThreadForward::close_scopes_inside(const Forward& forward) {
  for (;;) {
    const ThreadForward* innermost = nullptr;
    for (const ThreadForward& one : all()) {
      const bool inside = one.forward->scope != nullptr && one.forward->began > forward.began;
      if (inside && (innermost == nullptr || one.forward->began > innermost->forward->began))
        innermost = &one;
    }
    if (innermost == nullptr) return;
    innermost->forward->scope.reset();
  }
}

Forward& WatchedModel::forward_here() {
  auto& here = ThreadForward::all();
  for (ThreadForward& one : here) {
    if (one.serial == serial_) return *one.forward;
  }
  here.erase(std::remove_if(here.begin(), here.end(),
                            [](const ThreadForward& one) { return one.watched.expired(); }),
             here.end());
  here.push_back({weak_from_this(), serial_, std::make_unique<Forward>()});
  return *here.back().forward;
}

/// In this thread; other threads do so when they run a model that is watched, or end.
void WatchedModel::forget_forward() noexcept {
  auto& here = ThreadForward::all();
  here.erase(std::remove_if(here.begin(), here.end(),
                            [this](const ThreadForward& one) { return one.serial == serial_; }),
             here.end());
}

}  // namespace torchtap::views::explorer::detail
