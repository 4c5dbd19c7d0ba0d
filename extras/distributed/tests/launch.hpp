#pragma once

/// Starts the ranks of a test as processes of their own, and collects what they print.

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace torchtap_test {

/// What became of one rank.
struct RankResult {
  int status = -1;                 ///< exit status; 128 + signal if one ended it
  std::vector<std::string> lines;  ///< that it printed
  double seconds = 0;              ///< until it ended

  /// The rest of the line that begins with `key` and a space. Fails the test if there is none.
  std::string at(const std::string& key) const;
  bool has(const std::string& key) const;
};

/// How to start ranks.
struct Launch {
  int size = 2;
  std::string scenario;
  /// "environment", "group" (Gloo alone), "both" (Gloo and a FileStore), "store" (a FileStore alone),
  /// "served" (a TCPStore of rank 0 alone), "nccl" (NCCL alone)
  std::string link = "environment";
  std::map<std::string, std::string> variables;
  /// Commands in place of the program, by rank.
  std::map<int, std::vector<std::string>> others;
  std::chrono::seconds limit{240};
};

/// Runs all ranks to their end. Ranks that are left at the limit, or only stopped, are killed.
std::vector<RankResult> run_ranks(const Launch& launch);

/// The same for several sets of ranks at once, two at a time: most of them wait for what does not come.
std::vector<std::vector<RankResult>> run_together(const std::vector<Launch>& launches);

/// A port that nobody listens at now.
int free_port();

/// Whether this build has the headers of Gloo.
bool with_gloo();

}  // namespace torchtap_test
