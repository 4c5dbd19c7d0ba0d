#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/rules/rules.hpp>
#include <torchtap/views/monitor/detail/drift_model.hpp>
#include <torchtap/views/monitor/drift.hpp>

namespace torchtap::views::monitor {
namespace detail {

/// Mean and deviation of the finite elements of a tensor.
struct Spread {
  double mean = 0, deviation = 0;
};

}  // namespace detail
namespace {

using detail::Counted;
using detail::Numbers;
using detail::Spread;
using detail::total;

Numbers numbers_of(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.to(at::kCPU, at::kDouble).contiguous();
  return {plain.data_ptr<double>(), plain.data_ptr<double>() + plain.numel()};
}

std::string listed(const std::vector<std::string>& names) {
  std::string list;
  for (const auto& name : names) list += (list.empty() ? "" : ", ") + name;
  return list.empty() ? "of no sample" : list;
}

Counted counted(const core::Results& results, const char* what, const char* expected) {
  const base::RecordingMode quiet;
  bool fits = true;
  for (const char* const name : {"counts", "low", "high", "zeros"})
    fits = fits && results.contains(name) && !results.at(name).is_complex();
  Counted all;
  if (fits) {
    const at::Tensor& counts = results.at("counts");
    const auto each = [&](const char* name) {
      const bool known = results.contains(name) && results.at(name).numel() == results.at("zeros").numel();
      return known ? numbers_of(results.at(name)) : Numbers();
    };
    const Numbers low = numbers_of(results.at("low")), high = numbers_of(results.at("high"));
    all.counts = numbers_of(counts);
    all.zeros = each("zeros");
    all.rows = each("rows");
    all.sum = each("sum");
    all.sum_squares = each("sum_squares");
    all.blocks = all.zeros.size();
    all.samples = each("samples");
    fits = low.size() == high.size() && (counts.dim() == 1 || counts.dim() == 2) &&
           counts.size(-1) == static_cast<std::int64_t>(low.size()) &&
           all.counts.size() == all.blocks * low.size();
    for (std::size_t i = 0; fits && i < low.size(); ++i) {
      fits = low[i] < high[i];
      all.bins.emplace_back(low[i], high[i]);
    }
    const auto sane = [](double count) { return count >= 0; };
    fits = fits && std::all_of(all.counts.begin(), all.counts.end(), sane) &&
           std::all_of(all.zeros.begin(), all.zeros.end(), sane);
  }
  TORCH_CHECK_VALUE(fits, "views::monitor::DriftTest: ", what, " has the results ", listed(results.names()),
                    ", whose sizes or names do not fit; expected those of ", expected, ".");
  return all;
}

Spread spread(double finite, double sum, double squares) {
  if (finite == 0) return {};
  const double mean = sum / finite, deviation = std::sqrt(std::max(0.0, squares / finite - mean * mean));
  return {mean, deviation > 1e-7 * std::abs(mean) ? deviation : 0};  // less is rounding
}

/// The sum of all values and the sum of their squares, as if each lay in the middle of its bin.
std::pair<double, double> sums_of_bins(const Counted& counted) {
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < counted.counts.size(); ++i) {
    const auto& [low, high] = counted.bins[i % counted.bins.size()];
    const double middle = (low + high) / 2;
    sum += counted.counts[i] * middle;
    squares += counted.counts[i] * middle * middle;
  }
  return {sum, squares};
}

}  // namespace

struct DriftTest::State {
  detail::DriftModel model;
  double size;
  Spread exact, binned;
};

DriftTest::DriftTest(const core::Results& reference, const DriftOptions& options) {
  TORCH_CHECK_VALUE(options.false_alarms > 0 && options.false_alarms <= rules::most_false_alarms,
                    "views::monitor::DriftTest: expected false_alarms above 0 and up to ",
                    rules::most_false_alarms, ", got ", options.false_alarms, ".");
  TORCH_CHECK_VALUE(options.size >= 0 && options.rows > 0 && options.least_blocks >= 2,
                    "views::monitor::DriftTest: expected a size of at least 0, a row and 2 blocks, got size ",
                    options.size, ", rows ", options.rows, " and least_blocks ", options.least_blocks, ".");
  const Counted all = counted(reference, "the reference", "reductions::Blocks");
  state_ = std::make_unique<State>(
      State{detail::DriftModel(all, options.false_alarms, static_cast<double>(options.rows),
                               static_cast<std::size_t>(options.least_blocks)),
            options.size,
            {},
            {}});
  const double finite = state_->model.finite();
  const auto [sum, squares] = sums_of_bins(all);
  state_->binned = spread(finite, sum, squares);
  state_->exact = all.sum.empty() || all.sum_squares.empty()
                      ? state_->binned
                      : spread(finite, total(all.sum), total(all.sum_squares));
}

DriftTest::~DriftTest() = default;
DriftTest::DriftTest(DriftTest&&) noexcept = default;
DriftTest& DriftTest::operator=(DriftTest&&) noexcept = default;

const std::string& DriftTest::why_not() const noexcept {
  return state_->model.why_not();
}

std::int64_t DriftTest::blocks() const noexcept {
  return static_cast<std::int64_t>(state_->model.blocks());
}

std::int64_t DriftTest::least_window() const noexcept {
  return static_cast<std::int64_t>(state_->model.least_window());
}

Drift DriftTest::compare(const core::Results& window, std::int64_t rows) const {
  return compare(std::vector<core::Results>{window}, rows);
}

Drift DriftTest::compare(const std::vector<core::Results>& windows, std::int64_t rows) const {
  std::vector<Counted> parts;
  Drift drift;
  bool exact = true;
  double sum = 0, squares = 0;
  for (const core::Results& window : windows) {
    parts.push_back(counted(window, "the window", "reductions::Blocks or LogHistogram(3) over all elements"));
    const Counted& part = parts.back();
    exact = exact && !part.sum.empty() && !part.sum_squares.empty();
    if (rows == 0) drift.rows += static_cast<std::int64_t>(total(part.rows));
  }
  if (rows != 0) drift.rows = rows;
  const detail::DriftModel::Verdict verdict = state_->model.compare(parts);
  drift.limit = verdict.limit;
  if (verdict.finite == 0) return drift;
  drift.t2 = verdict.t2;
  drift.psi = verdict.psi;
  drift.zeros = verdict.zeros;
  drift.drifted = drift.t2 > drift.limit && drift.psi >= state_->size;
  for (const Counted& part : parts) {
    const auto [first, second] =
        exact ? std::pair(total(part.sum), total(part.sum_squares)) : sums_of_bins(part);
    sum += first;
    squares += second;
  }
  const Spread& before = exact ? state_->exact : state_->binned;
  const Spread now = spread(verdict.finite, sum, squares);
  if (std::isfinite(before.deviation) && std::isfinite(now.deviation)) {
    const double by = now.mean - before.mean;
    drift.shift = std::abs(by) <= 1e-9 * std::abs(before.mean) ? 0 : by / before.deviation;
    drift.ratio = now.deviation == before.deviation ? 1 : now.deviation / before.deviation;
  }
  return drift;
}

}  // namespace torchtap::views::monitor
