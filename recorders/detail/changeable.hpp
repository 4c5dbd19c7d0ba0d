#pragma once

/// Defines `Changeable`, recorded data that calls replace, discard and add to.

#include <cstdint>
#include <functional>
#include <vector>

#include <torchtap/core/value.hpp>
#include <torchtap/recorders/detail/recorded.hpp>

namespace torchtap::recorders::detail {

/// Changes what was recorded, each time as of one moment. Thread-safe.
class TORCHTAP_API Changeable : public Recorded {
 public:
  void set(const core::Value& value);
  void apply(const std::function<at::Tensor(const at::Tensor&, std::int64_t)>& function);
  void reset();
  core::Value take();
  /// Replaces the data.
  void put(RecordData data);
  /// Adds the data of another record. If it throws, nothing changes.
  void merge(const RecordData& theirs);
  /// Reads the data of `RecordData::save`, without putting it in place.
  RecordData load(SnapshotReader& snapshot) const;

 protected:
  using Recorded::Recorded;
  ~Changeable() = default;

 private:
  std::int64_t forget_samples();
  [[nodiscard]] std::vector<SlotData> forget_rest();
};

}  // namespace torchtap::recorders::detail
