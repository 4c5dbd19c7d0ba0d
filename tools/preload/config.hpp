#pragma once

#include <cereal/cereal.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "../which.hpp"

namespace torchtap::preload {

/// The environment variable in which `torchtap preload` hands the configuration to the library in the
/// program.
inline constexpr char kVariable[] = "TORCHTAP_PRELOAD";

/// What to record in a program that knows nothing of torchtap. As JSON in the environment.
struct Config {
  std::string what = "output";
  tools::Which which;
  std::string reduce;              ///< as `reductions::Named` takes it; empty: every sample is kept
  std::vector<std::int64_t> over;  ///< the dimensions that are rows
  bool elementwise = false;        ///< a sample is a row; else, without `over`, every element is one
  std::string save;                ///< the directory, absolute
  bool overwrite = false;
  double every = 0;          ///< seconds after which the recording is saved as it is; 0: at the end only
  std::int64_t process = 0;  ///< the program itself, not those that it starts
  std::string reports;       ///< the folder in which processes tell the launcher what became of them

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(what), CEREAL_NVP(which.types), CEREAL_NVP(which.not_types), CEREAL_NVP(which.names),
            CEREAL_NVP(which.not_names), CEREAL_NVP(reduce), CEREAL_NVP(over), CEREAL_NVP(elementwise),
            CEREAL_NVP(save), CEREAL_NVP(overwrite), CEREAL_NVP(every), CEREAL_NVP(process),
            CEREAL_NVP(reports));
  }
};

}  // namespace torchtap::preload
