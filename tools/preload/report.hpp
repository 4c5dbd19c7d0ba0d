#pragma once

#include <cereal/cereal.hpp>
#include <cereal/types/set.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace torchtap::preload {

/// What one process tells the launcher, which alone speaks: the program's own stderr may be closed, or read
/// by somebody. Written when the process records for the first time, with each saved recording, and at its
/// end.
struct Report {
  std::int64_t process = 0;
  std::string program;                         ///< the name of what runs in it
  bool attached = false;                       ///< it records
  bool ended = false;                          ///< it has said all that it had to say
  std::string directory;                       ///< where its recording is; empty while there is none
  std::int64_t saved_at = 0;                   ///< seconds since the epoch
  std::int64_t samples = 0;                    ///< in the recording
  std::int64_t modules = 0;                    ///< that have samples
  bool uses_torch = false;                     ///< the program needs LibTorch as a shared library
  bool uses_script = false;                    ///< TorchScript ran
  std::set<std::string> ran_types, ran_paths;  ///< of modules whose calls were seen
  std::set<std::string> on_stack;              ///< types of those that nothing shared holds
  std::set<std::string> compiled_in;           ///< types in the program's models whose calls cannot be seen
  std::vector<std::string> notes;              ///< what is missing in the recording, a sentence each

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(process), CEREAL_NVP(program), CEREAL_NVP(attached), CEREAL_NVP(ended),
            CEREAL_NVP(directory), CEREAL_NVP(saved_at), CEREAL_NVP(samples), CEREAL_NVP(modules),
            CEREAL_NVP(uses_torch), CEREAL_NVP(uses_script), CEREAL_NVP(ran_types), CEREAL_NVP(ran_paths),
            CEREAL_NVP(on_stack), CEREAL_NVP(compiled_in), CEREAL_NVP(notes));
  }
};

/// Puts the report into `folder` in one step, in place of an earlier one of the same process. False if that
/// cannot be done.
bool write(const Report& report, const std::string& folder) noexcept;
/// The report of one process; `process` is 0 in it if there is none that can be read.
Report read_report(const std::string& folder, std::int64_t process) noexcept;
/// All that can be read, in order of process.
std::vector<Report> read_reports(const std::string& folder);

}  // namespace torchtap::preload
