// Opens the spool of a recorder and adds its modules.
#include <torchtap/base/error.hpp>
#include <torchtap/recorders/detail/store.hpp>
#include <torchtap/recorders/extend/on_devices.hpp>

namespace torchtap::recorders {
namespace {

std::atomic<extend::MakeOnDevices> make_on_devices{nullptr};

}  // namespace

void extend::install(MakeOnDevices make) noexcept {
  make_on_devices.store(make);
}

namespace detail {

Store::Store(std::shared_ptr<const RecorderOptions> options) : options_(std::move(options)) {
  if (!options_->spool_directory().empty() && !options_->memory_budget()) open();
}

void Store::open() {
  spool_ = std::make_unique<storage::Spool>(options_->spool_directory(), options_->spool_options());
  for (auto& module : modules_) {
    if (!module.left_out) module.stream = stream_of(module.id);
  }
  spooling_.store(true, std::memory_order_release);
}

/// Samples behind rows would be rows of no call, which readers pass over or take for others.
storage::Spool::Stream* Store::stream_of(const storage::EntryId& id) const {
  storage::Spool::Stream& stream = spool_->add(id);
  TORCH_CHECK_VALUE(options_->takes() != nullptr || !stream.before().calls, "recorders::", id.kind, ": \"",
                    id.path, "\": the recording at \"", spool_->directory(),
                    "\" has rows of it, and this recorder keeps samples; continue it with "
                    "RecorderOptions::rows, or choose another directory.");
  return &stream;
}

std::int64_t Store::add(const storage::EntryId& id) {
  const std::lock_guard lock(mutex_);
  modules_.push_back({id, false, spool_ == nullptr ? nullptr : stream_of(id)});
  return static_cast<std::int64_t>(modules_.size()) - 1;
}

void Store::withdraw(std::int64_t count) noexcept {
  const std::lock_guard lock(mutex_);
  modules_.resize(modules_.size() - static_cast<std::size_t>(count));
  if (spool_ != nullptr) spool_->withdraw(count);
}

void Store::leave_out(std::int64_t module) noexcept {
  const std::lock_guard lock(mutex_);
  modules_[static_cast<std::size_t>(module)].left_out = true;
}

storage::Spool::Stream* Store::stream(std::int64_t module) const {
  const std::lock_guard lock(mutex_);
  return modules_[static_cast<std::size_t>(module)].stream;
}

void Store::spill() {
  const std::lock_guard lock(mutex_);
  if (spool_ == nullptr) open();
}

std::shared_ptr<extend::OnDevices> Store::on_devices() {
  const extend::MakeOnDevices make = make_on_devices.load(std::memory_order_acquire);
  if (make == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  if (on_devices_ == nullptr) on_devices_ = make(*options_);
  return on_devices_;
}

}  // namespace detail
}  // namespace torchtap::recorders
