#pragma once

/// Counts what became of the events of a module that gave no sample.

#include <cereal/cereal.hpp>
#include <cereal/types/string.hpp>

#include <cstdint>
#include <string>

#include <torchtap/base/api.hpp>

namespace torchtap::core {

/// What is missing among the samples of one module, and why. It is saved, merged and exchanged together with
/// the samples.
struct TORCHTAP_API NotRecorded {
  /// Events that the condition refused.
  std::int64_t refused = 0;
  /// Events without tensors.
  std::int64_t without_tensors = 0;
  /// Events whose tensor did not fit.
  std::int64_t left_out = 0;
  /// Tensors of samples that no file can hold: None is in their place.
  std::int64_t none = 0;
  /// Why the first of these was left out.
  std::string why_left_out;
  /// Events for which there was no room.
  std::int64_t dropped = 0;
  /// Samples and companions that found no partner in their forward, and how many of them are samples.
  std::int64_t unmatched = 0, unmatched_samples = 0;

  /// Adds what is missing among further samples.
  NotRecorded& operator+=(const NotRecorded& later);
  bool operator==(const NotRecorded& other) const;  ///< Field by field.
  /// How many events gave no sample.
  std::int64_t events() const noexcept;
  /// Whether nothing is missing.
  bool empty() const noexcept;
  /// What is missing, without what the condition refused, as a sentence or several; empty if nothing is.
  std::string note() const;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(refused), CEREAL_NVP(without_tensors), CEREAL_NVP(left_out), CEREAL_NVP(none),
            CEREAL_NVP(why_left_out), CEREAL_NVP(dropped), CEREAL_NVP(unmatched),
            CEREAL_NVP(unmatched_samples));
  }
};

}  // namespace torchtap::core
