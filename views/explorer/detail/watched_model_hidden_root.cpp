// Forwards of a root whose calls cannot be seen: where they begin and end is told from outside.
#include <algorithm>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/views/explorer/detail/thread_forward.hpp>
#include <torchtap/views/explorer/detail/watched_model.hpp>

namespace torchtap::views::explorer::detail {

/// The scope of a forward that ended in a backward, which is over by now.
void WatchedModel::close_scope() noexcept {
  for (ThreadForward& one : ThreadForward::all()) {
    if (one.serial == serial_) one.left_open.reset();
  }
}

/// The call of the root, which is given what its first module is given.
void WatchedModel::begin_hidden_root(Forward& forward, const hooks::Event& event) {
  close_scope();
  constexpr int outermost = -1;
  mix(forward.pass.hash, 1);
  forward.open.push_back({0, outermost});
  if (!forward.looks()) return;
  const base::RecordingMode quiet;
  open_call(forward, forward.open.back(), all(event.inputs()));
}

/// Hooks are attached at the first call of a module, so a Sequential around it may be running already. Opens
/// that Sequential now; its input is the input of its first entry.
void WatchedModel::open_missed(Forward& forward, std::int32_t module, int depth, const hooks::Event& event) {
  for (const std::size_t outer : nesting_.around(static_cast<std::size_t>(module))) {
    const auto around = static_cast<std::int32_t>(outer);
    const auto is_this = [&](const Forward::OpenCall& running) { return running.module == around; };
    if (!hooked_[outer] || std::any_of(forward.open.begin(), forward.open.end(), is_this)) {
      continue;
    }
    mix(forward.pass.hash, 2 * static_cast<std::uint64_t>(around) + 1);
    forward.open.push_back({around, depth - 1});
    forward.open.back().missed = true;
    if (!forward.looks()) continue;
    const base::RecordingMode quiet;
    open_call(forward, forward.open.back(), all(event.inputs()));
  }
}

/// Their ends cannot be seen either: they are over when a module outside of them is called, or the forward
/// is, and returned what their last entry did. `next` is that module, or -1.
void WatchedModel::close_missed(Forward& forward, std::int32_t next) {
  while (!forward.open.empty() && forward.open.back().missed) {
    const std::int32_t module = forward.open.back().module;
    if (next >= 0) {
      const auto& around = nesting_.around(static_cast<std::size_t>(next));
      if (std::find(around.begin(), around.end(), static_cast<std::size_t>(module)) != around.end()) return;
    }
    mix(forward.pass.hash, 2 * static_cast<std::uint64_t>(module));
    const std::vector<at::Tensor> outputs = std::move(forward.open.back().last);
    if (!forward.looks()) {
      forward.open.pop_back();
      continue;
    }
    const base::RecordingMode quiet;
    close_call(forward, outputs);
    if (!forward.open.empty() && forward.open.back().missed) forward.open.back().last = outputs;
  }
}

/// Its result is not known.
void WatchedModel::finish_hidden_root(Forward& forward) {
  const auto began = Pace::Clock::now();
  const bool looked = forward.looks();
  close_missed(forward, -1);
  joined_ = true;
  {
    const base::RecordingMode quiet;
    while (!forward.open.empty()) {
      if (looked) {
        close_call(forward, {});
      } else {
        forward.open.pop_back();
      }
    }
  }
  mix(forward.pass.hash, 0);
  end(forward, {});
  if (looked) pace_.spend(Pace::Clock::now() - began);
}

void WatchedModel::end_forward(bool whole) noexcept {
  if (!hides_root_) return;
  guarded([&] {
    close_scope();
    Forward& forward = forward_here();
    if (forward.open.empty()) return;
    forward.scope.reset();
    if (!whole) return abandon(forward);
    finish_hidden_root(forward);
  });
}

void WatchedModel::backward_follows() noexcept {
  if (!hides_root_) return;
  guarded([&] {
    Forward& forward = forward_here();
    const bool learned = !forward.open.empty() && forward.learns;
    if (!forward.open.empty()) {
      if (forward.flow != nullptr) forward.flow->stop();
      for (ThreadForward& one : ThreadForward::all()) {
        if (one.serial == serial_) one.left_open = std::move(forward.scope);
      }
      finish_hidden_root(forward);
    }
    if (!learned) return;
    const std::lock_guard lock(mutex_);
    backward_seen_ = any_backward_ = true;
    unanswered_.clear();
  });
}

}  // namespace torchtap::views::explorer::detail
