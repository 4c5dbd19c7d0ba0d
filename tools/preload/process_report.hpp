#pragma once

// The report that each process leaves to the launcher.

#include <cereal/cereal.hpp>
#include <cereal/types/set.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "config.hpp"

namespace torchtap::tools::preload {

/// A process's report to the launcher. Only the launcher prints, as the program's own stderr may be closed or
/// parsed. Published when the agent is there, when the process first records, when there is more to say, and
/// at its end.
struct Report {
  std::int64_t process = 0;
  std::string program;                         ///< the name of its executable
  bool attached = false;                       ///< it records
  bool ended = false;                          ///< by `exit`
  std::string directory;                       ///< of its result; empty if there is none
  std::string stream;                          ///< the name under which it published; empty if it did not
  std::int64_t samples = 0;                    ///< in the recording
  std::int64_t modules = 0;                    ///< that have samples
  bool lost = false;                           ///< a result could not be saved; a note says why
  std::string other_torch;                     ///< the file of a LibTorch that is not torchtap's; or empty
  std::string obstacle;                        ///< why the agent could not be loaded; or empty
  bool uses_torch = false;                     ///< the program links LibTorch as a shared library
  bool uses_python = false;                    ///< a Python interpreter is loaded
  std::set<std::string> ran_types, ran_paths;  ///< of modules whose calls were seen
  std::set<std::string> on_stack;              ///< types of modules that no shared pointer owns
  std::set<std::string> compiled_in;           ///< types in the program's models whose calls cannot be seen
  std::vector<std::string> notes;              ///< reasons for gaps in the recording, a sentence each

  // Known to the launcher alone.
  std::uint32_t number = 0;            ///< among the processes of the program
  bool gone = false;                   ///< the process does not run any more
  bool became_another = false;         ///< it ran another program, by exec
  bool is_program = false;             ///< the launcher started it
  std::int64_t missing = 0;            ///< the last calls, which are not in the result
  std::int64_t alarms = 0;             ///< that were raised
  std::vector<std::string> incidents;  ///< that were made of what it left

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(process), CEREAL_NVP(program), CEREAL_NVP(attached), CEREAL_NVP(ended),
            CEREAL_NVP(directory), CEREAL_NVP(stream), CEREAL_NVP(samples), CEREAL_NVP(modules),
            CEREAL_NVP(lost), CEREAL_NVP(other_torch), CEREAL_NVP(obstacle), CEREAL_NVP(uses_torch),
            CEREAL_NVP(uses_python), CEREAL_NVP(ran_types), CEREAL_NVP(ran_paths), CEREAL_NVP(on_stack),
            CEREAL_NVP(compiled_in), CEREAL_NVP(notes));
  }
};

/// In the program: completes the report and publishes it. `ended`: it is the last one.
void tell(Report& report, bool ended);
/// In the program: the report of this process.
Report own_report();
/// The place of a process's files: `save`, or for another process than the first that recorded
/// "save-processNUMBER".
std::string place_of(const std::string& save, std::uint32_t number, bool first);
/// That place, with a number behind it while something is there that nobody asked about: of other processes
/// than the first, before an earlier run's results would keep these from being saved.
template <class IsTaken>
std::string free_place(const std::string& place, const IsTaken& is_taken) {
  std::string free = place;
  for (int i = 2; is_taken(free); ++i) free = place + "-" + std::to_string(i);
  return free;
}
/// Throws `c10::ValueError` if something is at `place` that may not be replaced. The launcher has asked
/// before the program began, of the first place.
void check_still_free(const std::string& place, bool overwrite);

}  // namespace torchtap::tools::preload
