// Monitors: the calls of a user, passed to the watcher.
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/views/monitor/detail/learned_folder.hpp>
#include <torchtap/views/monitor/detail/watcher.hpp>
#include <torchtap/views/monitor/monitor.hpp>

namespace torchtap::views::monitor {

Monitor::Monitor(const selectors::ModuleView& model, const std::string& reference, MonitorOptions options) {
  if (!options.learn().empty()) {
    learned_ = std::make_unique<detail::LearnedFolder>(model, options);
    return;
  }
  watcher_ = std::make_shared<detail::Watcher>(model.vector(), reference, std::move(options));
  watcher_->start();
}

Monitor::Monitor(Monitor&&) noexcept = default;

Monitor& Monitor::operator=(Monitor&& other) noexcept {
  if (watcher_ != nullptr && watcher_ != other.watcher_) watcher_->close();
  watcher_ = std::move(other.watcher_);
  learned_ = std::move(other.learned_);
  return *this;
}

Monitor::~Monitor() {
  if (watcher_ != nullptr) watcher_->close();
}

detail::Watcher& Monitor::watcher() const {
  TORCH_CHECK_VALUE(watcher_ != nullptr, "views::monitor::Monitor: it was moved from; call the other one.");
  return *watcher_;
}

void Monitor::follow(const selectors::ModuleView& model) {
  if (learned_ != nullptr) return learned_->follow(model);
  watcher().follow(model.vector());
}

Monitor& Monitor::on_alarm(std::function<void(const Alarm&)> callback) {
  if (learned_ == nullptr) watcher().on_alarm(std::move(callback));
  return *this;
}

std::vector<Alarm> Monitor::alarms() const {
  return learned_ != nullptr ? std::vector<Alarm>() : watcher().alarms();
}

std::string Monitor::metrics() const {
  return learned_ != nullptr ? std::string() : watcher().metrics();
}

std::string Monitor::capture(const std::string& reason) {
  TORCH_CHECK_VALUE(learned_ == nullptr,
                    "views::monitor::Monitor::capture: the monitor learns, and writes no incidents.");
  return watcher().capture(reason);
}

void Monitor::request_capture() noexcept {
  if (watcher_ != nullptr) watcher_->request_capture();
}

void Monitor::flush() {
  if (learned_ != nullptr) return learned_->save();
  const auto held = watcher_;  // the monitor may be destroyed while a thread waits here
  watcher().flush();
}

}  // namespace torchtap::views::monitor
