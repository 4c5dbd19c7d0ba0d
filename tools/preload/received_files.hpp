#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <torchtap/base/disk.hpp>

#include "config.hpp"
#include "program_area.hpp"

namespace torchtap::tools::preload {

/// Writes the files that processes hand over while they run: fingerprints, and runs of explorers.
class ReceivedFiles {
 public:
  ReceivedFiles(ProgramArea& area, const Config& config) : area_(area), config_(config) {}

  /// Whether processes hand files over in this mode.
  static bool has(const Config& config) { return config.mode == "fingerprint" || config.mode == "explore"; }
  /// Writes what has come from a process. `gone`: nothing more comes. `place` names the process's place, and
  /// is called when its first file comes.
  void receive(std::uint32_t number, bool gone, const std::function<std::string()>& place);
  /// The place of a process; empty before its first file.
  const std::string& place(std::uint32_t number) { return processes_[number].place; }
  /// Why not all of its files could be written; empty if all were.
  const std::string& failure(std::uint32_t number) { return processes_[number].failure; }

 private:
  struct File {
    std::string path;
    base::Descriptor open;
    std::string waits;  // for the reader of a pipe
    std::uint64_t size = 0;
  };
  struct Process {
    std::string place, failure;
    std::vector<File> files;
  };
  bool open(File& file) const;
  void write(File& file, bool gone);

  ProgramArea& area_;
  const Config& config_;
  std::map<std::uint32_t, Process> processes_;
};

}  // namespace torchtap::tools::preload
