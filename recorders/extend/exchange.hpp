#pragma once

/// The interface by which other rooms merge a recorder's data with other processes' data.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/core/not_recorded.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/storage/entry.hpp>

namespace torchtap::recorders {
class Recorder;
}

namespace torchtap::recorders::extend {

/// The data of one subrecorder.
struct TORCHTAP_API Portion {
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

/// Copies the data of a recorder, and replaces it by data of more processes.
struct TORCHTAP_API Exchange {
  /// Copies of each subrecorder's data, in order, each of one moment. Throws `c10::ValueError` if samples are
  /// spooled, if a value was set by hand, or if the recorder was moved from.
  static std::vector<Portion> take(const Recorder& recorder);
  /// The same of one subrecorder. Throws `c10::IndexError`, also for a removed one.
  static Portion take(const Recorder& recorder, std::int64_t index);
  /// The reduction without samples; null if every sample is kept.
  static std::unique_ptr<core::Sink> blank(const Recorder& recorder);
  /// The first subrecorder that recorded an event since `taken` was taken, as messages name it; "" if there
  /// is none.
  static std::string changed_since(const Recorder& recorder, const std::vector<Portion>& taken);
  /// Replaces the recorder's data by `merged`, subrecorder by subrecorder. Further portions become
  /// subrecorders without a module, which record nothing until `Recorder::replace` attaches them.
  static void put(Recorder& recorder, std::vector<Portion> merged);
};

}  // namespace torchtap::recorders::extend
