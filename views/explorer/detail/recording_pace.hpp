#pragma once

// Decides which steps are recorded, by the cost of recording so far.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <torchtap/views/explorer/detail/control.hpp>
#include <torchtap/views/explorer/options.hpp>

namespace torchtap::views::explorer::detail {

/// `allows` and `spend` may be called by several threads.
class Pace {
 public:
  using Clock = std::chrono::steady_clock;

  /// `control` has to outlive it. `models` share the time that the options allow; one if there is no number.
  Pace(const ExplorerOptions& options, const Control& control,
       std::shared_ptr<const std::atomic<int>> models = nullptr)
      : control_(control), share_(options.overhead()), models_(std::move(models)) {}

  /// Whether to record this step. The first one always is.
  bool allows(std::int64_t step, Clock::time_point now) {
    if (control_.paused()) return false;
    if (const std::int64_t every = control_.every(); every > 0) return step % every == 0;
    if (recorded_++ == 0) {
      began_ = now;
      spent_ = 0;
      return true;
    }
    // As much again as the dearest record took has to fit.
    const bool fits = static_cast<double>(spent_ + dearest_) <= allowed() * static_cast<double>(elapsed(now));
    if (!fits) --recorded_;
    return fits;
  }
  /// Whether to record a forward in evaluation mode between two steps. Sets the interval of recorded
  /// evaluations in steps: an evaluation may run in a step that is not recorded itself.
  bool allows_evaluation(std::int64_t step, Clock::time_point now) {
    const std::int64_t every = control_.every();
    if (every == 0 || control_.paused()) return allows(step, now);
    if (evaluated_ && *evaluated_ != step && step - *evaluated_ < every) return false;
    evaluated_ = step;
    return true;
  }
  /// Whether there is time to look at a forward that need not be looked at.
  bool affords(Clock::time_point now) const {
    return control_.every() > 0 ||
           static_cast<double>(spent_) <= allowed() * static_cast<double>(elapsed(now));
  }
  /// Time that recording took.
  void spend(Clock::duration time) {
    const auto taken = time / std::chrono::nanoseconds(1);
    spent_ += taken;
    this_record_ += taken;
  }
  /// Time of work that not every record repeats.
  void spend_apart(Clock::duration time) { spent_ += time / std::chrono::nanoseconds(1); }
  /// The time since the last call was spent on one record.
  void end_record() {
    const std::int64_t taken = this_record_.exchange(0);
    // The first one also measured what happens once, such as the compilation of TorchScript.
    dearest_ = ends_++ < 2 ? taken : (taken > dearest_ ? taken : dearest_ - (dearest_ - taken) / 8);
  }
  /// The share of the time since the first record.
  double share(Clock::time_point now) const {
    const auto all = elapsed(now);
    return all <= 0 ? 0.0 : static_cast<double>(spent_) / static_cast<double>(all);
  }

 private:
  double allowed() const { return share_ / std::max(1, models_ == nullptr ? 1 : models_->load()); }
  std::int64_t elapsed(Clock::time_point now) const { return (now - began_) / std::chrono::nanoseconds(1); }

  const Control& control_;
  double share_;
  std::shared_ptr<const std::atomic<int>> models_;
  Clock::time_point began_ = Clock::now();
  std::int64_t recorded_ = 0, ends_ = 0;
  std::optional<std::int64_t> evaluated_;  // the last step
  std::int64_t dearest_ = 0;
  std::atomic<std::int64_t> spent_{0}, this_record_{0};
};

}  // namespace torchtap::views::explorer::detail
