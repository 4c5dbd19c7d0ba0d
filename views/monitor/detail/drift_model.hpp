#pragma once

// The statistic of drift, of numbers alone.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>

namespace torchtap::views::monitor::detail {

using Numbers = std::vector<double>;
using BinEnds = std::pair<double, double>;  // equal for zeros, which so come before the bin from 0 on

/// Distributions as results of reductions have them.
struct Counted {
  std::size_t blocks = 0;
  std::vector<BinEnds> bins;
  Numbers counts;                  // [blocks, bins]
  Numbers zeros;                   // [blocks]
  Numbers rows, sum, sum_squares;  // [blocks]; empty if unknown
  Numbers samples;                 // [blocks]; empty of a sum over all samples
};

double total(const Numbers& numbers);

/// Judges windows by the blocks of a reference.
///
/// Blocks are taken for exchangeable, or for a sequence whose correlation the reference shows; nothing is
/// assumed about what is inside of them. Three parts follow from that:
/// - An event that did not occur in `b` blocks fills `k` of the `m` blocks of a window with at most the
///   probability of drawing `k` marked blocks in `m` draws from `b + m`, whatever its rate is. So blocks
///   unlike any of the reference, and values where it has no bins, are counted, and alarm when there are too
///   many of them.
/// - Otherwise the other blocks are judged together, by Hotelling's T² of the masses of about ten groups of
///   bins, whose limit is fitted to windows drawn from the reference.
/// - Blocks that resemble their neighbours are worth fewer: counts, limits and the precision of the
///   covariance are of the effective number of blocks.
class TORCHTAP_API DriftModel {
 public:
  DriftModel(const Counted& reference, double false_alarms, double rows_of_window, std::size_t least_blocks);

  struct Verdict {
    double t2 = 0, limit = 0, psi = 0, zeros = 0, finite = 0;
  };
  /// The limit is infinite if nothing is judged, also because the window has too few blocks to be told from a
  /// rare event. A window may come in several parts.
  Verdict compare(const std::vector<Counted>& window) const;

  const std::string& why_not() const { return why_not_; }
  std::size_t blocks() const { return blocks_; }
  double finite() const { return finite_; }
  double effective_blocks() const { return static_cast<double>(blocks_) / long_ratio_; }
  double dependence() const { return long_ratio_; }
  /// Fewer blocks are not judged.
  std::size_t least_window() const { return least_window_; }

 private:
  /// A block or window: counts of its finite elements in each group, and how many of them are where the
  /// reference has no bin.
  struct Masses {
    Numbers groups, unseen;
    double finite = 0, zeros = 0;
    double twice = 0;  // of the reference: in bins that two blocks have

    void add(const Masses& other, double weight = 1);
  };
  /// A block of a window.
  struct Block {
    Masses masses;
    double samples = 0, alike = 1;  // as how many blocks of the reference's size it is taken
  };
  /// For windows of this many blocks: the beginning of the tail of T², its mean excess, and the mean of the
  /// population stability index.
  struct Limit {
    double blocks = 0, begin = 0, excess = 0, psi = 0;
    double usual = 0;  // at the rate of false alarms
  };

  std::string prepare(const Counted& reference, double rows_of_window, std::size_t least_blocks);
  void cut(const Counted& of);
  std::size_t group_of(const BinEnds& bin, std::size_t& blocks_with) const;
  std::vector<Masses> masses(const Counted& of, bool own) const;
  Numbers whiten(const Masses& of) const;
  double elsewhere(const Masses& of) const;
  double psi(const Masses& of) const;
  void learn(const std::vector<Masses>& each);
  void find_dependence(const std::vector<Masses>& each);
  void set_limits(const std::vector<Masses>& each, const std::vector<std::size_t>& lengths);
  double ratio_of(double joined) const;
  double chance(double of_window, double of_reference, double blocks_of_window, double worth = 1) const;
  double limit_of(const Limit& of, double rate) const;
  std::vector<Block> blocks_of(const std::vector<Counted>& window) const;

  double false_alarms_;
  std::size_t blocks_ = 0, number_ = 0, zero_group_, directions_ = 0, least_window_ = 1;
  std::vector<BinEnds> bins_;                   // ascending
  std::vector<std::size_t> groups_, occurred_;  // of the bins: group, and blocks that have it; 0 if too rare
  Numbers reference_, seen_;       // masses of the groups; and without what a single block alone has
  double finite_ = 0, zeros_ = 0;  // elements, and the share of zeros
  Numbers axes_;                   // [directions, groups], of length 1
  Numbers variances_;              // of an element, [directions]
  Numbers elsewhere_;              // of each block, ascending
  double farthest_ = 0;            // the largest T² of a block among the others
  double unseen_ratio_ = 1;        // variance of unseen mass over the variance of a share
  double long_ratio_ = 1;          // variance of many blocks in a row over the variance of independent ones
  std::vector<std::pair<double, double>> ratios_;  // number of blocks in a row, and their ratio
  std::vector<Limit> limits_;                      // by ascending blocks
  std::string why_not_;                            // after the members that it is found from
};

}  // namespace torchtap::views::monitor::detail
