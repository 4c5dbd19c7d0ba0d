// Groups of bins, their covariance, the worth of correlated blocks, and limits.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include <torchtap/views/monitor/detail/drift_model.hpp>
#include <torchtap/views/monitor/detail/hotelling.hpp>

namespace torchtap::views::monitor::detail {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double least_share = 0.02;      // of a group, in all elements
constexpr double least_mass = 1e-4;       // of a group, in the population stability index
constexpr double least_direction = 1e-6;  // of the largest eigenvalue
constexpr double least_variance = 1e-14;  // of an element; less is rounding
constexpr double least_elsewhere = 1e-9;  // of a block's mass; less is rounding
constexpr std::size_t drawn_windows = 20000, drawn_for_psi = 2000, in_tail = 200, most_drawn = 1024;
constexpr std::size_t shuffles = 100;      // all of which independent blocks exceed in 1 %
constexpr std::size_t least_in_order = 8;  // the fewest windows in a row that show a correlation
constexpr double most_rate = 0.01;         // at which a limit is known: of `in_tail` in `drawn_windows`
constexpr double least_effective = 0.4;    // of the blocks that are needed
constexpr std::size_t no_group = static_cast<std::size_t>(-1);

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

double log_choose(double n, double k) {
  return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1);
}

}  // namespace

double total(const Numbers& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

void DriftModel::Masses::add(const Masses& other, double weight) {
  groups.resize(other.groups.size());
  unseen.resize(other.unseen.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    groups[i] += weight * other.groups[i];
    unseen[i] += weight * other.unseen[i];
  }
  finite += weight * other.finite;
  zeros += weight * other.zeros;
}

DriftModel::DriftModel(const Counted& reference, double false_alarms, double rows_of_window,
                       std::size_t least_blocks)
    : false_alarms_(false_alarms),
      zero_group_(no_group),
      why_not_(prepare(reference, rows_of_window, least_blocks)) {}

/// Says why it will not judge; nothing if it will.
std::string DriftModel::prepare(const Counted& reference, double rows_of_window, std::size_t least_blocks) {
  cut(reference);
  if (finite_ == 0) return "no finite values";
  auto each = masses(reference, true);
  each.erase(std::remove_if(each.begin(), each.end(), [](const auto& block) { return block.finite == 0; }),
             each.end());
  blocks_ = each.size();
  if (blocks_ >= 2) learn(each);
  const auto because = [&](const std::string& why, std::size_t needed) {
    return std::to_string(blocks_) + (blocks_ == 1 ? " block" : " blocks") + why + "; " +
           std::to_string(needed) + " are needed";
  };
  if (blocks_ < least_blocks)
    return because(blocks_ < reference.blocks ? " with finite values" : "", least_blocks);
  find_dependence(each);
  const double worth = effective_blocks(),
               needed = std::max(least_effective * static_cast<double>(least_blocks),
                                 static_cast<double>(directions_) + 5);
  if (long_ratio_ > 1 && worth < needed)
    return because(", which resemble those before them so much that they are worth " +
                       std::to_string(static_cast<int>(worth)),
                   static_cast<std::size_t>(std::ceil(needed)));
  const auto is_rare_event = [&](double blocks) { return chance(blocks, 0, blocks) > false_alarms_ / 2; };
  while (is_rare_event(static_cast<double>(least_window_)) && least_window_ < most_drawn) ++least_window_;
  if (least_window_ == most_drawn) return because(", of which no window can be told from a rare event", 100);
  const double rows_each = total(reference.rows) / static_cast<double>(blocks_);
  const double per_window =
      std::clamp(rows_each > 0 ? rows_of_window / rows_each : 1, 1.0, static_cast<double>(most_drawn));
  const auto longest = std::max(least_window_, static_cast<std::size_t>(per_window));
  std::vector<std::size_t> lengths;
  for (std::size_t length = 1; length < longest; length *= 2) lengths.push_back(length);
  lengths.push_back(longest);
  set_limits(each, lengths);
  return {};
}

/// Cuts the bins of the reference into groups of about a tenth of the mass. If zeros are a group, each group
/// has a tenth of the nonzero values: behind a ReLU that lets a tenth pass, this tenth would be one group.
void DriftModel::cut(const Counted& of) {
  std::map<BinEnds, std::pair<double, std::size_t>> counts;  // elements, and blocks that have one
  const auto put = [&](const BinEnds& bin, double count) {
    if (count <= 0) return;
    counts[bin].first += count;
    ++counts[bin].second;
  };
  for (std::size_t i = 0; i < of.counts.size(); ++i) put(of.bins[i % of.bins.size()], of.counts[i]);
  for (const double zeros : of.zeros) put({0, 0}, zeros);
  for (const auto& [bin, count] : counts) finite_ += count.first;
  const auto zeros = counts.find({0, 0});
  const double of_zeros = zeros == counts.end() ? 0 : zeros->second.first / finite_;
  const bool separate = of_zeros > least_share;
  const double enough = separate ? std::max(least_share, 0.1 * (1 - of_zeros)) : 0.1;
  Numbers shares;  // of the groups
  bool open = false;
  for (const auto& [bin, count] : counts) {
    const bool zero = separate && bin == BinEnds(0, 0);
    if (zero || !open) shares.push_back(0);
    if (zero) zero_group_ = shares.size() - 1;
    bins_.push_back(bin);
    occurred_.push_back(count.second);
    groups_.push_back(shares.size() - 1);
    shares.back() += count.first / finite_;
    open = !zero && shares.back() < enough;
  }
  // A bin that is too rare for a separate group joins a neighbour; preferably not the group of zeros. It
  // counts as unseen, so that it is not lost there.
  for (std::size_t i = 0; i < shares.size();) {
    if (shares[i] >= least_share || shares.size() == 1) {
      ++i;
      continue;
    }
    const bool before = i > 0 && (i + 1 == shares.size() || i - 1 != zero_group_);
    const std::size_t joined = before ? i - 1 : i;  // becomes the group of both
    for (std::size_t bin = 0; bin < bins_.size(); ++bin) occurred_[bin] *= groups_[bin] == i ? 0 : 1;
    shares[joined] += shares[joined + 1];
    shares.erase(shares.begin() + static_cast<std::ptrdiff_t>(joined) + 1);
    for (auto& group : groups_) group -= group > joined ? 1 : 0;
    if (zero_group_ != no_group && zero_group_ > joined) --zero_group_;
    i = joined;
  }
  number_ = shares.size();
  if (finite_ > 0) zeros_ = total(of.zeros) / finite_;
}

/// The group of a bin, and in how many blocks of the reference it occurred. A bin that did not occur is in
/// the group beside it.
std::size_t DriftModel::group_of(const BinEnds& bin, std::size_t& blocks_with) const {
  const auto at = static_cast<std::size_t>(std::lower_bound(bins_.begin(), bins_.end(), bin) - bins_.begin());
  const bool known = at < bins_.size() && bins_[at] == bin;
  blocks_with = known ? occurred_[at] : 0;
  const bool before = !known && at > 0 && (at == bins_.size() || groups_[at - 1] != zero_group_);
  return groups_[before ? at - 1 : at];
}

/// For the reference's own blocks a bin is seen if another block has it.
std::vector<DriftModel::Masses> DriftModel::masses(const Counted& of, bool own) const {
  std::vector<Masses> all(of.blocks);
  struct Column {
    std::size_t group;
    bool seen, twice;
  };
  std::vector<Column> columns;
  const auto column = [&](const BinEnds& bin) {
    std::size_t blocks_with = 0;
    const std::size_t group = group_of(bin, blocks_with);
    return Column{group, blocks_with > (own ? 1U : 0U), own && blocks_with == 2};
  };
  for (const auto& bin : of.bins) columns.push_back(column(bin));
  const Column zero = column({0, 0});
  for (std::size_t block = 0; block < of.blocks; ++block) {
    Masses& one = all[block];
    one.groups.assign(number_, 0);
    one.unseen.assign(number_, 0);
    const auto add = [&](const Column& where, double count) {
      one.groups[where.group] += count;
      if (!where.seen) one.unseen[where.group] += count;
      if (where.twice) one.twice += count;
      one.finite += count;
    };
    for (std::size_t i = 0; i < columns.size(); ++i) add(columns[i], of.counts[block * columns.size() + i]);
    one.zeros = of.zeros[block];
    add(zero, one.zeros);
  }
  return all;
}

/// In coordinates in which an element of the reference has the variance 1 in each direction.
Numbers DriftModel::whiten(const Masses& of) const {
  Numbers z(directions_, 0.0);
  for (std::size_t k = 0; k < directions_; ++k) {
    for (std::size_t i = 0; i < number_; ++i)
      z[k] += axes_[k * number_ + i] * (of.groups[i] / of.finite - reference_[i]);
    z[k] /= std::sqrt(variances_[k]);
  }
  return z;
}

/// The mass where the reference has no values, and that moved in directions in which it does not vary.
double DriftModel::elsewhere(const Masses& of) const {
  Numbers left(number_);
  for (std::size_t i = 0; i < number_; ++i) left[i] = of.groups[i] / of.finite - reference_[i];
  for (std::size_t k = 0; k < directions_; ++k) {
    double along = 0;
    for (std::size_t i = 0; i < number_; ++i) along += axes_[k * number_ + i] * left[i];
    for (std::size_t i = 0; i < number_; ++i) left[i] -= along * axes_[k * number_ + i];
  }
  double moved = 0;
  for (const double mass : left) moved += std::abs(mass) / 2;
  const double mass = std::min(1.0, moved + total(of.unseen) / of.finite);
  return mass < least_elsewhere ? 0 : mass;
}

double DriftModel::psi(const Masses& of) const {
  double sum = psi_term(total(of.unseen) / of.finite, 1 - total(seen_));
  for (std::size_t i = 0; i < number_; ++i)
    sum += psi_term((of.groups[i] - of.unseen[i]) / of.finite, seen_[i]);
  return sum;
}

/// Masses, and how they vary between blocks.
void DriftModel::learn(const std::vector<Masses>& each) {
  Masses all;
  for (const auto& block : each) all.add(block, 1 / finite_);
  reference_ = all.groups;
  seen_.resize(number_);
  for (std::size_t i = 0; i < number_; ++i) seen_[i] = all.groups[i] - all.unseen[i];
  const double b = static_cast<double>(blocks_);
  Numbers covariance(number_ * number_, 0.0);
  for (const auto& block : each) {
    for (std::size_t i = 0; i < number_; ++i) {
      const double a = block.groups[i] / block.finite - reference_[i];
      for (std::size_t k = 0; k < number_; ++k)
        covariance[i * number_ + k] +=
            block.finite * a * (block.groups[k] / block.finite - reference_[k]) / (b - 1);
    }
  }
  const Eigen found = eigen(covariance, number_);
  for (std::size_t k = 0; k < number_; ++k) {
    if (found.values[k] <= std::max(least_direction * found.values.back(), least_variance)) continue;
    const auto axis = found.vectors.begin() + static_cast<std::ptrdiff_t>(k * number_);
    axes_.insert(axes_.end(), axis, axis + static_cast<std::ptrdiff_t>(number_));
    variances_.push_back(found.values[k]);
    ++directions_;
  }
  double twice = 0;
  for (const auto& block : each) {
    elsewhere_.push_back(elsewhere(block));
    twice += block.twice / block.finite;
    double t2 = 0;
    for (const double z : whiten(block)) t2 += z * z * block.finite;
    // As if the other blocks alone gave the covariance, as for a block of a window.
    const double left = 1 - b * t2 / ((b - 1) * (b - 1));
    farthest_ = std::max(farthest_, left > 0 ? t2 / left : infinite);
  }
  std::sort(elsewhere_.begin(), elsewhere_.end());
  // Values seen once estimate the unseen share; values seen twice give its variance (Good 1953).
  unseen_ratio_ = 1 + twice / (1 + total(elsewhere_));
}

/// Finds the ratio by which blocks in a row vary more than shuffled ones, if it is significant.
void DriftModel::find_dependence(const std::vector<Masses>& each) {
  const std::size_t d = directions_;
  if (d == 0) return;
  std::vector<std::size_t> lengths;
  for (std::size_t length = 2; length * least_in_order <= blocks_; length *= 2) lengths.push_back(length);
  if (lengths.empty()) return;
  Numbers z;
  for (const auto& block : each) {
    for (const double one : whiten(block)) z.push_back(one * std::sqrt(block.finite));
  }
  struct Found {
    double mean, first, largest;
  };
  std::vector<std::size_t> order(blocks_);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto measure = [&](std::size_t length) {
    Numbers sums((blocks_ + 1) * d, 0.0), scatter(d * d, 0.0), window(d);
    for (std::size_t i = 0; i < blocks_; ++i) {
      for (std::size_t k = 0; k < d; ++k) sums[(i + 1) * d + k] = sums[i * d + k] + z[order[i] * d + k];
    }
    const std::size_t windows = blocks_ - length + 1;
    const double b = static_cast<double>(blocks_), n = static_cast<double>(length);
    const double scale = 1 / (n * (1 - n / b) * static_cast<double>(windows));
    for (std::size_t w = 0; w < windows; ++w) {
      for (std::size_t k = 0; k < d; ++k) window[k] = sums[(w + length) * d + k] - sums[w * d + k];
      for (std::size_t i = 0; i < d; ++i) {
        for (std::size_t k = 0; k < d; ++k) scatter[i * d + k] += scale * window[i] * window[k];
      }
    }
    Found found{0, scatter[d * d - 1], eigen(scatter, d).values.back()};
    for (std::size_t k = 0; k < d; ++k) found.mean += scatter[k * d + k] / static_cast<double>(d);
    return found;
  };
  std::vector<Found> in_order;
  for (const std::size_t length : lengths) in_order.push_back(measure(length));
  std::mt19937_64 random(20260101);
  std::vector<std::vector<Found>> shuffled(lengths.size());
  for (std::size_t i = 0; i < shuffles; ++i) {
    std::shuffle(order.begin(), order.end(), random);
    for (std::size_t k = 0; k < lengths.size(); ++k) shuffled[k].push_back(measure(lengths[k]));
  }
  // The distance of each number from the mean of shuffled blocks, and the largest such distance of each
  // shuffle.
  Numbers usual(shuffles, 0.0);
  double found = 0;
  for (std::size_t k = 0; k < lengths.size(); ++k) {
    for (double Found::*const number : {&Found::mean, &Found::first, &Found::largest}) {
      double sum = 0, squares = 0;
      for (const Found& one : shuffled[k]) {
        sum += one.*number / shuffles;
        squares += one.*number * (one.*number) / shuffles;
      }
      const double deviation = std::sqrt(std::max(squares - sum * sum, 1e-12));
      for (std::size_t i = 0; i < shuffles; ++i)
        usual[i] = std::max(usual[i], (shuffled[k][i].*number - sum) / deviation);
      found = std::max(found, (in_order[k].*number - sum) / deviation);
    }
  }
  if (found <= *std::max_element(usual.begin(), usual.end())) return;
  for (std::size_t k = 0; k < lengths.size(); ++k) {
    // Overlapping windows are worth about half as many again as disjoint ones.
    const double worth = 1.5 * static_cast<double>(blocks_) / static_cast<double>(lengths[k]);
    const double before = ratios_.empty() ? 1 : ratios_.back().second,
                 variance = largest_variance(in_order[k].largest, static_cast<double>(d), worth);
    ratios_.emplace_back(static_cast<double>(lengths[k]),
                         std::max(before, variance * (1 + std::sqrt(2 / worth))));
  }
  // If correlation is short, the ratio of n blocks approaches its limit as 1 / n.
  const double last = ratios_.back().second,
               before = ratios_.size() > 1 ? ratios_[ratios_.size() - 2].second : 1;
  long_ratio_ = last + (last - before);
}

double DriftModel::ratio_of(double joined) const {
  if (joined <= 1) return 1;
  for (const auto& [length, ratio] : ratios_) {
    if (joined <= length) return ratio;
  }
  return long_ratio_;
}

/// The probability that the window has `of_window` or more of all marked blocks, if all blocks are alike.
/// Shares of blocks add up: a sum of them varies less than as many whole ones (Hoeffding 1963).
double DriftModel::chance(double of_window, double of_reference, double blocks_of_window,
                          double worth) const {
  const double each = long_ratio_ * worth, m = blocks_of_window / each, b = effective_blocks() / worth;
  double v = of_window / each, u = of_reference / each, sum = 0;
  const double all = log_choose(b + m, v + u);
  for (; v <= m && u >= 0; v += 1, u -= 1) {
    const double term = std::exp(log_choose(m, v) + log_choose(b, u) - all);
    sum += term;
    if (term < 1e-6 * sum) break;
  }
  return std::min(1.0, sum);
}

/// Fits limits to windows drawn from the blocks.
void DriftModel::set_limits(const std::vector<Masses>& each, const std::vector<std::size_t>& lengths) {
  // z is linear in the masses: a window's z is the sum over its blocks.
  Numbers whitened;
  for (const auto& block : each) {
    for (const double z : whiten(block)) whitened.push_back(z * block.finite);
  }
  std::vector<Numbers> t2(lengths.size());
  Numbers psis(lengths.size(), 0.0);
  std::mt19937_64 random(20260101);  // the same windows each time, so that limits are reproducible
  for (std::size_t window = 0; window < drawn_windows; ++window) {
    Numbers z(directions_, 0.0);
    Masses all;
    std::size_t drawn = 0;
    double finite = 0;
    for (std::size_t which = 0; which < lengths.size(); ++which) {
      for (; drawn < lengths[which]; ++drawn) {
        const std::size_t block = random() % blocks_;
        for (std::size_t k = 0; k < directions_; ++k) z[k] += whitened[block * directions_ + k];
        finite += each[block].finite;
        if (window < drawn_for_psi) all.add(each[block]);
      }
      double square = 0;
      for (const double one : z) square += one * one;
      t2[which].push_back(square / finite);
      if (window < drawn_for_psi) psis[which] += psi(all) / static_cast<double>(drawn_for_psi);
    }
  }
  for (std::size_t which = 0; which < lengths.size(); ++which) {
    Limit limit{static_cast<double>(lengths[which]), 0, 0, psis[which]};
    if (directions_ > 0) {
      auto& drawn = t2[which];
      std::nth_element(drawn.begin(), drawn.begin() + in_tail, drawn.end(), std::greater<>());
      limit.begin = drawn[in_tail];
      limit.excess =
          total(Numbers(drawn.begin(), drawn.begin() + in_tail)) / static_cast<double>(in_tail) - limit.begin;
    }
    limits_.push_back(limit);
  }
  for (Limit& limit : limits_) limit.usual = limit_of(limit, false_alarms_);
}

/// The limit that T² of independent blocks exceeds at this rate.
double DriftModel::limit_of(const Limit& of, double rate) const {
  if (directions_ == 0) return 0;
  if (rate == false_alarms_ && of.usual > 0) return of.usual;
  const double d = static_cast<double>(directions_), b = effective_blocks();
  const double chi = chi_squared_limit(rate, d);
  // The factor by which the limit is larger because the covariance is an estimate.
  const double estimated = d * (b - 1) / (b - d) * f_limit(rate, d, b - d) / chi;
  const double rarer = static_cast<double>(in_tail) / static_cast<double>(drawn_windows) / rate;
  const double margin = 1 + 3 / std::sqrt(static_cast<double>(in_tail));
  return std::max(chi, of.begin + of.excess * margin * std::log(rarer)) * estimated;
}

/// The blocks of a window, small ones joined until they are about as large as the reference's. One of several
/// samples, or a sum over all of them, is taken for as many alike.
std::vector<DriftModel::Block> DriftModel::blocks_of(const std::vector<Counted>& window) const {
  const double mean_block = finite_ / static_cast<double>(blocks_);
  std::vector<Block> blocks;
  const auto is_small = [&] { return blocks.back().masses.finite < 0.75 * mean_block; };
  for (const Counted& part : window) {
    const std::vector<Masses> each = masses(part, false);
    for (std::size_t i = 0; i < each.size(); ++i) {
      if (each[i].finite == 0) continue;
      if (blocks.empty() || !is_small()) blocks.emplace_back();
      blocks.back().masses.add(each[i]);
      blocks.back().samples += part.samples.empty() ? infinite : part.samples[i];
    }
  }
  if (blocks.size() > 1 && is_small()) {
    blocks[blocks.size() - 2].masses.add(blocks.back().masses);
    blocks.pop_back();
  }
  for (Block& block : blocks)
    block.alike = std::min(std::max(1.0, std::round(block.masses.finite / mean_block)), block.samples);
  return blocks;
}

DriftModel::Verdict DriftModel::compare(const std::vector<Counted>& window) const {
  Verdict verdict;
  verdict.limit = infinite;
  if (blocks_ < 2) return verdict;
  const std::vector<Block> blocks = blocks_of(window);
  if (blocks.empty()) return verdict;
  const double mean_block = finite_ / static_cast<double>(blocks_), b = static_cast<double>(blocks_);
  Masses all, usual;
  double m = 0, odd = 0, apart = 0, most_apart = elsewhere_.back();
  for (const Block& block : blocks) {
    const Masses& here = block.masses;
    m += block.alike;
    apart += block.alike * elsewhere(here);
    // One of several samples may have in one of them what it has.
    most_apart = std::max(most_apart, std::min(1.0, block.alike * elsewhere(here)));
    double t2 = 0;
    for (const double z : whiten(here)) t2 += z * z * here.finite / block.alike;
    if (t2 > farthest_ * ratio_of(here.finite / block.alike / mean_block)) {
      odd += block.alike;
    } else {
      usual.add(here);
    }
    all.add(here);
  }
  verdict.finite = all.finite;
  verdict.zeros = all.zeros / all.finite - zeros_;
  // Some blocks unlike any of the reference's may be a rare event; many are not. The rarer they are, the less
  // the others can add: both together have to be as rare as false alarms.
  const double chance_of_odd = odd > 0 ? chance(odd, 0, m) : 1;
  const bool leave_out = odd > 0 && chance_of_odd > false_alarms_ / 2;
  const bool judged =
      !limits_.empty() && m >= static_cast<double>(least_window_) && !(leave_out && usual.finite == 0);
  const Masses& compared = judged && leave_out ? usual : all;
  const double n = compared.finite / mean_block;
  for (const double z : whiten(compared)) verdict.t2 += z * z;
  verdict.t2 *= mean_block / (1 / n + 1 / b);
  verdict.psi = psi(compared);
  if (!judged) return verdict;

  const double before = total(elsewhere_);
  if (most_apart > 0 && apart / m > before / b &&
      chance(apart / most_apart, before / most_apart, m, unseen_ratio_) < false_alarms_ / 2) {
    verdict.t2 = infinite;
    verdict.psi = psi(all);
  }
  // Blocks differ in size, so that a window of 8 may have a little less than 8 times the mean.
  auto limit = std::upper_bound(limits_.begin(), limits_.end(), n * 1.05,
                                [](double blocks, const Limit& one) { return blocks < one.blocks; });
  if (limit != limits_.begin()) --limit;
  const double ratio = std::max(ratio_of(limit->blocks), ratio_of(n));
  const double rate =
      std::min(most_rate, odd > 0 ? false_alarms_ / (chance_of_odd * (1 + odd) * (1 + odd)) : false_alarms_);
  verdict.limit =
      limit_of(*limit, std::max(rate, false_alarms_)) * (ratio / n + long_ratio_ / b) / (1 / n + 1 / b);
  verdict.psi -= limit->psi * limit->blocks / n;
  return verdict;
}

}  // namespace torchtap::views::monitor::detail
