#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/quantization/detail/no_value.hpp>
#include <torchtap/quantization/parameters.hpp>

namespace torchtap::quantization {
namespace {

constexpr std::size_t even_bins = 2048;  // as many as torch.ao's observer and TensorRT's calibrator have
constexpr double infinity = std::numeric_limits<double>::infinity();

template <class Enum, std::size_t N>
Enum named(const char* call, const std::array<std::string_view, N>& names, std::string_view name) {
  const auto* const found = std::find(names.begin(), names.end(), name);
  TORCH_CHECK_VALUE(found != names.end(), "quantization::", call, ": expected one of ",
                    base::quoted({names.begin(), names.end()}), ", got \"", std::string(name), "\".");
  return static_cast<Enum>(found - names.begin());
}

/// " of channel 3", or nothing where there is one scale.
std::string of_channel(bool channels, std::int64_t i) {
  return channels ? " of channel " + std::to_string(i) : "";
}

Parameters in_range(const char* call, const at::Tensor& low, const at::Tensor& high, Dtype dtype,
                    bool symmetric, std::int64_t axis) {
  const base::RecordingMode quiet;
  TORCH_CHECK_VALUE(low.defined() && high.defined() && low.sizes() == high.sizes() && low.dim() <= 1 &&
                        low.numel() > 0 && !low.is_complex() && !high.is_complex(),
                    "quantization::", call,
                    ": expected two tensors of real numbers with the same shape, [] or [channels].");
  Parameters result;
  result.dtype = dtype;
  result.low = low.detach().to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  result.high = high.detach().to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  if (low.dim() == 1) result.axis = axis;
  const at::Tensor least = result.low.clamp_max(0), largest = result.high.clamp_min(0);
  const auto first = static_cast<double>(result.quant_min()), last = static_cast<double>(result.quant_max());
  result.scale = symmetric ? at::div(at::maximum(least.neg(), largest), (last - first) / 2)
                           : at::div(at::sub(largest, least), last - first);
  const at::Tensor fits = at::logical_and(at::le(result.low, result.high), at::isfinite(result.scale));
  if (!fits.all().item<bool>()) {
    const auto i = fits.to(at::kInt).argmin().item<std::int64_t>();
    const auto bound = [i](const at::Tensor& all) { return all.reshape({-1})[i].item<float>(); };
    TORCH_CHECK_VALUE(false, "quantization::", call, ": expected a range", of_channel(low.dim() == 1, i),
                      " that is finite in float32 and not empty, got [", bound(result.low), ", ",
                      bound(result.high), "].");
  }
  result.scale = result.scale.clamp_min(std::numeric_limits<float>::epsilon());
  result.zero_point =
      (symmetric ? at::full_like(result.scale, dtype == Dtype::uint8 ? 128 : 0)
                 : at::rsub(at::round(at::div(least, result.scale)), first).clamp(first, last))
          .to(at::kInt);
  return result;
}

struct Range {
  double low, high;
};

struct Bin {
  double low, high, count;  // where low = high, that many values are equal

  double below(double x) const {
    return low >= x ? 0 : high <= x ? count : count * ((x - low) / (high - low));
  }
  double above(double x) const {
    return high <= x ? 0 : low >= x ? count : count * ((high - x) / (high - low));
  }
};

/// The finite values of a tensor or of one of its channels.
struct Distribution {
  std::vector<Bin> bins;                   // ascending; the first and the last one are in use
  double below = 0, above = 0, total = 0;  // below and above the range that was counted, and in all
  Range bounds{0, 0};
  bool exact = false;  // whether no value is beyond the bounds, even where some are beyond the bins
};

/// Reads the results of a reduction: one distribution, or one for each channel.
struct Reader {
  std::vector<Distribution> all;
  bool channels = false;

  Reader(const core::Results& results, Method method) : results_(results) {
    TORCH_CHECK_VALUE(!results.empty(), "quantization::parameters: expected the results of a reduction, got ",
                      "none, for nothing was recorded; run the model over some data first.");
    const auto [name, counts] = find("counts");
    prefix_ = name.substr(0, name.size() - std::min(name.size(), std::string("counts").size()));
    blocks_ = counts.defined() && own("sum_squares").defined();
    at::Tensor least = find("min.value").second, largest = find("max.value").second;
    if (blocks_ && own("min").defined() && own("max").defined()) {  // NaN where there is no finite value
      least = at::nan_to_num(own("min"), infinity, infinity, -infinity).amin();
      largest = at::nan_to_num(own("max"), -infinity, infinity, -infinity).amax();
    }
    const bool bounded = least.defined() && largest.defined(), outermost = method == Method::min_max;
    TORCH_CHECK_VALUE(counts.defined() || (bounded && outermost), "quantization::parameters: expected a ",
                      "histogram", outermost ? ", or Min and Max," : "", " for ", name_of(method), ", got ",
                      base::quoted(results.names()), "; record LogHistogram",
                      outermost ? " or Series(Min, Max)." : ".");
    const at::Tensor form = blocks_ ? counts.sum(0) : counts.defined() ? counts : least;
    const std::int64_t dims = form.dim() - (counts.defined() ? 1 : 0);
    TORCH_CHECK_VALUE(dims == 0 || (dims == 1 && form.size(0) > 0), "quantization::parameters: expected one ",
                      "distribution for the tensor or for each of its channels, got results of the shape ",
                      form.sizes(), "; record over_all(true), or over all dimensions but the channels'.");
    channels = dims == 1;
    all.resize(channels ? static_cast<std::size_t>(form.size(0)) : 1);
    if (counts.defined()) read_bins(form);
    read_bounds(bound(least, true), bound(largest, false));
  }

 private:
  static at::Tensor numbers(const at::Tensor& tensor) { return tensor.detach().to(at::kCPU, at::kDouble); }
  static void check(bool consistent) {
    TORCH_CHECK_VALUE(consistent, "quantization::parameters: the results of the histogram are inconsistent; ",
                      "expected counts that are not negative, and edges of as many bins that ascend.");
  }
  /// The first result of that name, whichever reductions it is inside of.
  core::Results::Entry find(const std::string& end) const {
    for (const auto& [name, tensor] : results_) {
      const auto at = name.rfind(end);
      if (at != std::string::npos && at + end.size() == name.size() && (at == 0 || name[at - 1] == '.'))
        return {name, numbers(tensor)};
    }
    return {};
  }
  /// A result of the histogram; undefined if it has no result of that name.
  at::Tensor own(const std::string& name) const {
    return results_.contains(prefix_ + name) ? numbers(results_.at(prefix_ + name)) : at::Tensor();
  }
  std::int64_t rows() const { return static_cast<std::int64_t>(all.size()); }
  /// A result for each row, `[rows, 1]`; zeros if it is absent.
  at::Tensor each(const char* name) const {
    at::Tensor found = own(name);
    if (!found.defined()) return at::zeros({rows(), 1}, at::kDouble);
    if (blocks_) found = found.sum();
    check(found.numel() == rows() && at::ge(found, 0).all().item<bool>());
    return found.reshape({rows(), 1}).contiguous();
  }

  void read_bins(const at::Tensor& form) {
    at::Tensor counts = form.reshape({rows(), -1}), low = own("low"), high = own("high");
    if (const at::Tensor edges = own("edges"); edges.defined() && edges.dim() == 1) {
      low = edges.slice(0, 0, -1);
      high = edges.slice(0, 1);
    }
    check(low.defined() && high.defined() && low.dim() == 1 && low.sizes() == high.sizes() &&
          low.size(0) == counts.size(1));
    if (own("zeros").defined()) {  // get a bin among the others
      const auto at = at::lt(low, 0).sum().item<std::int64_t>(), after = low.size(0) - at;
      const auto with = [&](const at::Tensor& of, const at::Tensor& more) {
        return at::cat({of.narrow(-1, 0, at), more, of.narrow(-1, at, after)}, -1);
      };
      counts = with(counts, each("zeros"));
      low = with(low, at::zeros({1}, at::kDouble));
      high = with(high, at::zeros({1}, at::kDouble));
    }
    const at::Tensor ends = at::stack({low, high}, 1).contiguous(), flat = ends.flatten();
    check(at::isfinite(flat).all().item<bool>() && flat.equal(std::get<0>(flat.sort())) &&
          at::ge(counts, 0).all().item<bool>());
    counts = counts.contiguous();
    const at::Tensor below = each("underflow"), above = each("overflow");
    const double* count = counts.data_ptr<double>();
    for (std::size_t row = 0; row < all.size(); ++row) {
      Distribution& of = all[row];
      of.below = below.data_ptr<double>()[row];
      of.above = above.data_ptr<double>()[row];
      of.total = of.below + of.above;
      const double* end = ends.data_ptr<double>();
      for (std::int64_t i = 0; i < low.size(0); ++i, end += 2, ++count) {
        of.total += *count;
        if (*count > 0 || !of.bins.empty() || of.below > 0) of.bins.push_back({end[0], end[1], *count});
      }
      while (!of.bins.empty() && of.bins.back().count == 0 && of.above == 0) of.bins.pop_back();
      if (of.total == of.below + of.above) of.bins.clear();
    }
  }

  /// The bound of each row; not finite where it is unknown.
  at::Tensor bound(const at::Tensor& of, bool least) const {
    if (!of.defined() || of.numel() == 0) return at::full({rows()}, infinity, at::kDouble);
    TORCH_CHECK_VALUE(!channels || (of.dim() == 1 && of.numel() == rows()),
                      "quantization::parameters: ", "expected Min and Max of each of ", rows(),
                      " channels, got the shape ", of.sizes(),
                      "; record them over the same dimensions as the histogram.");
    return (channels ? of : least ? of.amin() : of.amax()).reshape({-1}).contiguous();
  }
  void read_bounds(const at::Tensor& least, const at::Tensor& largest) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      Distribution& of = all[i];
      const double low = least.data_ptr<double>()[i], high = largest.data_ptr<double>()[i];
      of.exact = std::isfinite(low) && std::isfinite(high);
      if (!of.exact && of.bins.empty()) {
        detail::no_value(c10::str("quantization::parameters: there is no finite value",
                                  of_channel(channels, static_cast<std::int64_t>(i)),
                                  "; record other data or, if ",
                                  "infinities or NaN hide the others from Min and Max, LogHistogram."));
      }
      if (!of.bins.empty()) {
        Bin &first = of.bins.front(), &last = of.bins.back();
        if (std::isfinite(low)) first.low = std::clamp(low, first.low, first.high);
        if (std::isfinite(high)) last.high = std::clamp(high, last.low, last.high);
        of.bounds = {first.low, last.high};
      }
      if (of.exact) of.bounds = {low, high};
    }
  }

  const core::Results& results_;
  std::string prefix_;
  bool blocks_ = false;
};

/// Adds the values of a bin, which may be anywhere in it, to equal bins on [low, high].
void spread(const Bin& bin, Range range, std::vector<double>& to) {
  const double width = (range.high - range.low) / static_cast<double>(to.size());
  // Edges that differ only by rounding are the same.
  const auto index = [&](double x, double slack) {
    const double place = std::floor((x - range.low) / width + slack);
    return static_cast<std::size_t>(std::clamp(place, 0.0, static_cast<double>(to.size() - 1)));
  };
  const std::size_t first = index(bin.low, 1e-9), last = std::max(first, index(bin.high, -1e-9));
  double rest = bin.count;
  for (std::size_t i = first; i < last; ++i) {
    const double above = bin.above(range.low + width * static_cast<double>(i + 1));
    to[i] += rest - above;
    rest = above;
  }
  to[last] += rest;
}

/// The point next to `inner` among those that fit, between `outer`, which fits, and `inner`.
template <class Fits>
double innermost(double outer, double inner, const Fits& fits) {
  if (fits(inner)) return inner;
  for (int i = 0; i < 100; ++i) {
    const double middle = outer + (inner - outer) / 2;
    (fits(middle) ? outer : inner) = middle;
  }
  return outer;
}

/// Leaves out `clipped` values, those beyond the bins among them.
Range percentile(const Distribution& of, bool symmetric, double clipped) {
  const auto outside = [&](double low, double high) {
    double sum = 0;
    for (const Bin& bin : of.bins) sum += bin.below(low) + bin.above(high);
    return sum;
  };
  const auto [low, high] = of.bounds;
  if (!symmetric) {
    const double first =
        innermost(low, high, [&](double x) { return of.below + outside(x, infinity) <= clipped / 2; });
    const double last =
        innermost(high, low, [&](double x) { return of.above + outside(-infinity, x) <= clipped / 2; });
    return {std::min(first, last), std::max(first, last)};
  }
  const double most = innermost(std::max(std::abs(low), std::abs(high)), 0,
                                [&](double x) { return of.below + of.above + outside(-x, x) <= clipped; });
  return {std::max(low, -most), std::min(high, most)};
}

/// The squared error of rounding a histogram to `levels` values in the middle of equal parts of the bins
/// `first` to `last`, in units of the bins' width.
double squared_error(const std::vector<double>& counts, double first, double last, double levels) {
  const double step = (last - first + 1) / levels;
  const auto cube = [](double x) { return x * x * x; };
  const auto part = [&](double x) { return std::clamp(std::floor(x / step), 0.0, levels - 1); };
  double error = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const double begin = static_cast<double>(i) - first, end = begin + 1;
    const double from = part(begin), to = part(end);
    error += counts[i] * ((to - from) * cube(step) / 4 - cube(begin - (from + 0.5) * step) +
                          cube(end - (to + 0.5) * step));
  }
  return error;
}

/// The bins, with one value of each outermost one at the bound, if that is known: in a wide bin it may be the
/// only one.
std::vector<Bin> with_bounds(const Distribution& of) {
  std::vector<Bin> bins = of.bins;
  const auto [low, high] = of.bounds;
  const auto split = [&](Bin& bin, double end) {
    if (!of.exact || bin.low == bin.high || bin.count < 1 || end < bin.low || end > bin.high) return;
    bin.count -= 1;
    bins.push_back({end, end, 1});
  };
  bins.reserve(bins.size() + 2);  // so that references stay
  Bin &first = bins.front(), &last = bins[of.bins.size() - 1];
  split(first, low);
  split(last, high);
  return bins;
}

/// The squared error of rounding: zero is exact, and values beyond the range are clipped.
double rounding_error(const std::vector<Bin>& bins, Range range, const QuantizationOptions& options) {
  constexpr int kPoints = 16;  // in a bin
  const double levels = std::exp2(bits(options.dtype())) - 1;
  const double least = std::min(range.low, 0.0), largest = std::max(range.high, 0.0);
  const double scale =
      std::max(options.symmetric() ? std::max(-least, largest) / (levels / 2) : (largest - least) / levels,
               static_cast<double>(std::numeric_limits<float>::epsilon()));
  const double zero =
      options.symmetric() ? (levels + 1) / 2 : std::clamp(std::nearbyint(-least / scale), 0.0, levels);
  double error = 0;
  for (const Bin& bin : bins) {
    const int points = bin.low == bin.high ? 1 : kPoints;
    for (int i = 0; i < points && bin.count > 0; ++i) {
      const double x = bin.low + (bin.high - bin.low) * (i + 0.5) / points;
      const double off = x - (std::clamp(std::nearbyint(x / scale) + zero, 0.0, levels) - zero) * scale;
      error += bin.count / points * off * off;
    }
  }
  return error;
}

Range least_squares(const Distribution& of, const QuantizationOptions& options) {
  const double levels = std::exp2(bits(options.dtype()));
  const Range all = of.bounds;
  if (all.low == all.high) return all;
  // Equal bins are searched as they are.
  const double width = (all.high - all.low) / static_cast<double>(of.bins.size());
  const bool equal =
      of.bins.size() <= even_bins && std::all_of(of.bins.begin(), of.bins.end(), [&](const Bin& bin) {
        return std::abs(bin.high - bin.low - width) <= 1e-6 * width;
      });
  std::vector<double> counts(equal ? of.bins.size() : even_bins), sums;
  std::vector<double> rounded = counts;  // all but zeros, which are exact in any range
  const std::vector<Bin> bins = equal ? of.bins : with_bounds(of);
  for (const Bin& bin : bins) {
    spread(bin, all, counts);
    if (bin.low != 0 || bin.high != 0) spread(bin, all, rounded);
  }
  double total = 0;
  for (const double count : counts) sums.push_back(total += count);
  // The observer compares in float32.
  const auto less = [](double a, double b) { return static_cast<float>(a) < static_cast<float>(b); };
  std::size_t first = 0, last = counts.size() - 1, left = 0;
  double alpha = 0, beta = 1, error = infinity;
  while (alpha < beta) {
    const double next_alpha = alpha + 1e-5, next_beta = beta - 1e-5;
    left = std::clamp(left, first, last);
    std::size_t right = last;
    while (left < last && less(sums[left], next_alpha * total)) ++left;
    while (right > first && less(next_beta * total, sums[right])) --right;
    const bool from_below = left - first > last - right;
    (from_below ? alpha : beta) = from_below ? next_alpha : next_beta;
    const std::size_t new_first = from_below ? left : first, new_last = from_below ? last : right;
    if (new_first == first && new_last == last) continue;
    const double now =
        squared_error(rounded, static_cast<double>(new_first), static_cast<double>(new_last), levels);
    if (now > error) break;
    error = now;
    first = new_first;
    last = new_last;
  }
  const double step = (all.high - all.low) / static_cast<double>(counts.size());
  const Range best{all.low + step * static_cast<double>(first),
                   last + 1 == counts.size() ? all.high : all.low + step * static_cast<double>(last + 1)};
  // The search takes the first step without a comparison, and does not know that zero is exact. Wide bins
  // cannot decide between two ranges that are nearly as good.
  return !equal && rounding_error(bins, all, options) < 0.8 * rounding_error(bins, best, options) ? all
                                                                                                  : best;
}

/// The range of magnitudes whose distribution loses least if what is beyond goes to its last bin, and the
/// bins are merged to `levels` of them, by the sums that each number of bins needs.
Range least_divergence(const Distribution& of, std::size_t levels) {
  const double top = std::max(std::abs(of.bounds.low), std::abs(of.bounds.high));
  if (top == 0) return of.bounds;
  std::vector<double> counts(even_bins);
  for (const Bin& bin : of.bins) {
    const double negative = bin.below(0);
    if (negative > 0) spread({std::max(-bin.high, 0.0), -bin.low, negative}, {0, top}, counts);
    if (negative < bin.count)
      spread({std::max(bin.low, 0.0), bin.high, bin.count - negative}, {0, top}, counts);
  }
  counts[0] = counts[1];  // zeros, of which there are many, are exact in any range
  const auto x_log_x = [](double x) { return x > 0 ? x * std::log(x) : 0; };
  std::vector<double> sums{0}, used{0}, logs{0};
  for (const double count : counts) {
    sums.push_back(sums.back() + count);
    used.push_back(used.back() + (count > 0 ? 1 : 0));
    logs.push_back(logs.back() + x_log_x(count));
  }
  const double total = sums.back();
  double least = infinity;
  std::size_t best = even_bins;
  for (std::size_t n = levels; n <= even_bins; ++n) {
    const double last = counts[n - 1], clipped = total - sums[n];
    if (last == 0) continue;  // an infinite loss, unless nothing is beyond
    double loss = logs[n] - x_log_x(last) + x_log_x(last + clipped);
    for (std::size_t level = 0, from = 0; level < levels; ++level) {
      const std::size_t to = ((level + 1) * n + levels - 1) / levels;
      const double mass = sums[to] - sums[from];
      if (mass > 0) loss -= (mass + (to == n ? clipped : 0)) * std::log(mass / (used[to] - used[from]));
      from = to;
    }
    loss = loss / total + std::log(sums[n] / total);
    if (loss > least) continue;
    least = loss;
    best = n;
  }
  const double most = top * static_cast<double>(best) / static_cast<double>(even_bins);
  return {std::max(of.bounds.low, -most), std::min(of.bounds.high, most)};
}

/// `channel` says which distribution it is, for the message of an error.
Range range_of(const Distribution& of, const QuantizationOptions& options, const std::string& channel) {
  const Method method = options.method();
  if (method == Method::min_max && of.exact) return of.bounds;
  const double clipped = method == Method::percentile ? of.total * ((100 - options.percentile()) / 100) : 0;
  const double beyond = options.symmetric() ? of.below + of.above : 2 * std::max(of.below, of.above);
  TORCH_CHECK_VALUE(!of.bins.empty() && beyond <= clipped, "quantization::parameters: expected the values",
                    channel, " in the range of the histogram, got ", of.below + of.above, " of ", of.total,
                    " beyond it (infinities count as such), more than ", name_of(method),
                    " leaves out; record LogHistogram, or a Histogram whose range grows.");
  switch (method) {
    case Method::percentile:
      return percentile(of, options.symmetric(), clipped);
    case Method::mse:
      return least_squares(of, options);
    case Method::entropy:
      return least_divergence(of, std::size_t{1} << (bits(options.dtype()) - 1));
    default:
      return of.bounds;
  }
}

}  // namespace

std::string_view name_of(Dtype dtype) noexcept {
  return dtype_names[static_cast<std::size_t>(dtype)];
}

Dtype dtype_of(std::string_view name) {
  return named<Dtype>("dtype_of", dtype_names, name);
}

std::int64_t bits(Dtype dtype) noexcept {
  return dtype == Dtype::int4 ? 4 : 8;
}

std::string_view name_of(Method method) noexcept {
  return method_names[static_cast<std::size_t>(method)];
}

Method method_of(std::string_view name) {
  return named<Method>("method_of", method_names, name);
}

std::int64_t Parameters::quant_min() const noexcept {
  return dtype == Dtype::uint8 ? 0 : dtype == Dtype::int8 ? -128 : -8;
}

std::int64_t Parameters::quant_max() const noexcept {
  return quant_min() + (std::int64_t{1} << bits(dtype)) - 1;
}

at::Tensor Parameters::apply(const at::Tensor& tensor) const {
  TORCH_CHECK_VALUE(tensor.defined() && scale.defined() && zero_point.defined(),
                    "quantization::Parameters::apply: expected a tensor and parameters, got undefined ones.");
  if (!tensor.is_floating_point()) return tensor;
  const at::Tensor x = tensor.to(at::kFloat);
  if (!axis)
    return at::fake_quantize_per_tensor_affine(x, scale.item<double>(), zero_point.item<std::int64_t>(),
                                               quant_min(), quant_max())
        .to(tensor.scalar_type());
  const std::int64_t dim = *axis < 0 ? *axis + x.dim() : *axis;
  TORCH_CHECK_VALUE(dim >= 0 && dim < x.dim() && x.size(dim) == scale.numel(),
                    "quantization::Parameters::apply: expected ", scale.numel(), " channels in dimension ",
                    *axis, ", got a tensor of shape ", x.sizes(), ".");
  return at::fake_quantize_per_channel_affine(x, scale.to(x.device()), zero_point.to(x.device()), dim,
                                              quant_min(), quant_max())
      .to(tensor.scalar_type());
}

Parameters from_range(const at::Tensor& low, const at::Tensor& high, const QuantizationOptions& options) {
  return in_range("from_range", low, high, options.dtype(), options.symmetric(), options.axis());
}

Parameters parameters(const core::Results& results, const QuantizationOptions& options) {
  const base::RecordingMode quiet;
  TORCH_CHECK_VALUE(
      options.method() != Method::percentile || (options.percentile() > 0 && options.percentile() <= 100),
      "quantization::parameters: expected a percentile in (0, 100], got ", options.percentile(), ".");
  const Reader reader(results, options.method());
  const auto channels = static_cast<std::int64_t>(reader.all.size());
  at::Tensor low = at::empty({channels}, at::kDouble), high = at::empty({channels}, at::kDouble);
  for (std::int64_t i = 0; i < channels; ++i) {
    const Range range =
        range_of(reader.all[static_cast<std::size_t>(i)], options, of_channel(reader.channels, i));
    low.data_ptr<double>()[i] = range.low;
    high.data_ptr<double>()[i] = range.high;
  }
  if (!reader.channels) {
    low = low[0];
    high = high[0];
  }
  return in_range("parameters", low, high, options.dtype(), options.symmetric(), options.axis());
}

Parameters weight_parameters(const at::Tensor& weight, Dtype dtype, std::int64_t axis) {
  TORCH_CHECK_VALUE(
      weight.defined() && weight.is_floating_point() && weight.numel() > 0 && axis >= 0 &&
          axis < weight.dim(),
      "quantization::weight_parameters: expected a weight in floating point with dimension ", axis, ", got ",
      weight.defined() ? c10::str(weight.toString(), weight.sizes()) : "an undefined tensor", ".");
  const base::RecordingMode quiet;
  const at::Tensor rows = weight.detach().transpose(0, axis).reshape({weight.size(axis), -1});
  return in_range("weight_parameters", rows.amin(1), rows.amax(1), dtype, /*symmetric=*/true, axis);
}

}  // namespace torchtap::quantization
