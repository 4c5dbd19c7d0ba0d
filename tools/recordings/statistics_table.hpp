#pragma once

#include <string>

#include "manifest.hpp"
#include "recordings.hpp"

/// Prints a recording of statistics as a table.
namespace torchtap::tools {

struct SummaryOptions {
  std::string path;    ///< the recording's name in the document
  std::string entry;   ///< a module; "" for all
  std::string result;  ///< a column; "" for all
  std::string sort;    ///< a column, largest first; "-std": smallest first; "": in the order of the recording
  Format format = Format::table;
};

/// Prints one row per module and one column per result to stdout: single numbers as they are, several as a
/// range, histograms as a line of blocks, and marks for suspicious values. JSON and CSV have all digits.
/// Throws `c10::IndexError` for an unknown entry or column.
void print_summary(const Layers& layers, const SummaryOptions& options);

/// Prints all results of one module, one per line, and draws its histograms.
void print_results(const Layer& layer);

}  // namespace torchtap::tools
