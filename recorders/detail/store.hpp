#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torchtap/recorders/options.hpp>
#include <torchtap/storage/spool.hpp>

namespace torchtap::recorders::detail {

/// Where the samples of all modules of a recorder go: how much of them is in memory, and the spool, if they
/// do not stay there. Shared by the recorder and its records. Thread-safe.
class Store {
 public:
  /// Opens the spool if samples are to go there at once.
  explicit Store(std::shared_ptr<const Options> options);

  /// Makes room for one more module; what it returns names the module from then on.
  std::int64_t add(const storage::EntryId& id);
  /// Forgets the last `count` modules.
  void withdraw(std::int64_t count) noexcept;
  /// Leaves a module out that was removed before anything was spooled.
  void leave_out(std::int64_t module) noexcept;

  /// Do samples go to the spool by now?
  bool spooling() const noexcept { return spooling_.load(std::memory_order_acquire); }
  /// Throws unless `spooling`.
  storage::Spool& spool() const { return *spool_; }
  /// Null unless `spooling`.
  storage::Spool::Stream* stream(std::int64_t module) const;
  /// From now on samples go to the spool.
  void spill();

  /// The bytes in memory of all modules together.
  std::atomic<std::int64_t> held{0};

 private:
  struct Module {
    storage::EntryId id;
    bool left_out = false;
    storage::Spool::Stream* stream = nullptr;
  };
  void open();

  std::shared_ptr<const Options> options_;
  mutable std::mutex mutex_;
  std::vector<Module> modules_;
  std::unique_ptr<storage::Spool> spool_;
  std::atomic<bool> spooling_{false};
};

}  // namespace torchtap::recorders::detail
