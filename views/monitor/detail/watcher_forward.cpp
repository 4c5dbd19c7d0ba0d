// Forwards as they begin and end.
#include <ATen/core/grad_mode.h>

#include <utility>

#include <torchtap/views/monitor/detail/incident_folder.hpp>
#include <torchtap/views/monitor/detail/watcher.hpp>
#include <torchtap/views/monitor/detail/window_blocks.hpp>
#include <torchtap/views/watch/calls.hpp>

namespace torchtap::views::monitor::detail {
namespace {

/// The monitor's own time is measured in each sampled forward and in one of so many others.
constexpr std::int64_t timed_each = 8;
/// Windows that wait to be judged; then they grow.
constexpr std::size_t most_waiting = 64;

std::int64_t rows_of(const hooks::Tensors& inputs) {
  for (std::int64_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].defined()) return inputs[i].dim() == 0 ? 1 : inputs[i].size(0);
  }
  return 1;
}

}  // namespace

void Watcher::begin(const hooks::Event& event) {
  const int depth = watch::calls_here();
  if (OpenForward* const before = open_forward_here(serial_)) {
    if (depth > before->depth) {  // the root calls itself
      ++before->inside;
      return;
    }
    failed(before->number);
    forget_forward_here(serial_);
  }
  open(depth, 0, event);
}

void Watcher::end(const hooks::Event& event) {
  OpenForward* const forward = open_forward_here(serial_);
  if (forward == nullptr) return;  // it began before the monitor
  if (forward->inside > 0) {
    --forward->inside;
    return;
  }
  const OpenForward ended = *forward;
  forget_forward_here(serial_);
  OpenForward mine = ended;
  finish(mine, event);
}

/// The outermost modules of a root whose calls cannot be seen. A forward begins with the module that was the
/// first of all to be called, and ends with the last return of the forward before.
void Watcher::begin_hidden(std::size_t top, const hooks::Event& event) {
  int first = -1;
  const int mine = static_cast<int>(top);
  if (!first_top_.compare_exchange_strong(first, mine) && first != mine) return;
  if (const OpenForward* const before = open_forward_here(serial_)) {
    calls_of_tops_.store(before->tops, std::memory_order_relaxed);
    forget_forward_here(serial_);
  }
  open(watch::calls_here(), chosen_.tops[top], event);
}

void Watcher::end_hidden(const hooks::Event& event) {
  OpenForward* const forward = open_forward_here(serial_);
  if (forward == nullptr || ++forward->tops != calls_of_tops_.load(std::memory_order_relaxed) ||
      forward->ended)
    return;
  forward->ended = true;
  finish(*forward, event);
}

/// A forward begins with the call of a module.
void Watcher::open(int depth, std::size_t module, const hooks::Event& event) {
  OpenForward forward;
  forward.watcher = serial_;
  forward.depth = depth;
  forward.number = forwards_.fetch_add(1, std::memory_order_relaxed);
  forward.sampled = sampler_.wants(forward.number);
  forward.timed = forward.sampled || forward.number % timed_each == 0;
  const std::int64_t entered = forward.timed ? cpu_ns() : 0;
  const bool needs_mode =
      writes_incidents() || ring_ != nullptr || parameters_ != nullptr || options_.gradients();
  const bool training = forward.training = needs_mode && is_training(module);
  trained_.store(training, std::memory_order_relaxed);
  if (ring_ != nullptr) ring_->begin(forward.number, event.inputs(), training);
  if (forward.sampled) forward.rows = rows_of(event.inputs());
  const bool trains = training && at::GradMode::is_enabled();
  if (options_.gradients()) {
    gradients_sampled_.store(forward.sampled && at::GradMode::is_enabled(), std::memory_order_relaxed);
  }
  if (parameters_ != nullptr && trains) parameters_->begin(forward.sampled);
  forward.folded = folded_here();
  forward.began = clock_ns();
  if (forward.timed) {
    forward.began_cpu = cpu_ns();
    forward.own = forward.began_cpu - entered;
  }
  open_forwards_here().push_back(forward);
}

void Watcher::finish(OpenForward& forward, const hooks::Event& event) {
  const std::int64_t returned = clock_ns(), returned_cpu = forward.timed ? cpu_ns() : 0;
  Outcome outcome = outcome_of(event.outputs());
  outcome.nanoseconds = returned - forward.began;
  if (ring_ != nullptr) ring_->end(forward.number, outcome);
  if (forward.timed) {
    const std::int64_t folded = folded_here() - forward.folded;
    const std::int64_t own = forward.own + folded + cpu_ns() - returned_cpu;
    sampler_.note(forward.sampled, returned_cpu - forward.began_cpu - folded, own);
    own_ns_.fetch_add(forward.sampled ? own : own * timed_each, std::memory_order_relaxed);
  }

  Due due;
  if (outcome.nan + outcome.inf != 0) {
    nonfinite_.fetch_add(outcome.nan + outcome.inf, std::memory_order_relaxed);
    if (!nonfinite_in_window_.exchange(true) && options_.rules().is_on("nonfinite", "")) {
      rules::Finding finding;
      finding.rule = "nonfinite";
      finding.type = modules_.front().type();
      finding.value = static_cast<double>(outcome.nan + outcome.inf);
      std::int64_t all = 0;
      const hooks::Tensors& outputs = event.outputs();
      for (std::int64_t i = 0; i < outputs.size(); ++i) all += outputs[i].defined() ? outputs[i].numel() : 0;
      if (outcome.nan != 0) finding.sentence = std::to_string(outcome.nan) + " NaN";
      if (outcome.nan != 0 && outcome.inf != 0) finding.sentence += ", ";
      if (outcome.inf != 0) {
        finding.sentence += std::to_string(outcome.inf) + (outcome.inf == 1 ? " infinity" : " infinities");
      }
      finding.sentence += " of " + std::to_string(all) + " values";
      due.told.alarms.push_back(alarm_of(std::move(finding), -1, forward.number));
    }
  }
  if (forward.sampled) {
    sampled_.fetch_add(1, std::memory_order_relaxed);
    const std::int64_t rows = rows_.fetch_add(forward.rows, std::memory_order_relaxed) + forward.rows;
    const double seconds =
        static_cast<double>(returned - window_began_.load(std::memory_order_relaxed)) / 1e9;
    const bool is_over =
        rows >= options_.window() || (rows >= least_rows_by_time && seconds >= options_.window_seconds());
    // While the monitor's thread is busy, and with it its tests are made, windows end here.
    const bool waits = judge_ != nullptr && options_.thread() && rows >= options_.window() &&
                       (busy_.load(std::memory_order_relaxed) || rows >= 2 * options_.window());
    if (waits && room_for_windows()) {
      due.told.windows.push_back(take());
    } else {
      due.window = is_over && !window_asked_.exchange(true);
    }
  }
  due.told.capture = capture_requested_.load(std::memory_order_relaxed) && capture_requested_.exchange(false);
  // An optimizer may change them as soon as this returns.
  Told& told = due.told;
  if (writes_incidents() && (told.capture || (!told.alarms.empty() && copies_parameters())) &&
      forward.training) {
    std::vector<std::shared_ptr<const void>> keep;
    told.parameters = CopiedParameters{forward.number, copied_parameters(living(keep))};
  }
  if (due.window || !told.windows.empty() || told.capture || !told.alarms.empty()) ask(std::move(due));
}

/// As seldom as incidents of a rule are written.
bool Watcher::copies_parameters() {
  const std::int64_t now = clock_ns(), before = parameters_copied_.load();
  if (before != 0 && now - before < incident_gap_ns) return false;
  parameters_copied_ = now;
  return true;
}

bool Watcher::room_for_windows() const {
  const std::lock_guard lock(due_mutex_);
  return due_.told.windows.size() < most_waiting;
}

void Watcher::lost(const OpenForward& forward) noexcept {
  if (!made_here_ || !chosen_.tops.empty()) return;
  guarded([&] { failed(forward.number, /*thread_ends=*/true); });
}

/// `thread_ends`: thread-local data may be destroyed already, so that nothing is judged here.
void Watcher::failed(std::int64_t number, bool thread_ends) {
  failures_.fetch_add(1, std::memory_order_relaxed);
  if (failed_in_window_.exchange(true) || !options_.rules().is_on("forward_failed", "")) return;
  rules::Finding finding;
  finding.rule = "forward_failed";
  finding.type = modules_.front().type();
  finding.value = 1;
  finding.sentence = "forward " + std::to_string(number) + " began and did not return";
  Due due;
  due.told.alarms.push_back(alarm_of(std::move(finding), -1, number));
  if (!thread_ends || judge_ == nullptr || options_.thread()) return ask(std::move(due));
  const std::lock_guard lock(due_mutex_);
  due_.told.alarms.push_back(std::move(due.told.alarms.back()));
}

/// Has the monitor's thread do it or, without one, does it now unless another thread is at it.
void Watcher::ask(Due due) {
  if (closed_) return;
  if (judge_ == nullptr) return tell_elsewhere(std::move(due));
  {
    const std::lock_guard lock(due_mutex_);
    Told& all = due_.told;
    Told& told = due.told;
    due_.window = due_.window || due.window;
    all.capture = all.capture || told.capture;
    for (Window& window : told.windows) all.windows.push_back(std::move(window));
    for (Alarm& alarm : told.alarms) all.alarms.push_back(std::move(alarm));
    for (std::string& path : told.not_counted) all.not_counted.push_back(std::move(path));
    if (told.parameters.has_value()) all.parameters = std::move(told.parameters);
  }
  if (options_.thread()) {
    due_changed_.notify_one();
  } else {
    serve(false);
  }
}

}  // namespace torchtap::views::monitor::detail
