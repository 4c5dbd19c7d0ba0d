// Takes windows, and has them judged: in the monitor's thread, in a forward, or elsewhere.
#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/views/monitor/detail/incident_folder.hpp>
#include <torchtap/views/monitor/detail/watcher.hpp>
#include <torchtap/views/monitor/detail/window_blocks.hpp>

namespace torchtap::views::monitor::detail {
/// To be judged, now that it stops.
bool Watcher::nothing_is_left() const {
  const std::lock_guard lock(due_mutex_);
  return stops_ && due_.told.windows.empty() && rows_.load() == 0;
}

/// The monitor's thread.
void Watcher::work() {
  judging_ = std::this_thread::get_id();
  if (!nothing_is_left()) guarded([&] { judge_->prepare(); });
  std::unique_lock lock(due_mutex_);
  busy_ = false;
  while (true) {
    const auto waits = [&] {
      const Told& told = due_.told;
      return due_.window || !told.windows.empty() || told.capture || !told.alarms.empty() ||
             !told.not_counted.empty() || due_.ticket > done_;
    };
    if (!waits() && !stops_) {
      using Seconds = std::chrono::duration<double>;
      busy_ = false;
      due_changed_.wait_for(lock, std::min(Seconds(options_.window_seconds()), Seconds(3600)),
                            [&] { return waits() || stops_; });
    }
    busy_ = true;
    const bool stops = stops_;
    const std::uint64_t ticket = due_.ticket;
    Due due = std::exchange(due_, Due());
    due_.ticket = ticket;
    lock.unlock();
    const auto passed = static_cast<double>(clock_ns() - window_began_.load()) / 1e9;
    if (rows_.load() >= least_rows_by_time && passed >= options_.window_seconds()) due.window = true;
    guarded([&] { judge_->judge(complete(std::move(due))); });
    lock.lock();
    done_ = std::max(done_, ticket);
    due_done_.notify_all();
    if (stops) break;
  }
  ended_ = true;
  due_done_.notify_all();
}

/// Does the thread's work where there is no thread. One thread at a time; the others continue, unless they
/// wait.
void Watcher::serve(bool wait) {
  if (judging_.load() == std::this_thread::get_id()) return;  // a forward in a callback
  std::unique_lock judge(judge_mutex_, std::defer_lock);
  if (wait) {
    judge.lock();
  } else if (!judge.try_lock() || closed_) {
    return;
  }
  judging_ = std::this_thread::get_id();
  Due due;
  {
    const std::lock_guard lock(due_mutex_);
    due = std::exchange(due_, Due());
  }
  guarded([&] { judge_->judge(complete(std::move(due))); });
  judging_ = std::thread::id();
}

/// With the window that ends now, if it does.
Told Watcher::complete(Due due) {
  if (due.window) due.told.windows.push_back(take());
  return std::move(due.told);
}

/// Has another process judge.
void Watcher::tell_elsewhere(Due due) {
  if (!made_here_) return;
  Told told = complete(std::move(due));
  told.counts = counts();
  if (!told.windows.empty() || !told.alarms.empty()) told.digest = digest();
  elsewhere_.tell(told);
}

/// Of a model that was not in training, which is digested again only where a parameter has changed.
std::string Watcher::digest() {
  if (trained_) return {};
  std::vector<std::shared_ptr<const void>> keep;
  const std::vector<model::ModuleRef> modules = living(keep);
  std::vector<std::pair<const void*, std::int64_t>> now;
  for (const model::ModuleRef& module : modules) {
    for (const model::Held& held : model::held_by(module)) {
      const at::Tensor& tensor = held.tensor;
      const bool is_plain = tensor.defined() && tensor.has_storage();
      now.emplace_back(is_plain ? tensor.data_ptr() : nullptr,
                       is_plain && !tensor.is_inference() ? static_cast<std::int64_t>(tensor._version()) : 0);
    }
  }
  const std::lock_guard lock(digest_mutex_);
  if (modules.empty() || (now == digest_of_ && !digest_.empty())) return digest_;
  digest_of_ = std::move(now);
  return digest_ = digest_of_parameters(modules);
}

Window Watcher::take() {
  const std::lock_guard taking(take_mutex_);
  Window taken = so_far(/*takes=*/true);
  ++windows_;
  return taken;
}

Window Watcher::unfinished() {
  const std::lock_guard taking(take_mutex_);
  return so_far(/*takes=*/false);
}

/// The window until now, which `takes` ends.
Window Watcher::so_far(bool takes) {
  const base::RecordingMode quiet;
  Window window;
  window.number = windows_;
  window.rows = takes ? rows_.exchange(0) : rows_.load();
  if (takes) {
    window_began_ = clock_ns();
    window_asked_ = false;
  }
  window.nonfinite = takes ? nonfinite_in_window_.exchange(false) : nonfinite_in_window_.load();
  window.failed = takes ? failed_in_window_.exchange(false) : failed_in_window_.load();
  window.forward = forwards_.load() - 1;
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    Watched& one = watched_[i];
    const std::int64_t events = one.data.events(), samples = one.data.samples();
    window.calls.push_back(one.calls + events);
    if (takes) one.calls += events;
    const core::Value value = takes ? one.data.take() : one.data.value();
    if (value.is_none()) continue;
    for (const auto& [slot, of] : value.dict()) {
      if (!of.is_dict()) continue;  // an undefined tensor
      SeenTensor& seen = window.seen.emplace_back();
      seen.tensor = i;
      seen.slot = std::stoll(slot);
      seen.samples = samples;
      for (const auto& [name, tensor] : of.dict()) {
        if (name == "order") {
          seen.order = tensor.tensor().item<std::int64_t>();
        } else {
          seen.results.set(name, tensor.tensor());
        }
      }
    }
  }
  if (parameters_ != nullptr) window.parameters = parameters_->facts();
  return window;
}

}  // namespace torchtap::views::monitor::detail
