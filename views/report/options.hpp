#pragma once

/// Options of a report.

#include <torch/arg.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/operations/event.hpp>
#include <torchtap/rules/rules.hpp>

namespace torchtap::views::report {

/// The reaction to values that are not finite.
enum class OnNonFinite {
  /// Nothing; no tensor is looked through.
  ignore,
  /// Note them in `Measurements::findings`.
  note,
  /// Throw `c10::Error` where the first appears, also out of `backward`.
  raise,
};

/// The number of multiply-accumulates of one call of an operation, from its arguments and results as the
/// schema lists them. Several threads may call it at once.
using Formula =
    std::function<std::int64_t(const operations::Values& arguments, const operations::Values& results)>;

/// Nanoseconds that seeing a call of a module costs and that no pair of time stamps encloses.
struct CallCost {
  std::int64_t inside = 0;  ///< in the module that is called
  std::int64_t around = 0;  ///< in its caller
};

/// Chained like LibTorch's own options: `ReportOptions().memory(false).warmup(3)`.
class TORCHTAP_API ReportOptions {
 public:
  /// Nanoseconds since any moment.
  using Clock = std::function<std::int64_t()>;

  /// Counts the work of the operation of this name ("mylib::scale"), also in place of a formula of
  /// torchtap's. Throws `c10::ValueError` if the name has no namespace or the function is empty.
  ReportOptions& formula(const std::string& operation, Formula macs);
  const std::map<std::string, Formula>& formulas() const& noexcept { return formulas_; }
  /// For a temporary: returns by value.
  std::map<std::string, Formula> formulas() && { return std::move(formulas_); }

  /// Whether to watch LibTorch's allocations. Only one report of a process can do that at a time.
  TORCH_ARG(bool, memory) = true;
  /// Whether to count multiply-accumulates and bytes by operation.
  TORCH_ARG(bool, work) = true;
  /// Whether to look through the output of every operation. `Measurements` know the share of zeros, and rules
  /// judge values, only if the outputs are looked through.
  TORCH_ARG(OnNonFinite, non_finite) = OnNonFinite::note;
  /// Whether to wait for a module's device before the clock is read. CUDA runs asynchronously: without
  /// synchronising, the times are of the calls that start the work.
  TORCH_ARG(bool, synchronize) = false;
  /// The first repeats whose times do not count.
  TORCH_ARG(std::int64_t, warmup) = 0;
  /// Taken out of the times of each call; by default what is measured of a C++ or TorchScript module. For
  /// modules whose hooks are called in another way, as Python calls them.
  TORCH_ARG(std::optional<CallCost>, call_cost);
  /// Thresholds for `ModuleRow::marks`; by default the catalogue's.
  TORCH_ARG(rules::Rules, rules);
  /// Read in place of the machine's monotonic clock. Nothing is calibrated with a clock of your own.
  TORCH_ARG(Clock, clock);

 private:
  std::map<std::string, Formula> formulas_;
};

}  // namespace torchtap::views::report
