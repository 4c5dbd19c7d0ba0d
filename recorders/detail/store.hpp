#pragma once

/// Stores the samples of a recorder, in memory or in a spool.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torchtap/recorders/options.hpp>
#include <torchtap/storage/spool.hpp>

namespace torchtap::recorders {
namespace extend {
class OnDevices;
}

namespace detail {

/// Counts the samples of all modules of a recorder in memory, and has the spool, if samples go to disk.
/// Shared by the recorder and its records. Thread-safe.
class Store {
 public:
  /// Opens the spool if samples go there at once.
  explicit Store(std::shared_ptr<const RecorderOptions> options);

  /// Adds a module and returns its number.
  std::int64_t add(const storage::EntryId& id);
  /// Forgets the last `count` modules.
  void withdraw(std::int64_t count) noexcept;
  /// Keeps a module that was removed before anything was spooled out of the spool.
  void leave_out(std::int64_t module) noexcept;

  /// Whether samples go to the spool.
  bool spooling() const noexcept { return spooling_.load(std::memory_order_acquire); }
  /// Call it only if `spooling`.
  storage::Spool& spool() const { return *spool_; }
  /// Null unless `spooling`.
  storage::Spool::Stream* stream(std::int64_t module) const;
  /// Opens the spool, so that samples go there from now on.
  void spill();

  /// What has devices add samples up; null if none is installed.
  std::shared_ptr<extend::OnDevices> on_devices();

  /// The bytes of the samples in memory, of all modules together.
  std::atomic<std::int64_t> held{0};

 private:
  struct Module {
    storage::EntryId id;
    bool left_out = false;
    storage::Spool::Stream* stream = nullptr;
  };
  void open();
  storage::Spool::Stream* stream_of(const storage::EntryId& id) const;

  std::shared_ptr<const RecorderOptions> options_;
  std::shared_ptr<extend::OnDevices> on_devices_;
  mutable std::mutex mutex_;
  std::vector<Module> modules_;
  std::unique_ptr<storage::Spool> spool_;
  std::atomic<bool> spooling_{false};
};

}  // namespace detail
}  // namespace torchtap::recorders
