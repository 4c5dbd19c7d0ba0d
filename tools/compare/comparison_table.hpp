#pragma once

// Prints the comparison of two recordings, files or traces, line by line.

#include <string>
#include <vector>

#include "comparison.hpp"
#include "recordings/manifest.hpp"
#include "terminal/table.hpp"

namespace torchtap::tools {

/// One line of a comparison: the values of one module, one file or one operation on both sides.
struct Compared {
  std::string name;     ///< the path of a module, "" for the root; the label of an operation
  std::string context;  ///< its type, or the module that it ran in
  std::string place;    ///< both, as a sentence names them
  Json head;            ///< both, as the first keys of a JSON object
  Comparison comparison;
};

/// The rows of a comparison, and how they are printed.
struct CompareOptions {
  std::string a, b;
  Tolerance tolerance;
  Format format = Format::table;
};

/// Prints the lines, and a sentence that names the `first` difference, or says that all agree, if all were
/// compared. A line is one "module" or "tensor", which is `thing`; `columns` are for name and context, and
/// `agree` begins the sentence in place of "All 3 modules agree". Returns the exit status.
int print_compared(const std::vector<Compared>& rows, const Compared* first, const CompareOptions& options,
                   const std::vector<Table::Column>& columns, const std::string& thing,
                   const std::string& agree = "");

}  // namespace torchtap::tools
