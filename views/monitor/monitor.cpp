// Monitors: the calls of a user, passed to the watcher.
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/views/monitor/detail/watcher.hpp>
#include <torchtap/views/monitor/monitor.hpp>

namespace torchtap::views::monitor {

Monitor::Monitor(const selectors::ModuleView& model, const std::string& reference, MonitorOptions options)
    : watcher_(std::make_shared<detail::Watcher>(model.vector(), reference, std::move(options))) {
  watcher_->start();
}

Monitor::Monitor(Monitor&&) noexcept = default;

Monitor& Monitor::operator=(Monitor&& other) noexcept {
  if (watcher_ != nullptr && watcher_ != other.watcher_) watcher_->close();
  watcher_ = std::move(other.watcher_);
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
  watcher().follow(model.vector());
}

Monitor& Monitor::on_alarm(std::function<void(const Alarm&)> callback) {
  watcher().on_alarm(std::move(callback));
  return *this;
}

std::vector<Alarm> Monitor::alarms() const {
  return watcher().alarms();
}

std::string Monitor::metrics() const {
  return watcher().metrics();
}

std::string Monitor::capture(const std::string& reason) {
  return watcher().capture(reason);
}

void Monitor::request_capture() noexcept {
  if (watcher_ != nullptr) watcher_->request_capture();
}

void Monitor::flush() {
  const auto held = watcher_;  // the monitor may be destroyed while a thread waits here
  watcher().flush();
}

}  // namespace torchtap::views::monitor
