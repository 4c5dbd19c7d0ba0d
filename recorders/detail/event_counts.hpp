#pragma once

/// Counts events that gave no sample while threads record.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/core/not_recorded.hpp>

namespace torchtap::recorders::detail {

/// The fields of `core::NotRecorded`, to which several threads may add.
class TORCHTAP_API EventCounts {
 public:
  std::atomic<std::int64_t> refused{0}, without_tensors{0}, dropped{0}, unmatched{0}, unmatched_samples{0};

  /// Counts an event that was left out, or a tensor that is None in files.
  void leave_out(const std::string& why, bool none = false);
  std::int64_t left_out() const noexcept { return left_out_.load() + none_.load(); }
  /// How many events gave no sample.
  std::int64_t events() const noexcept {
    return refused.load() + without_tensors.load() + left_out_.load() + dropped.load() +
           unmatched_samples.load();
  }

  core::NotRecorded now() const;
  /// Replaces all counts.
  void put(core::NotRecorded counts);
  void add(const core::NotRecorded& counts);

 private:
  std::atomic<std::int64_t> left_out_{0}, none_{0};
  mutable std::mutex mutex_;
  std::string why_left_out_;  // the first reason
};

}  // namespace torchtap::recorders::detail
