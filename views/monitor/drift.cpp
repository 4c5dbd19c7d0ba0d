#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/views/monitor/detail/hotelling.hpp>
#include <torchtap/views/monitor/drift.hpp>

namespace torchtap::views::monitor {
namespace detail {

/// Of the finite elements of a tensor.
struct Spread {
  double mean = 0, deviation = 0;
};

}  // namespace detail
namespace {

using detail::Spread;

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double least_mass = 1e-4;       // of a group, in the population stability index
constexpr double least_direction = 1e-6;  // of the largest eigenvalue
constexpr double least_variance = 1e-14;  // of an element; less is rounding
constexpr std::size_t drawn_windows = 20000, drawn_for_psi = 2000, in_tail = 200, most_drawn = 1024;
constexpr std::size_t least_in_order = 30;  // windows in a row that tell how they are correlated
constexpr std::size_t no_group = static_cast<std::size_t>(-1);

using Numbers = std::vector<double>;
using BinEnds = std::pair<double, double>;  // equal for zeros, which so come before the bin from 0 on

/// Distributions as results of reductions have them.
struct Counted {
  std::size_t blocks = 0;
  std::vector<BinEnds> bins;
  Numbers counts;                  // [blocks, bins]
  Numbers zeros;                   // [blocks]
  Numbers rows, sum, sum_squares;  // [blocks]; empty if unknown
};

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

double total(const Numbers& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

Spread spread(double finite, double sum, double squares) {
  if (finite == 0) return {};
  const double mean = sum / finite, deviation = std::sqrt(std::max(0.0, squares / finite - mean * mean));
  return {mean, deviation > 1e-7 * std::abs(mean) ? deviation : 0};  // less is rounding
}

/// As if all values lay in the middles of their bins.
Spread spread_of_bins(const Counted& counted, double finite) {
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < counted.counts.size(); ++i) {
    const auto& [low, high] = counted.bins[i % counted.bins.size()];
    const double middle = (low + high) / 2;
    sum += counted.counts[i] * middle;
    squares += counted.counts[i] * middle * middle;
  }
  return spread(finite, sum, squares);
}

double psi_term(double mass, double reference) {
  const double a = std::max(mass, least_mass), b = std::max(reference, least_mass);
  return (a - b) * std::log(a / b);
}

/// The variance of a direction whose estimate from `windows` windows of `directions` is the largest
/// eigenvalue `found`, where all others are 1 (Baik, Ben Arous & Péché 2005).
double largest_variance(double found, double directions, double windows) {
  const double share = directions / windows, middle = found + 1 - share;
  const double inner = middle * middle - 4 * found;
  return inner > 0 ? (middle + std::sqrt(inner)) / 2 : 1 + std::sqrt(share);
}

/// A sum of z zᵀ, [n, n]; its largest eigenvalue is needed.
class Scatter {
 public:
  explicit Scatter(std::size_t n) : n_(n), sums_(n * n, 0.0) {}
  void add(const Numbers& z, double weight) {
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t k = 0; k < n_; ++k) sums_[i * n_ + k] += weight * z[i] * z[k];
    }
    ++windows_;
  }
  double mean() const {
    double trace = 0;
    for (std::size_t i = 0; i < n_; ++i) trace += sums_[i * n_ + i];
    return trace / static_cast<double>(n_ * windows_);
  }
  double largest() const { return detail::eigen(sums_, n_).values.back() / static_cast<double>(windows_); }
  std::size_t windows() const { return windows_; }

 private:
  std::size_t n_, windows_ = 0;
  Numbers sums_;
};

}  // namespace

struct DriftTest::State {
  /// A block or window: counts of its finite elements in each group, and how many of them are where the
  /// reference has no bin.
  struct Masses {
    Numbers groups;
    Numbers unseen;
    double finite = 0, zeros = 0;

    double all_unseen() const { return finite == 0 ? 0 : total(unseen) / finite; }
  };
  /// For windows of about this many elements.
  struct Limit {
    double elements = 0, limit = 0, psi = 0;
  };

  DriftOptions options;
  std::string why_not;
  std::size_t blocks = 0;
  std::vector<BinEnds> bins;        // ascending
  std::vector<std::size_t> groups;  // of the bins
  std::size_t number = 0, zero_group = no_group;
  Numbers reference;             // masses of the groups
  double finite = 0, zeros = 0;  // elements, and the share of zeros
  std::size_t directions = 0;
  Numbers axes;       // [directions, groups], of length 1
  Numbers variances;  // of an element, [directions]
  double still = 0;   // how much mass may move where it did not move in the reference
  Spread exact, binned;
  std::vector<Limit> limits;  // by ascending elements

  void cut(const Counted& of);
  std::size_t group_of(const BinEnds& bin, bool& seen) const;
  std::vector<Masses> masses(const Counted& of) const;
  Numbers whiten(const Masses& of) const;
  double moved_elsewhere(const Masses& of) const;
  double psi(const Masses& of) const;
  void learn(const std::vector<Masses>& each);
  void set_limits(const std::vector<Masses>& each, double rows_each);
  double raised(const std::vector<Masses>& each, std::size_t joined, std::size_t in_order,
                const std::vector<Scatter>& drawn) const;
};

/// Cuts the bins of the reference into groups of about a tenth of the mass.
void DriftTest::State::cut(const Counted& of) {
  std::map<BinEnds, double> counts;
  for (std::size_t i = 0; i < of.counts.size(); ++i) {
    if (of.counts[i] > 0) counts[of.bins[i % of.bins.size()]] += of.counts[i];
  }
  const double zero_count = total(of.zeros);
  if (zero_count > 0) counts[{0, 0}] = zero_count;
  for (const auto& [bin, count] : counts) finite += count;
  Numbers shares;  // of the groups
  bool open = false;
  for (const auto& [bin, count] : counts) {
    const bool zero = bin.first == bin.second && count > 0.02 * finite;
    if (zero || !open) shares.push_back(0);
    if (zero) zero_group = shares.size() - 1;
    bins.push_back(bin);
    groups.push_back(shares.size() - 1);
    shares.back() += count / finite;
    open = !zero && shares.back() < 0.1;
  }
  // A bin that is too rare for a separate group joins a neighbour; preferably not the group of zeros.
  for (std::size_t i = 0; i < shares.size();) {
    if (shares[i] >= 0.02 || shares.size() == 1) {
      ++i;
      continue;
    }
    const bool before = i > 0 && (i + 1 == shares.size() || i - 1 != zero_group);
    const std::size_t joined = before ? i - 1 : i;  // becomes the group of both
    shares[joined] += shares[joined + 1];
    shares.erase(shares.begin() + static_cast<std::ptrdiff_t>(joined) + 1);
    for (auto& group : groups) group -= group > joined ? 1 : 0;
    if (zero_group != no_group && zero_group > joined) --zero_group;
    i = joined;
  }
  number = shares.size();
  if (finite > 0) zeros = zero_count / finite;
}

/// The group of a bin; of one that the reference has not, `seen` is false, and it is the group beside it.
std::size_t DriftTest::State::group_of(const BinEnds& bin, bool& seen) const {
  const auto at = static_cast<std::size_t>(std::lower_bound(bins.begin(), bins.end(), bin) - bins.begin());
  seen = at < bins.size() && bins[at] == bin;
  const bool before = !seen && at > 0 && (at == bins.size() || groups[at - 1] != zero_group);
  return groups[before ? at - 1 : at];
}

std::vector<DriftTest::State::Masses> DriftTest::State::masses(const Counted& of) const {
  std::vector<Masses> all(of.blocks);
  std::vector<std::pair<std::size_t, bool>> columns;
  const auto column = [&](const BinEnds& bin) {
    bool seen = false;
    const std::size_t group = group_of(bin, seen);
    return std::pair(group, seen);
  };
  for (const auto& bin : of.bins) columns.push_back(column(bin));
  const auto zero = column({0, 0});
  for (std::size_t block = 0; block < of.blocks; ++block) {
    Masses& one = all[block];
    one.groups.assign(number, 0);
    one.unseen.assign(number, 0);
    const auto add = [&](const std::pair<std::size_t, bool>& where, double count) {
      one.groups[where.first] += count;
      if (!where.second) one.unseen[where.first] += count;
      one.finite += count;
    };
    for (std::size_t i = 0; i < columns.size(); ++i) add(columns[i], of.counts[block * columns.size() + i]);
    one.zeros = of.zeros[block];
    add(zero, one.zeros);
  }
  return all;
}

/// In coordinates in which an element of the reference has the variance 1 in each direction.
Numbers DriftTest::State::whiten(const Masses& of) const {
  Numbers z(directions, 0.0);
  for (std::size_t k = 0; k < directions; ++k) {
    for (std::size_t i = 0; i < number; ++i)
      z[k] += axes[k * number + i] * (of.groups[i] / of.finite - reference[i]);
    z[k] /= std::sqrt(variances[k]);
  }
  return z;
}

/// The mass that moved in directions in which the reference does not vary.
double DriftTest::State::moved_elsewhere(const Masses& of) const {
  Numbers left(number);
  for (std::size_t i = 0; i < number; ++i) left[i] = of.groups[i] / of.finite - reference[i];
  for (std::size_t k = 0; k < directions; ++k) {
    double along = 0;
    for (std::size_t i = 0; i < number; ++i) along += axes[k * number + i] * left[i];
    for (std::size_t i = 0; i < number; ++i) left[i] -= along * axes[k * number + i];
  }
  double moved = 0;
  for (const double mass : left) moved += std::abs(mass) / 2;
  return moved;
}

double DriftTest::State::psi(const Masses& of) const {
  double sum = psi_term(of.all_unseen(), 0);
  for (std::size_t i = 0; i < number; ++i)
    sum += psi_term((of.groups[i] - of.unseen[i]) / of.finite, reference[i]);
  return sum;
}

/// Masses, and how they vary between blocks.
void DriftTest::State::learn(const std::vector<Masses>& each) {
  reference.assign(number, 0.0);
  for (const auto& block : each) {
    for (std::size_t i = 0; i < number; ++i) reference[i] += block.groups[i] / finite;
  }
  Numbers covariance(number * number, 0.0);
  for (const auto& block : each) {
    for (std::size_t i = 0; i < number; ++i) {
      const double a = block.groups[i] / block.finite - reference[i];
      for (std::size_t k = 0; k < number; ++k)
        covariance[i * number + k] += block.finite * a * (block.groups[k] / block.finite - reference[k]) /
                                      static_cast<double>(blocks - 1);
    }
  }
  const detail::Eigen found = detail::eigen(covariance, number);
  for (std::size_t k = 0; k < number; ++k) {
    if (found.values[k] <= std::max(least_direction * found.values.back(), least_variance)) continue;
    const auto axis = found.vectors.begin() + static_cast<std::ptrdiff_t>(k * number);
    axes.insert(axes.end(), axis, axis + static_cast<std::ptrdiff_t>(number));
    variances.push_back(found.values[k]);
    ++directions;
  }
  // An event that occurred in no block may still have a rate of up to log(1 / false_alarms) / blocks.
  still = std::min(0.5, -std::log(options.false_alarms) / static_cast<double>(blocks));
  for (const auto& block : each) still = std::max(still, 10 * moved_elsewhere(block));
}

/// How much more windows of `joined` blocks in a row vary than drawn ones.
double DriftTest::State::raised(const std::vector<Masses>& each, std::size_t joined, std::size_t in_order,
                                const std::vector<Scatter>& drawn) const {
  Scatter windows(directions);
  for (std::size_t window = 0; window < in_order; ++window) {
    Masses all;
    all.groups.assign(number, 0.0);
    for (std::size_t i = window * joined; i < (window + 1) * joined; ++i) {
      for (std::size_t k = 0; k < number; ++k) all.groups[k] += each[i].groups[k];
      all.finite += each[i].finite;
    }
    windows.add(whiten(all), all.finite);
  }
  Numbers usual;
  for (const auto& scatter : drawn) usual.push_back(scatter.largest());
  std::sort(usual.begin(), usual.end());
  const double found = windows.largest();
  const bool beyond = !usual.empty() && found > usual[usual.size() * 95 / 100];
  return std::max(
      windows.mean(),
      beyond ? largest_variance(found, static_cast<double>(directions), static_cast<double>(in_order)) : 1.0);
}

/// Fits limits to windows drawn from the blocks: of 1, 2, 4 … blocks, up to as many as a window has.
void DriftTest::State::set_limits(const std::vector<Masses>& each, double rows_each) {
  const double per_window = rows_each > 0 ? static_cast<double>(options.rows) / rows_each : 1;
  const auto most = static_cast<std::size_t>(std::clamp(per_window, 1.0, static_cast<double>(most_drawn)));
  std::vector<std::size_t> lengths;
  for (std::size_t length = 1; length < most; length *= 2) lengths.push_back(length);
  lengths.push_back(most);
  const double mean_block = finite / static_cast<double>(blocks);
  const double d = static_cast<double>(directions), b = static_cast<double>(blocks);

  // z is linear in the masses: a window's z is the sum over its blocks.
  Numbers whitened;
  for (const auto& block : each) {
    for (const double z : whiten(block)) whitened.push_back(z * block.finite);
  }
  std::vector<Numbers> t2(lengths.size());
  std::vector<std::vector<Scatter>> scatters(lengths.size());
  Numbers psis(lengths.size(), 0.0);
  std::mt19937_64 random(20260101);  // the same windows each time, so that limits are reproducible
  for (std::size_t window = 0; window < drawn_windows; ++window) {
    Numbers z(directions, 0.0), mean(directions);
    Masses all;
    all.groups.assign(number, 0.0);
    all.unseen.assign(number, 0.0);
    std::size_t drawn = 0;
    for (std::size_t which = 0; which < lengths.size(); ++which) {
      for (; drawn < lengths[which]; ++drawn) {
        const std::size_t block = random() % blocks;
        for (std::size_t k = 0; k < directions; ++k) z[k] += whitened[block * directions + k];
        all.finite += each[block].finite;
        if (window >= drawn_for_psi) continue;
        for (std::size_t k = 0; k < number; ++k) all.groups[k] += each[block].groups[k];
      }
      double square = 0;
      for (std::size_t k = 0; k < directions; ++k) {
        mean[k] = z[k] / all.finite;
        square += mean[k] * mean[k];
      }
      t2[which].push_back(square * all.finite);
      if (window < drawn_for_psi) psis[which] += psi(all) / static_cast<double>(drawn_for_psi);
      const std::size_t in_order = blocks / lengths[which];
      if (directions == 0 || in_order < least_in_order) continue;
      auto& of_length = scatters[which];
      if (of_length.empty() || (of_length.back().windows() == in_order && of_length.size() < 100))
        of_length.emplace_back(directions);
      if (of_length.back().windows() < in_order) of_length.back().add(mean, all.finite);
    }
  }

  const double alpha = options.false_alarms, chi = directions == 0 ? 0 : detail::chi_squared_limit(alpha, d);
  // The factor by which the limit of T² is larger because the covariance is an estimate.
  const double estimated =
      directions == 0 ? 1 : d * (b - 1) / (b - d) * detail::f_limit(alpha, d, b - d) / chi;
  double ratio = 1, before = 1;
  for (std::size_t which = 0; which < lengths.size(); ++which) {
    Limit limit{static_cast<double>(lengths[which]) * mean_block, 0, psis[which]};
    if (directions > 0) {
      auto& drawn = t2[which];
      std::nth_element(drawn.begin(), drawn.begin() + in_tail, drawn.end(), std::greater<>());
      const double begin = drawn[in_tail];
      const double excess =
          total(Numbers(drawn.begin(), drawn.begin() + in_tail)) / static_cast<double>(in_tail) - begin;
      const double rarer = static_cast<double>(in_tail) / static_cast<double>(drawn_windows) / alpha;
      const double margin = 1 + 3 / std::sqrt(static_cast<double>(in_tail));
      const std::size_t in_order = blocks / lengths[which];
      // Where there are too few windows in a row, the ratio is taken to grow on with each doubling.
      const double grown = in_order >= least_in_order
                               ? raised(each, lengths[which], in_order, scatters[which])
                               : ratio + (ratio - before);
      before = std::exchange(ratio, std::max(ratio, grown));
      limit.limit = std::max(chi, begin + excess * margin * std::log(rarer)) * estimated * ratio;
    }
    limits.push_back(limit);
  }
}

DriftTest::DriftTest(const core::Results& reference, const DriftOptions& options)
    : state_(std::make_unique<State>()) {
  TORCH_CHECK_VALUE(options.false_alarms > 0 && options.false_alarms <= 0.01,
                    "views::monitor::DriftTest: expected false_alarms above 0 and up to 0.01, got ",
                    options.false_alarms, ".");
  TORCH_CHECK_VALUE(options.size >= 0 && options.rows > 0 && options.least_blocks >= 2,
                    "views::monitor::DriftTest: expected a size of at least 0, a row and 2 blocks, got size ",
                    options.size, ", rows ", options.rows, " and least_blocks ", options.least_blocks, ".");
  State& state = *state_;
  state.options = options;
  const Counted all = counted(reference, "the reference", "reductions::Blocks");
  state.cut(all);
  if (state.finite > 0) {
    auto each = state.masses(all);
    each.erase(std::remove_if(each.begin(), each.end(), [](const auto& block) { return block.finite == 0; }),
               each.end());
    state.blocks = each.size();
    state.binned = spread_of_bins(all, state.finite);
    state.exact = all.sum.empty() || all.sum_squares.empty()
                      ? state.binned
                      : spread(state.finite, total(all.sum), total(all.sum_squares));
    if (state.blocks >= 2) {
      state.learn(each);
      if (static_cast<std::int64_t>(state.blocks) >= options.least_blocks)
        state.set_limits(each, total(all.rows) / static_cast<double>(all.blocks));
    }
  }
  if (state.blocks == 0) {
    state.why_not = "no finite values";
  } else if (state.limits.empty()) {
    state.why_not = c10::str(state.blocks, state.blocks == 1 ? " block; " : " blocks; ", options.least_blocks,
                             " are needed");
  }
}

DriftTest::~DriftTest() = default;
DriftTest::DriftTest(DriftTest&&) noexcept = default;
DriftTest& DriftTest::operator=(DriftTest&&) noexcept = default;

const std::string& DriftTest::why_not() const noexcept {
  return state_->why_not;
}

std::int64_t DriftTest::blocks() const noexcept {
  return static_cast<std::int64_t>(state_->blocks);
}

Drift DriftTest::compare(const core::Results& window, std::int64_t rows) const {
  const State& state = *state_;
  Counted all = counted(window, "the window", "reductions::Blocks or LogHistogram(3) over all elements");
  Drift drift;
  drift.rows = rows != 0 ? rows : static_cast<std::int64_t>(total(all.rows));
  drift.limit = infinite;
  if (state.blocks < 2) return drift;
  State::Masses masses;
  masses.groups.assign(state.number, 0.0);
  masses.unseen.assign(state.number, 0.0);
  for (const auto& block : state.masses(all)) {
    for (std::size_t i = 0; i < state.number; ++i) {
      masses.groups[i] += block.groups[i];
      masses.unseen[i] += block.unseen[i];
    }
    masses.finite += block.finite;
    masses.zeros += block.zeros;
  }
  if (masses.finite == 0) return drift;

  for (const double z : state.whiten(masses)) drift.t2 += z * z;
  drift.t2 /= 1 / masses.finite + 1 / state.finite;
  drift.psi = state.psi(masses);
  drift.zeros = masses.zeros / masses.finite - state.zeros;
  const bool exact = !all.sum.empty() && !all.sum_squares.empty();
  const Spread& before = exact ? state.exact : state.binned;
  const Spread now = exact ? spread(masses.finite, total(all.sum), total(all.sum_squares))
                           : spread_of_bins(all, masses.finite);
  if (std::isfinite(before.deviation) && std::isfinite(now.deviation)) {
    const double by = now.mean - before.mean;
    drift.shift = std::abs(by) <= 1e-9 * std::abs(before.mean) ? 0 : by / before.deviation;
    drift.ratio = now.deviation == before.deviation ? 1 : now.deviation / before.deviation;
  }
  if (state.limits.empty()) return drift;

  if (masses.all_unseen() > state.still || state.moved_elsewhere(masses) > state.still) drift.t2 = infinite;
  // Blocks differ in size, so that a window of 8 may have a little less than 8 times the mean.
  auto limit = std::upper_bound(state.limits.begin(), state.limits.end(), masses.finite * 1.05,
                                [](double n, const State::Limit& one) { return n < one.elements; });
  if (limit != state.limits.begin()) --limit;
  // Skew, and with it the tail, grows as a window gets shorter than any that could be drawn.
  const double shorter = std::max(1.0, limit->elements / (1.05 * masses.finite));
  drift.limit = limit->limit * std::pow(shorter, 0.25);
  drift.psi -= limit->psi * limit->elements / masses.finite;
  drift.drifted = drift.t2 > drift.limit && drift.psi >= state.options.size;
  return drift;
}

}  // namespace torchtap::views::monitor
