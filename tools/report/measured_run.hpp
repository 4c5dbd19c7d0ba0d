#pragma once

#include <cstdint>
#include <string>

#include <torchtap/views/report/measurements.hpp>

#include "models/inputs.hpp"

/// Runs a TorchScript file for `torchtap report`.
namespace torchtap::tools {

struct MeasureOptions {
  std::string model;
  InputOptions inputs;
  std::string method = "forward";
  std::string device = "cpu";
  std::int64_t repeat = 10;
  std::int64_t warmup = 3;
  bool backward = false;
  bool train = false;
  bool no_memory = false;
  bool no_work = false;
  std::string non_finite = "note";
};

/// The result of a run.
struct Measured {
  views::report::Measurements results;
  /// Why the run ended early, for stderr; empty if it did not.
  std::string error;
  /// The signal that ended it early; 0 if there was none.
  int signal = 0;
};

/// Runs the model `warmup` and `repeat` times on the same inputs. Measurements before an exception of the
/// model, or a signal, are in the results. Throws errors of the file and of the inputs.
Measured measure(const MeasureOptions& options);

}  // namespace torchtap::tools
