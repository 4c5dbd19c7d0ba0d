#pragma once

#include <CLI/App.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <torchtap/views/stream/stream.hpp>

/// The source of a subcommand, and its options.
namespace torchtap::tools::stream {

struct Asked {
  std::string name;
  std::string directory;
  std::vector<std::string> names;
  std::vector<std::string> what;
  std::int64_t every = 1;
  double hz = 0;
  double wait = 0;  ///< seconds for the publisher to appear
};

/// Adds the name of the stream, `--names`, `--what`, `--every`, `--hz`, `--wait-for` and `--directory`.
void add_subscription(CLI::App& command, Asked& asked);
/// Connects. `label` names this reader in `torchtap streams`.
views::stream::Reader open(const Asked& asked, const std::string& label, views::stream::WhenFull when_full);

/// Throws `c10::Error` if the stream broke off before its program ended it; `saved` says what is left of it.
void check_end(const views::stream::Reader& reader, const std::string& saved = "");

/// "layer1.0", "layer1.0#1" for slot 1, "layer1.0:mean" for a result.
std::string title_of(const views::stream::Frame& frame);
/// A title for people: the model itself is "(root)".
std::string shown_title_of(const views::stream::Frame& frame);
/// "output", "grad-input": the word of `--what` for the kind of a frame.
std::string word_of(const views::stream::Frame& frame);
/// "8x3 float32", "[3] float32", "scalar int64".
std::string form_of(const views::stream::Frame& frame);

/// Statistics of a tensor: of floats and integers; complex numbers by their absolute values.
struct Statistics {
  std::int64_t count = 0;  ///< elements
  std::int64_t nan = 0, infinite = 0;
  double mean = 0, deviation = 0, least = 0, most = 0;  ///< of the finite ones; NaN if there is none
  std::vector<double> bins;                             ///< a histogram of the finite ones
};
Statistics statistics_of(const views::stream::Frame& frame, std::size_t bins = 0);

}  // namespace torchtap::tools::stream
