// The catalogue, and the functions that judge.

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include <torchtap/base/numbers.hpp>
#include <torchtap/rules/detail/catalogue.hpp>
#include <torchtap/rules/rules.hpp>
#include <torchtap/views/text/units.hpp>

namespace torchtap::rules {
namespace {

/// The number, unless it is NaN.
std::optional<double> known(const std::optional<double>& number) {
  return number.has_value() && !std::isnan(*number) ? number : std::nullopt;
}

/// The count, unless it is no number of values.
std::optional<double> counted(const std::optional<double>& count) {
  return count.has_value() && std::isfinite(*count) ? count : std::nullopt;
}

/// "0.0312", "3640", "1.2e-09".
std::string number_text(double number) {
  return std::abs(number) >= 1000 && std::abs(number) < 1e6 ? base::fixed_text(number, 0)
                                                            : base::number_text(number, 3);
}

/// "0.3 %", "99.7 %"; "100 %" is all of them.
std::string share_text(double share) {
  if (share < 1 && share > 0.9995) return "more than 99.9 %";
  return base::number_text(100 * share, 3) + " %";
}

std::string count_text(double count) {
  return views::text::count_text(std::llround(count));
}

std::string path_text(const std::string& path) {
  return path.empty() ? "the model" : path;
}

/// A tensor and its place among others.
struct Judged {
  const Facts& facts;
  std::string type;
  const std::vector<Facts>& all;
  const std::vector<std::string>& types;
  std::size_t at;
  const std::string& rule;
  const Rules& rules;

  double limit(const char* key) const { return rules.value(rule, key, facts.path); }
  bool is(Tensor tensor) const { return facts.tensor == tensor; }
};

/// A rule's result: a value, the limit that it exceeds, and both in words.
struct Verdict {
  double value, limit;
  std::string sentence;
};
using Result = std::optional<Verdict>;

Result nonfinite(const Judged& of) {
  const double nan = counted(of.facts.nan).value_or(0), inf = counted(of.facts.inf).value_or(0);
  if (!(nan + inf > 0)) return std::nullopt;
  const auto count = counted(of.facts.count);
  std::string text;
  if (nan > 0) text = count ? count_text(nan) + " NaN" : "NaN";
  if (inf > 0) {
    if (!text.empty()) text += count ? ", " : " and ";
    text += count ? count_text(inf) + (inf == 1 ? " infinity" : " infinities") : "infinities";
  }
  return Verdict{nan + inf, 0, text + (count ? " of " + count_text(*count) : " among the") + " values"};
}

Result all_zero(const Judged& of) {
  const auto zeros = counted(of.facts.zeros), count = counted(of.facts.count);
  if (of.is(Tensor::parameter) && of.facts.dimensions < 2) return std::nullopt;
  if (zeros && count) {
    if (!(*count > 0) || *zeros < *count) return std::nullopt;
  } else if (known(of.facts.rms) != 0.0 && (known(of.facts.min) != 0.0 || known(of.facts.max) != 0.0)) {
    return std::nullopt;
  }
  if (counted(of.facts.nan).value_or(0) + counted(of.facts.inf).value_or(0) > 0) return std::nullopt;
  const std::string all = count ? "all " + count_text(*count) + " values are zero" : "all values are zero";
  return Verdict{1, 1, count == 1.0 ? "the only value is zero" : all};
}

Result dead_relu(const Judged& of) {
  const bool relu = of.type == "ReLU" || of.type == "ReLU6" || of.type == "Threshold";
  if (!relu || !of.is(Tensor::output)) return std::nullopt;
  const auto zeros = counted(of.facts.zeros), count = counted(of.facts.count);
  if (zeros && count && *count > 0 && *zeros >= of.limit("zeros") * *count) {
    const double share = *zeros / *count;
    return Verdict{share, of.limit("zeros"),
                   share_text(share) + " of " + count_text(*count) + " values are zero"};
  }
  const auto inactive = known(of.facts.inactive_channels);
  if (!inactive || !(*inactive > of.limit("channels"))) return std::nullopt;
  return Verdict{*inactive, of.limit("channels"),
                 share_text(*inactive) + " of the channels are zero in more than 99 % of their values"};
}

Result perhaps_dead(const Judged& of) {
  const bool relu = of.type == "ReLU" || of.type == "ReLU6" || of.type == "Threshold";
  const auto zeros = counted(of.facts.zeros), count = counted(of.facts.count);
  // As many zeros as more than `channels` of the channels would have.
  if (!relu || !of.is(Tensor::output) || of.facts.inactive_channels || !zeros || !count || !(*count > 0) ||
      *zeros < 0.99 * of.limit("channels") * *count || dead_relu(of))
    return std::nullopt;
  return Verdict{*zeros / *count, of.limit("channels"),
                 share_text(*zeros / *count) +
                     " of the values are zero, in which channels is not known; samples, or log_histogram by "
                     "channels, would tell"};
}

/// The share of values beyond `at`. Values with bounds 0 and 1 and this mean are taken to be exponential, the
/// most even density (Jaynes 1957).
double share_beyond(double at, double mean) {
  if (mean <= 0 || mean >= 1) return mean <= 0 ? 0 : 1;
  const auto mean_of = [](double rate) {
    if (std::abs(rate) < 1e-4) return 0.5 + rate / 12;
    const double half = 1 / -std::expm1(-std::abs(rate)) - 1 / std::abs(rate);
    return rate > 0 ? half : 1 - half;
  };
  double low = -1e4, high = 1e4;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (mean_of(middle) < mean ? low : high) = middle;
  }
  if (std::abs(low) < 1e-4) return 1 - at;
  return low > 0 ? std::expm1(low * (at - 1)) / std::expm1(-low)
                 : (std::exp(low) - std::exp(low * at)) / std::expm1(low);
}

/// An estimated share and its bounds.
struct Share {
  double estimate = 0, least = 0, most = 0;
};

/// The share of the finite values that are less than `low` or greater than `high`; nothing if there are no
/// bins. In a bin that a limit cuts, the sum of all squares bounds the share (0.9999 in 0.9375 … 1): of c
/// values between a and b whose squares have the mean q, between (q - t²) / (b² - t²) and (q - a²) / (t² -
/// a²) are beyond t. If the sum is unknown, the bin counts in proportion.
std::optional<Share> share_outside(const Facts& facts, double low, double high) {
  const double zeros = known(facts.zeros).value_or(0);
  const bool all_zeros = zeros > 0 && zeros >= known(facts.count).value_or(zeros + 1);
  if (facts.bins.empty() && !all_zeros) return std::nullopt;
  const double smallest = known(facts.min).value_or(-std::numeric_limits<double>::infinity());
  const double largest = known(facts.max).value_or(std::numeric_limits<double>::infinity());
  const double limit = high * high;
  double all = zeros, outside = low > 0 || high < 0 ? zeros : 0;
  // The bins whose outer part has the large values: their counts, and the squares of their ends.
  double cut = 0, part = 0, nearest = 0, farthest = 0;
  double small = 0, small_part = 0;                         // of other bins that a limit cuts
  double squares = 0, least_squares = 0, most_squares = 0;  // of all other values
  for (const Bin& bin : facts.bins) {
    const double from = std::min(std::max(bin.low, smallest), bin.high),
                 to = std::max(std::min(bin.high, largest), from);
    all += bin.count;
    const bool cuts_high = from < high && to > high, cuts_low = from < low && to > low;
    const double a = from <= 0 && to >= 0 ? 0 : std::min(from * from, to * to),
                 b = std::max(from * from, to * to);
    const double beyond = std::max(0.0, to - high) + std::max(0.0, low - from);
    const double proportion = std::isfinite(to - from) && to > from ? beyond / (to - from) : 0.5;
    if ((cuts_high || (cuts_low && low < 0)) && std::isfinite(b)) {
      cut += bin.count;
      part += proportion * bin.count;
      nearest += std::min(a, limit) * bin.count;
      farthest += std::max(b, limit) * bin.count;
      continue;
    }
    squares += (from * from + from * to + to * to) / 3 * bin.count;
    least_squares += a * bin.count;
    most_squares += b * bin.count;
    if (!cuts_high && !cuts_low) {
      if (from >= high || to <= low) outside += bin.count;
    } else {
      small += bin.count;
      small_part += proportion * bin.count;
    }
  }
  if (!(all > 0)) return std::nullopt;
  Share share{outside + small_part + part, outside, outside + small + cut};
  if (const auto rms = known(facts.rms); rms && cut > 0) {
    nearest /= cut;
    farthest /= cut;
    const double sum = *rms * *rms * all;
    const auto mean = [&](double of_others) {
      return std::clamp((sum - of_others) / cut, nearest, farthest);
    };
    if (farthest > limit && std::isfinite(sum) && std::isfinite(most_squares)) {
      const double width = farthest - nearest;
      share.estimate = outside + small_part +
                       cut * share_beyond((limit - nearest) / width, (mean(squares) - nearest) / width);
      share.least += cut * std::max(0.0, (mean(most_squares) - limit) / (farthest - limit));
      if (limit > nearest)
        share.most -= cut * (1 - std::min(1.0, (mean(least_squares) - nearest) / (limit - nearest)));
      share.estimate = std::clamp(share.estimate, share.least, share.most);
    }
  }
  return Share{share.estimate / all, share.least / all, share.most / all};
}

/// The share of an activation's outputs that are saturated, and where that is in words.
std::optional<std::pair<Share, std::string>> saturated_share(const Judged& of) {
  if (!of.is(Tensor::output)) return std::nullopt;
  const bool both = of.type == "Tanh" || of.type == "Softsign" || of.type == "Hardtanh";
  if (!both && of.type != "Sigmoid" && of.type != "Hardsigmoid") return std::nullopt;
  const double high = of.limit(both ? "tanh" : "sigmoid_high");
  const double low = both ? -high : of.limit("sigmoid_low");
  const auto share = share_outside(of.facts, low, high);
  if (!share) return std::nullopt;
  return std::pair(*share, both ? "beyond ±" + number_text(high)
                                : "below " + number_text(low) + " or above " + number_text(high));
}

Result saturated(const Judged& of) {
  const auto share = saturated_share(of);
  if (!share || !(share->first.estimate > of.limit("share"))) return std::nullopt;
  return Verdict{share->first.estimate, of.limit("share"),
                 share_text(share->first.estimate) + " " + share->second};
}

Result perhaps_saturated(const Judged& of) {
  const auto share = saturated_share(of);
  const double limit = of.limit("share");
  if (!share || share->first.estimate > limit || !(share->first.most > limit)) return std::nullopt;
  return Verdict{share->first.estimate, limit,
                 share_text(share->first.least) + " to " + share_text(share->first.most) + " are " +
                     share->second + "; samples would tell"};
}

/// The nearest gradient before this one whose rms is positive and finite. Modules with modules inside repeat
/// the values of their last one.
const Facts* gradient_before(const Judged& of) {
  if (!of.facts.leaf) return nullptr;
  for (std::size_t i = of.at; i-- > 0;) {
    const Facts& one = of.all[i];
    if (one.tensor == Tensor::gradient && one.leaf && one.slot == of.facts.slot && one.rms.value_or(0) > 0 &&
        std::isfinite(*one.rms))
      return &one;
  }
  return nullptr;
}

Result gradient_verdict(const Judged& of, const char* ratio_key, bool explodes) {
  const auto rms = known(of.facts.rms);
  if (!of.is(Tensor::gradient) || !rms) return std::nullopt;
  const auto beyond = [&](double value, double limit) { return explodes ? value > limit : value < limit; };
  const std::string than = explodes ? " is more than " : " is less than ";
  if (const double limit = of.limit("rms"); beyond(*rms, limit)) {
    return Verdict{*rms, limit, "rms " + number_text(*rms) + than + number_text(limit)};
  }
  const Facts* const before = gradient_before(of);
  const double limit = of.limit(ratio_key);
  if (before == nullptr || !beyond(*rms / *before->rms, limit)) return std::nullopt;
  return Verdict{*rms / *before->rms, limit,
                 "rms " + number_text(*rms) + than + number_text(limit) + " times the " +
                     number_text(*before->rms) + " of " + path_text(before->path) + " before it"};
}

Result vanishing_gradient(const Judged& of) {
  return gradient_verdict(of, "ratio", false);
}

Result exploding_gradient(const Judged& of) {
  return gradient_verdict(of, "ratio", true);
}

/// The measure of a tensor's scale.
enum class Scale { deviation, rms, largest };

/// Nothing of a few values, whose scale is an accident: two random numbers are nearly equal once in a hundred
/// times.
std::optional<double> scale_of(const Facts& facts, Scale scale) {
  constexpr double kFew = 8;  // of normal numbers, once in 10^15 a deviation is a hundredth of the true one
  if (facts.count && *facts.count < kFew) return std::nullopt;
  std::optional<double> size = known(scale == Scale::deviation ? facts.std : facts.rms);
  if (scale == Scale::largest) {
    const auto least = known(facts.min), most = known(facts.max);
    size = least && most ? std::optional(std::max(std::abs(*least), std::abs(*most))) : std::nullopt;
  }
  return size && *size > 0 && std::isfinite(*size) ? size : std::nullopt;
}

/// Those of the nearest two modules of the same type before (`step` -1) or after, as far as there are any.
std::vector<double> nearest_scales(const Judged& of, Scale scale, int step) {
  std::vector<double> found;
  const auto count = static_cast<std::ptrdiff_t>(of.all.size());
  for (auto i = static_cast<std::ptrdiff_t>(of.at) + step; i >= 0 && i < count; i += step) {
    const auto at = static_cast<std::size_t>(i);
    const Facts& one = of.all[at];
    if (one.tensor != of.facts.tensor || one.slot != of.facts.slot || of.types[at] != of.type) continue;
    if (const auto size = scale_of(one, scale)) found.push_back(*size);
    if (found.size() == 2) break;
  }
  return found;
}

Result scale_outlier(const Judged& of) {
  if (!of.is(Tensor::output) && !of.is(Tensor::parameter)) return std::nullopt;
  const double limit = of.limit("times");
  for (const Scale scale : {Scale::deviation, Scale::rms, Scale::largest}) {
    const auto own = scale_of(of.facts, scale);
    if (!own) continue;
    const auto before = nearest_scales(of, scale, -1), after = nearest_scales(of, scale, 1);
    const bool between = !before.empty() && !after.empty();
    const auto& side = before.empty() ? after : before;
    // Of two modules alone nothing tells which is right: the later one is found.
    if (side.empty() || (before.empty() && side.size() == 1)) continue;
    const double one = side.front(), other = between ? after.front() : side.back();
    double least = std::min(one, other), most = std::max(one, other);
    // Where these two differ as much, one of them is the outlier; at an end they may both be on the way
    // there.
    if (between && most < limit * least) least = most = std::sqrt(one) * std::sqrt(other);
    const bool large = *own >= limit * most;
    if (!large && *own * limit > least) continue;
    const double around = large ? most : least;
    const std::string what = scale == Scale::deviation ? "std "
                             : scale == Scale::rms     ? "rms "
                                                       : "largest value ";
    const std::string where = between ? "before and after" : before.empty() ? "after" : "before";
    return Verdict{*own / around, large ? limit : 1 / limit,
                   what + number_text(*own) + " is " + number_text(*own / around) +
                       " times that of the nearest " + (of.type.empty() ? std::string("module") : of.type) +
                       " " + where};
  }
  return std::nullopt;
}

Result tensor_variance(const Judged& of) {
  const auto std = known(of.facts.std);
  if (!std || of.facts.count == 1.0) return std::nullopt;
  const double variance = *std * *std, least = of.limit("min"), most = of.limit("max");
  if (variance > least && variance <= most) return std::nullopt;
  if (variance == 0) return Verdict{0, least, "all values are the same"};
  const bool small = variance <= least;
  return Verdict{variance, small ? least : most,
                 "variance " + number_text(variance) + (small ? " is not more than " : " is more than ") +
                     number_text(small ? least : most)};
}

/// The share of a bin that lies between -`limit` and `limit`; none of one without an end.
double share_inside(const Bin& bin, double limit) {
  const double width = bin.high - bin.low;
  if (!std::isfinite(width)) return 0;
  if (!(width > 0)) return std::abs(bin.low) < limit ? 1 : 0;
  return std::max(0.0, std::min(bin.high, limit) - std::max(bin.low, -limit)) / width;
}

Result format_range(const Judged& of) {
  const double least = of.limit("least"), most = of.limit("most");
  double all = 0, small = 0, large = 0;
  for (const Bin& bin : of.facts.bins) {
    all += bin.count;
    small += bin.count * share_inside(bin, least);
    large += bin.count * (1 - share_inside(bin, most));
  }
  const double share = (small + large) / all, limit = of.limit("share");
  if (!(all > 0) || !(share > limit)) return std::nullopt;
  return Verdict{share, limit,
                 share_text(small / all) + " of the values that are not zero are below " +
                     number_text(least) + ", " + share_text(large / all) + " above " + number_text(most)};
}

/// Whether there are enough steps and `holds` is true for each of the last ones.
template <class Function>
bool holds_lately(const Judged& of, Function&& holds) {
  const std::vector<double>& updates = of.facts.updates;
  const double steps = of.limit("steps");
  return of.is(Tensor::parameter) && static_cast<double>(updates.size()) >= steps &&
         std::all_of(updates.end() - static_cast<std::ptrdiff_t>(steps), updates.end(), holds);
}

Result update_ratio(const Judged& of) {
  const double least = of.limit("min"), most = of.limit("max");
  if (of.facts.dimensions < 2 ||
      !holds_lately(of, [&](double ratio) { return ratio < least || ratio > most; }))
    return std::nullopt;
  const double last = of.facts.updates.back();
  const bool small = last < least;
  return Verdict{last, small ? least : most,
                 "a step changes it by " + number_text(last) + " of its norm, " +
                     (small ? "less than " : "more than ") + number_text(small ? least : most) + ", for " +
                     number_text(of.limit("steps")) + " steps"};
}

Result unchanged_tensor(const Judged& of) {
  if (!holds_lately(of, [](double ratio) { return ratio == 0; })) return std::nullopt;
  return Verdict{0, 0,
                 "it has a gradient and did not change for " + number_text(of.limit("steps")) + " steps"};
}

Result poor_initialization(const Judged& of) {
  const auto judged = [&](const Facts& facts) -> std::optional<double> {
    const auto calls = known(facts.calls);
    if (facts.tensor != Tensor::output || !facts.leaf || !calls || *calls > of.limit("calls"))
      return std::nullopt;
    return scale_of(facts, Scale::deviation);
  };
  const auto own = judged(of.facts);
  if (!own) return std::nullopt;
  const Facts* smallest = nullptr;
  double least = 0;
  for (std::size_t i = 0; i < of.all.size(); ++i) {
    const auto size = judged(of.all[i]);
    if (!size) continue;
    if (*size > *own || (*size == *own && i < of.at)) return std::nullopt;  // the largest alone is named
    if (smallest == nullptr || *size < least) std::tie(smallest, least) = std::pair(&of.all[i], *size);
  }
  const double limit = of.limit("ratio");
  if (!(*own / least > limit)) return std::nullopt;
  return Verdict{*own / least, limit,
                 "std " + number_text(*own) + " is " + number_text(*own / least) + " times that of " +
                     path_text(smallest->path) + ", the smallest"};
}

Result never_ran(const Judged& of) {
  if (!of.is(Tensor::output) || of.facts.slot != 0 || of.facts.calls != 0.0) return std::nullopt;
  return Verdict{0, 0, "it was not called, although the model ran"};
}

/// Judged elsewhere: by the monitor, and by `torchtap check`.
Result elsewhere(const Judged&) {
  return std::nullopt;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Rule {
  const char* name;
  const char* of;
  const char* holds;
  const char* source;
  bool on;
  std::vector<detail::Key> keys;
  Result (*judge)(const Judged&);
};

const std::vector<Rule>& table() {
  // Never destroyed: a thread may judge while the program ends.
  static const std::vector<Rule>& rules = *new const std::vector<Rule>{
      {"nonfinite",
       "all tensors",
       "there are NaN or infinities",
       "SageMaker ExplodingTensor",
       true,
       {},
       nonfinite},
      {"all_zero",
       "all tensors; of parameters, those of two dimensions or more",
       "all values are zero",
       "SageMaker AllZero, with all of the values",
       true,
       {},
       all_zero},
      {"dead_relu",
       "outputs of ReLU, ReLU6 and Threshold",
       "the share of zeros is `zeros` or more; or more than `channels` of the channels have less than 1 % of "
       "values that are not zero",
       "SageMaker DeadRelu for channels",
       true,
       {{"zeros", 0.99, 0, 1}, {"channels", 0.5, 0, 1}},
       dead_relu},
      {"saturated",
       "outputs of Tanh, Softsign and Hardtanh; of Sigmoid and Hardsigmoid",
       "more than `share` of the values are beyond ±`tanh`; below `sigmoid_low` or above `sigmoid_high`",
       "SageMaker SaturatedActivation, of outputs instead of inputs",
       true,
       {{"share", 0.9, 0, 1},
        {"tanh", 0.97, 0, 1},
        {"sigmoid_low", 0.015, 0, 1},
        {"sigmoid_high", 0.985, 0, 1}},
       saturated},
      {"vanishing_gradient",
       "gradients",
       "the root mean square is less than `rms`; or, of modules without modules inside, less than `ratio` "
       "times that of the module that ran before",
       "SageMaker VanishingGradient for `rms`",
       true,
       {{"rms", 1e-7, 0, kInfinity}, {"ratio", 1e-3, 0, 1}},
       vanishing_gradient},
      {"exploding_gradient",
       "gradients",
       "the root mean square is more than `rms`; or, of modules without modules inside, more than `ratio` "
       "times that of the module that ran before",
       "torchtap",
       true,
       {{"rms", 1e3, 0, kInfinity}, {"ratio", 1e3, 1, kInfinity}},
       exploding_gradient},
      {"scale_outlier",
       "outputs and parameters",
       "the standard deviation, the root mean square or the largest magnitude is at least `times` times the "
       "geometric mean of those of the nearest modules of the same type before and after, or at most "
       "1 / `times` of it; where these differ as much, and at an end, where the nearest two are compared, at "
       "least `times` times the larger or at most 1 / `times` of the smaller one. Of two modules the later "
       "one is found; tensors of less than 8 values are not compared",
       "torchtap",
       true,
       {{"times", 100, 1, kInfinity}},
       scale_outlier},
      {"tensor_variance",
       "all tensors",
       "the variance is not more than `min`, as of values that are all the same, or more than `max`",
       "SageMaker TensorVariance",
       false,
       {{"min", 0, 0, kInfinity}, {"max", kInfinity, 0, kInfinity}},
       tensor_variance},
      {"format_range",
       "all tensors",
       "of the values that are not zero, more than `share` are smaller than `least`, which become zero, or "
       "larger "
       "than `most`, which overflow",
       "torchtap; `least` and `most` are those of OCP's float8_e4m3fn",
       false,
       {{"share", 0.01, 0, 1}, {"least", 0x1p-10, 0, kInfinity}, {"most", 464, 0, kInfinity}},
       format_range},
      {"update_ratio",
       "parameters of two dimensions or more",
       "in each of the last `steps` steps the norm of the change, divided by the norm of the parameter, was "
       "less "
       "than `min` or more than `max`",
       "SageMaker WeightUpdateRatio, with 1e-8 … 10",
       true,
       {{"min", 6e-8, 0, kInfinity}, {"max", 0.1, 0, kInfinity}, {"steps", 5, 1, 1e6, true}},
       update_ratio},
      {"unchanged_tensor",
       "parameters with a gradient",
       "it did not change in the last `steps` steps",
       "SageMaker UnchangedTensor",
       true,
       {{"steps", 3, 1, 1e6, true}},
       unchanged_tensor},
      {"poor_initialization",
       "outputs of modules without modules inside, in their first `calls` calls",
       "the largest standard deviation is more than `ratio` times the smallest; found at the module with the "
       "largest",
       "SageMaker PoorWeightInitialization",
       false,
       {{"ratio", 10, 1, kInfinity}, {"calls", 10, 1, kInfinity}},
       poor_initialization},
      {"never_ran", "modules", "it was not called, although the model ran", "torchtap", true, {}, never_ran},
      {"drift",
       "outputs, and the inputs of the model",
       "the distribution differs from the reference's by a Hotelling's T² that data like it reaches in "
       "`false_alarms` of the windows, and by a population stability index of `size` or more",
       "torchtap",
       true,
       {{"false_alarms", 1e-6, 1e-12, most_false_alarms}, {"size", 0.02, 0, kInfinity}},
       elsewhere},
      {"forward_failed", "the model", "a forward began and did not return", "torchtap", true, {}, elsewhere},
  };
  return rules;
}

std::vector<std::string> plain_types(const std::vector<Facts>& all) {
  std::vector<std::string> types;
  types.reserve(all.size());
  for (const Facts& facts : all) types.push_back(views::text::type_text(facts.type));
  return types;
}

Finding finding_of(const std::string& rule, const Facts& facts, Verdict verdict) {
  return {rule,       facts.path,    facts.type,    facts.tensor,
          facts.slot, verdict.value, verdict.limit, std::move(verdict.sentence)};
}

}  // namespace

std::string_view name_of(Tensor tensor) noexcept {
  static constexpr std::array<std::string_view, 4> names{"input", "output", "gradient", "parameter"};
  return names[static_cast<std::size_t>(tensor) % names.size()];
}

const std::vector<RuleInfo>& catalogue() {
  // Never destroyed: a thread may judge while the program ends.
  static const std::vector<RuleInfo>& all = *new const std::vector<RuleInfo>([] {
    std::vector<RuleInfo> infos;
    for (const Rule& rule : table()) {
      infos.push_back({rule.name, rule.of, rule.holds, rule.source, rule.on, {}});
      for (const auto& key : rule.keys) infos.back().keys.emplace_back(key.name, key.standard);
    }
    return infos;
  }());
  return all;
}

const std::vector<detail::Key>* detail::keys_of(const std::string& rule) {
  const auto found =
      std::find_if(table().begin(), table().end(), [&](const Rule& one) { return one.name == rule; });
  return found == table().end() ? nullptr : &found->keys;
}

std::vector<Finding> check(const std::vector<Facts>& all, const Rules& rules) {
  return check(all, rules,
               [](const std::string&, const std::exception_ptr& error) { std::rethrow_exception(error); });
}

std::vector<Finding> check(
    const std::vector<Facts>& all, const Rules& rules,
    const std::function<void(const std::string& rule, const std::exception_ptr& error)>& threw) {
  const std::vector<std::string> types = plain_types(all);
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Facts& facts = all[i];
    for (std::size_t r = 0; r < table().size(); ++r) {
      const std::string& name = catalogue()[r].name;
      if (!rules.is_on(name, facts.path)) continue;
      if (auto verdict = table()[r].judge({facts, types[i], all, types, i, name, rules}))
        findings.push_back(finding_of(name, facts, std::move(*verdict)));
    }
    for (const auto& [name, rule] : rules.own_) {
      try {
        if (auto sentence = rule(facts))
          findings.push_back(finding_of(name, facts, {0, 0, std::move(*sentence)}));
      } catch (...) {
        threw(name, std::current_exception());
      }
    }
  }
  return findings;
}

std::vector<Finding> undecided(const std::vector<Facts>& all, const Rules& rules) {
  const std::vector<std::string> types = plain_types(all);
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto judge = [&](const std::string& name, Result (*rule)(const Judged&)) {
      if (!rules.is_on(name, all[i].path)) return;
      if (auto verdict = rule({all[i], types[i], all, types, i, name, rules}))
        findings.push_back(finding_of(name, all[i], std::move(*verdict)));
    };
    judge("dead_relu", perhaps_dead);
    judge("saturated", perhaps_saturated);
  }
  return findings;
}

}  // namespace torchtap::rules
