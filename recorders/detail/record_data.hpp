#pragma once

/// Defines `RecordData`, a copy of what a recorder has of one module: to be read, merged or saved without its
/// lock.

#include <cstdint>
#include <vector>

#include <torchtap/core/archive.hpp>
#include <torchtap/core/not_recorded.hpp>
#include <torchtap/recorders/detail/slots.hpp>
#include <torchtap/recorders/detail/snapshot_format.hpp>

namespace torchtap::recorders::detail {

/// The slots with their counts, all of one moment.
struct RecordData {
  std::vector<SlotData> slots;
  std::int64_t samples = 0;
  core::NotRecorded not_recorded;

  /// Called under the lock.
  static RecordData copied(const Slots& from);
  /// Writes it as `load` reads it.
  void save(const Slots& of, core::OutputArchive& archive) const;
  /// Throws `c10::ValueError` if it was saved for another module or reduction.
  static RecordData load(const Slots& of, SnapshotReader& snapshot);
};

/// Adds slots to slots. If it throws, some have been added.
void join(const Slots& of, std::vector<SlotData>& mine, const std::vector<SlotData>& theirs);

}  // namespace torchtap::recorders::detail
