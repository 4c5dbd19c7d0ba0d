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
/// parsed. Written when torchtap is loaded (by the waiter,
/// which writes the same fields, until there is an agent), when the process first records, with each save,
/// and at its end.
struct Report {
  std::int64_t process = 0;
  std::string program;                         ///< the name of its executable
  bool attached = false;                       ///< it records
  bool ended = false;                          ///< this is its last report
  std::string directory;                       ///< of its recording; empty if there is none
  std::string stream;                          ///< the name under which it published; empty if it did not
  std::int64_t saved_at = 0;                   ///< seconds since the epoch
  std::int64_t samples = 0;                    ///< in the recording
  std::int64_t modules = 0;                    ///< that have samples
  std::int64_t alarms = 0;                     ///< that its monitors raised, as far as it has ended
  bool lost = false;                           ///< a result could not be saved; a note says why
  std::string other_torch;                     ///< the file of a LibTorch that is not torchtap's; or empty
  std::string obstacle;                        ///< why the agent could not be loaded; or empty
  bool uses_torch = false;                     ///< the program links LibTorch as a shared library
  bool uses_python = false;                    ///< a Python interpreter is loaded
  std::set<std::string> ran_types, ran_paths;  ///< of modules whose calls were seen
  std::set<std::string> on_stack;              ///< types of modules that no shared pointer owns
  std::set<std::string> compiled_in;           ///< types in the program's models whose calls cannot be seen
  std::vector<std::string> notes;              ///< reasons for gaps in the recording, a sentence each
  bool became_another = false;                 ///< kBecameAnother; not a part of the file

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(process), CEREAL_NVP(program), CEREAL_NVP(attached), CEREAL_NVP(ended),
            CEREAL_NVP(directory), CEREAL_NVP(stream), CEREAL_NVP(saved_at), CEREAL_NVP(samples),
            CEREAL_NVP(modules), CEREAL_NVP(alarms), CEREAL_NVP(lost), CEREAL_NVP(other_torch),
            CEREAL_NVP(obstacle), CEREAL_NVP(uses_torch), CEREAL_NVP(uses_python), CEREAL_NVP(ran_types),
            CEREAL_NVP(ran_paths), CEREAL_NVP(on_stack), CEREAL_NVP(compiled_in), CEREAL_NVP(notes));
  }
};

/// The ending of the name of a file beside the report: the process recorded, and became another program,
/// without LibTorch, by exec.
inline constexpr char kBecameAnother[] = ".exec";  // as the waiter writes it

/// Writes the report into `folder` atomically, replacing an earlier one of the same process. Returns false on
/// failure.
bool write(const Report& report, const std::string& folder) noexcept;
/// Completes the report and leaves it to the launcher. `ended`: it is the last one, whose notes are printed
/// here if the launcher is gone.
void tell(Report& report, const std::string& folder, bool ended);
/// The report of one process; its `process` is 0 if there is no readable report.
Report read_report(const std::string& folder, std::int64_t process) noexcept;
/// The place where this process saves: `save`; "save-PID" for another process than the program, or for the
/// program that it became by exec, which the report notes.
std::string own_place(Report& report, const Config& config);
/// Throws `c10::ValueError` if something is at `place` that may not be replaced. The launcher has asked
/// before the program began, of the first place.
void check_still_free(const std::string& place, bool overwrite);
/// All readable reports, ordered by process.
std::vector<Report> read_reports(const std::string& folder);

}  // namespace torchtap::tools::preload
