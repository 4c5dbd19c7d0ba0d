#pragma once

/// Defines `Recorded`, what a subrecorder has recorded, to be read and saved.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/core/value.hpp>
#include <torchtap/hooks/forward.hpp>
#include <torchtap/recorders/detail/origin.hpp>
#include <torchtap/recorders/detail/prepare.hpp>
#include <torchtap/recorders/detail/record_data.hpp>
#include <torchtap/recorders/detail/slots.hpp>
#include <torchtap/recorders/detail/store.hpp>
#include <torchtap/recorders/detail/taker.hpp>

namespace torchtap::recorders::detail {

/// The data of a subrecorder. Thread-safe: every answer is of one moment.
class TORCHTAP_API Recorded {
 public:
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  const storage::EntryId& id() const noexcept { return slots_.id; }
  RecorderKind kind() const noexcept { return slots_.kind; }
  const RecorderOptions& options() const noexcept { return *slots_.options; }
  const Slots& slots_of() const noexcept { return slots_; }
  std::string describe() const { return slots_.describe(); }
  /// Its place in the store.
  std::int64_t module() const noexcept { return module_; }

  /// Waits for the device if a graph records.
  std::int64_t samples() const noexcept { return taker().samples(); }
  std::int64_t events() const noexcept;
  /// The events that gave no sample.
  const EventCounts& not_recorded() const noexcept { return slots_.counts; }
  /// Why there may be no samples although the module ran, or how many were left out and why; empty if nothing
  /// is known.
  std::string note() const;

  core::Value value() const;
  core::Results results() const;
  std::int64_t slots() const noexcept;
  core::Value slot(std::int64_t index) const;
  /// The entry for `Recorder::save`, all of one moment. Throws if samples are spooled.
  storage::Entry entry() const;
  /// The stream of the spool, after moving samples in memory and `note` to it; null while nothing is spooled.
  storage::Spool::Stream* spooled() const;

  /// A copy of the data. `call` begins the message if samples are spooled, which these calls cannot change.
  RecordData data(const char* call) const;

 protected:
  Recorded(RecorderKind kind, std::shared_ptr<const RecorderOptions> options, storage::EntryId id);
  ~Recorded();
  Taker& taker() const noexcept { return *taker_.load(std::memory_order_acquire); }
  /// Chooses what becomes of samples.
  void choose_taker(std::shared_ptr<Store> store);
  /// From now on takes tensors of devices, too. `owner` keeps this alive.
  void take_from_devices(const std::weak_ptr<const void>& owner);

  /// What is asked without the lock may be wrong right after: samples in memory move to the spool.
  void refuse_spooled(const char* call) const;
  /// Called under the lock.
  core::Value value_here() const;

  mutable Slots slots_;
  Prepare prepare_;
  Origin origin_;
  std::shared_ptr<const hooks::Forwards> forwards_;  // for whose ends samples wait; null if they do not

 private:
  /// Whether samples go to the spool, and those in memory are about to.
  bool in_spool() const {
    return store_ != nullptr && store_->spooling() && store_->stream(module_) != nullptr;
  }
  RecordData copied() const;
  std::string words() const;

  std::shared_ptr<Store> store_;
  std::int64_t module_ = -1;
  std::unique_ptr<Taker> owned_;        // written under the lock
  std::atomic<Taker*> taker_{nullptr};  // that one
};

/// The value with the answers of `function` in place of its tensors.
core::Value mapped(const core::Value& value, const std::function<at::Tensor(const at::Tensor&)>& function);

}  // namespace torchtap::recorders::detail
