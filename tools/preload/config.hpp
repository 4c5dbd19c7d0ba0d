#pragma once

// The configuration that `torchtap preload` passes to the agent, in the area.

#include <cereal/archives/json.hpp>
#include <cereal/cereal.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "options/selection.hpp"

namespace torchtap::tools::preload {

/// The settings of the agent, passed as JSON.
struct Config {
  std::string what = "output";
  tools::Which which;
  std::string reduce;              ///< text for `reductions::parse`; empty: keep every sample
  std::vector<std::int64_t> over;  ///< the dimensions that count as rows
  bool elementwise = false;        ///< each sample is a row; otherwise, without `over`, each element is
  /// Or trace: log the first forward; report: measure modules; explore: show models as a live page;
  /// fingerprint: write fingerprints of all tensors; monitor: watch models for alarms; learn: write
  /// references for it.
  std::string mode = "record";
  std::int64_t port = 0;                    ///< of the page; 0 for a free one
  std::int64_t forwards = 1;                ///< of fingerprints: how many of each thread; 0: all
  std::int64_t skip = 0;                    ///< and how many before them are left out
  std::vector<std::string> value_paths;     ///< calls whose tensors are written instead of fingerprints
  std::vector<std::int64_t> value_samples;  ///< their numbers
  std::string reference;                    ///< of a monitor: a recording; absolute; empty: only rules
  std::string rules;                        ///< and `Rules::text()`
  double cost = 0.01;                       ///< and the share of a forward's time that it may take
  std::string metrics;                      ///< and its file for Prometheus; absolute; or empty
  std::string tensorboard;                  ///< and its folder for TensorBoard; absolute; or empty
  std::vector<std::string> keep;            ///< of a trace: names of tensors, or all or none; empty: all
  std::string save;    ///< output directory, or file of a report; absolute; empty: nothing is saved
  std::string stream;  ///< name under which samples or results are sent; empty: they are not
  std::int64_t stream_memory = 256;  ///< MiB that readers may make it take
  std::int64_t readers = 0;          ///< for which the program waits before its first module runs
  bool overwrite = false;
  double every = 0;                ///< seconds between saves of the launcher; 0: it saves only at the end
  std::int64_t alarms_before = 0;  ///< bytes of alarms.jsonl before the program began; only of the launcher
  std::string libraries;           ///< LD_PRELOAD for other programs that it starts

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(what), CEREAL_NVP(which.types), CEREAL_NVP(which.not_types), CEREAL_NVP(which.names),
            CEREAL_NVP(which.not_names), CEREAL_NVP(reduce), CEREAL_NVP(over), CEREAL_NVP(elementwise),
            CEREAL_NVP(mode), CEREAL_NVP(port), CEREAL_NVP(forwards), CEREAL_NVP(skip),
            CEREAL_NVP(value_paths), CEREAL_NVP(value_samples), CEREAL_NVP(reference), CEREAL_NVP(rules),
            CEREAL_NVP(cost), CEREAL_NVP(metrics), CEREAL_NVP(tensorboard), CEREAL_NVP(keep),
            CEREAL_NVP(save), CEREAL_NVP(stream), CEREAL_NVP(stream_memory), CEREAL_NVP(readers),
            CEREAL_NVP(overwrite), CEREAL_NVP(libraries));
  }
};

/// As JSON.
template <class T>
std::string text_of(const T& object) {
  std::ostringstream text;
  {
    cereal::JSONOutputArchive archive(text, cereal::JSONOutputArchive::Options::NoIndent());
    const_cast<T&>(object).serialize(archive);
  }
  return text.str();
}

/// Reads what `text_of` made. Throws `cereal::Exception`.
template <class T>
T read_from(const std::string& json) {
  std::istringstream text(json);
  cereal::JSONInputArchive archive(text);
  T object;
  object.serialize(archive);
  return object;
}

}  // namespace torchtap::tools::preload
