#pragma once

/// Defines `Portion`, the data of one subrecorder, and takes the portions of a recorder, or puts merged ones.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/core/not_recorded.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/storage/entry.hpp>

namespace torchtap::distributed::detail {

/// The data of one subrecorder.
struct Portion {
  /// The data of one slot.
  struct Slot {
    std::unique_ptr<core::Sink> sink;  ///< null if every sample is kept
    std::vector<at::Tensor> samples;
  };

  storage::EntryId id;
  std::vector<Slot> slots;
  std::int64_t samples = 0;
  core::NotRecorded not_recorded;
};

/// Copies of each subrecorder's data, in order, each of one moment. Throws `c10::ValueError` if samples are
/// spooled, if a value was set by hand, or if the recorder was moved from.
std::vector<Portion> portions_of(const recorders::Recorder& recorder);
/// The first subrecorder that recorded an event since `taken` was taken, as messages name it; "" if there is
/// none.
std::string changed_since(const recorders::Recorder& recorder, const std::vector<Portion>& taken);
/// Replaces the recorder's data by `merged`, subrecorder by subrecorder. Further portions become subrecorders
/// without a module.
void put(recorders::Recorder& recorder, std::vector<Portion> merged);

}  // namespace torchtap::distributed::detail
