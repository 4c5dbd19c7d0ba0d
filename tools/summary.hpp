#pragma once

#include <string>

#include "manifest.hpp"
#include "recordings.hpp"

/// The table of a recording of statistics.
namespace torchtap::tools {

struct SummaryOptions {
  std::string path;    ///< what the recording is called in the document
  std::string entry;   ///< a module; "" for all
  std::string result;  ///< a column; "" for all
  std::string sort;    ///< a column, largest first; "-std" smallest first; "" in the order of the recording
  Format format = Format::table;
};

/// One row a module, one column a result, to stdout: numbers as they are, several by their range, histograms
/// as a line of blocks, and what looks wrong with a mark. As JSON or CSV with all digits. Throws
/// `c10::IndexError` for an entry or a column that does not exist.
void print_summary(const Layers& layers, const SummaryOptions& options);

/// All results of one module, one a line, and a drawing of its histograms.
void print_results(const Layer& layer);

/// "Conv2d" of "__torch__.torch.nn.modules.conv.Conv2d" and of "torch::nn::Conv2dImpl".
std::string short_type(const std::string& type);

}  // namespace torchtap::tools
