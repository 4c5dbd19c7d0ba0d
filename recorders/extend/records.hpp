#pragma once

/// Shows the records of a recorder, and adds one, for parts that merge what several processes recorded.

#include <cstdint>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/recorders/extend/record.hpp>
#include <torchtap/recorders/recorder.hpp>

namespace torchtap::recorders::extend {

using detail::RecordData;

struct TORCHTAP_API Records {
  /// Those of the subrecorders, in order. Throws `c10::ValueError` if the recorder was moved from; `call` is
  /// what was called.
  static std::vector<Record*> of(const Recorder& recorder, const char* call);
  /// The record of a subrecorder. Throws `c10::IndexError`, also for a removed one.
  static Record& at(const Recorder& recorder, std::int64_t index);
  /// Adds subrecorders without a module, which record nothing until `Recorder::replace` attaches them, all of
  /// them or none. They are the last ones then.
  static void add(Recorder& recorder, std::vector<storage::EntryId> ids);
};

}  // namespace torchtap::recorders::extend
