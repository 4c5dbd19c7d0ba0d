// Tallies the cost of number formats, and estimates it from histograms.

#include <ATen/Functions.h>
#include <c10/util/DimVector.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/quantization/detail/exact_sum.hpp>
#include <torchtap/quantization/detail/format_loops.hpp>
#include <torchtap/quantization/formats.hpp>
#include <torchtap/reductions/extend/named.hpp>

namespace torchtap::quantization {
namespace {

using detail::ExactSum;
using detail::FormatLoop;
using detail::FormatTally;
using detail::NumberFormat;
using detail::ValueTally;

constexpr std::int64_t kOwnCounts = 3;     // counts of the numbers themselves: zeros, NaN, infinities
constexpr std::int64_t kFormatCounts = 3;  // counts of each format
constexpr std::int64_t kPart = 65536;      // numbers that are tallied at a time, a multiple of all blocks
constexpr std::size_t kMostFormats = 9;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(),
                 kInfinity = std::numeric_limits<double>::infinity();

double decibels(double signal, double noise) {
  if (noise == 0) return signal == 0 ? kNaN : kInfinity;
  return 10 * std::log10(signal / noise);
}

[[maybe_unused]] const bool enabled = (enable_formats(), true);

}  // namespace

void enable_formats() {
  static const bool once = [] {
    reductions::extend::add_to_catalogue(
        {{"Formats", "formats[:NAME…]",
          "the loss of rounding to formats such as e4m3 and int8; the seven usual ones unless given"},
         0,
         kMostFormats,
         [](const reductions::extend::Arguments& given, const reductions::ParseOptions& rows) {
           FormatsOptions options = given.empty() ? FormatsOptions() : FormatsOptions(given);
           return reductions::Any(Formats(options.over(rows.over()).over_all(rows.over_all())));
         },
         [] { return reductions::Any(Formats()); }});
    return true;
  }();
  static_cast<void>(once);
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const auto& format : detail::number_formats()) names.emplace_back(format.name);
  return names;
}

FormatsOptions::FormatsOptions() : formats_(format_names()) {
  formats_.resize(7);
}

FormatsOptions& FormatsOptions::scale(const std::string& format, double scale) {
  scales_[format] = scale;
  return *this;
}

/// A sample as [outer, kept, inner], of which the kept elements stay. Blocks lie in rows of `width` numbers.
struct Formats::Form {
  Form(at::IntArrayRef sizes, const reductions::extend::Folding& folding) {
    const auto dim = static_cast<std::int64_t>(sizes.size());
    const auto keeps = [&](std::int64_t i) {
      const auto is = [&](std::int64_t over) { return over == i || over + dim == i; };
      return !folding.over_all && std::none_of(folding.over.begin(), folding.over.end(), is);
    };
    std::int64_t first = dim, last = -1, all = 0;
    for (std::int64_t i = 0; i < dim; ++i) {
      if (!keeps(i)) continue;
      first = std::min(first, i);
      last = i;
      ++all;
    }
    keeps_last = dim != 0 && last == dim - 1;
    const bool in_order = all == 0 || (last - first + 1 == all && (!keeps_last || first == 0));
    for (std::int64_t i = 0; i < dim; ++i)
      (keeps(i) ? kept : in_order && i < last ? outer : inner) *= sizes[static_cast<std::size_t>(i)];
    width = dim == 0 || keeps_last ? inner : sizes.back();
    for (const bool kept : {true, false}) {
      for (std::int64_t i = 0; i < dim && !in_order; ++i) {
        if (keeps(i) == kept) order.push_back(i);
      }
    }
  }

  std::int64_t outer = 1, kept = 1, inner = 1, width = 1;
  bool keeps_last;
  c10::DimVector order;  // of the dimensions, if they have to be moved
};

Formats::Formats(FormatsOptions options)
    : Reduction(reductions::extend::Intake("Formats", options.folding(), reductions::extend::Accepts::real)),
      names_(options.formats()) {
  for (const auto& name : names_) {
    const auto given = options.scales().find(name);
    scales_.push_back(
        given == options.scales().end() ? 1 : static_cast<double>(static_cast<float>(given->second)));
  }
  for (const auto& [name, scale] : options.scales()) {
    TORCH_CHECK_VALUE(std::count(names_.begin(), names_.end(), name) == 1, "Formats: there is a scale for \"",
                      name, "\", which is not among the formats.");
  }
  set_loops();
}

/// Checks the formats and their scales.
void Formats::set_loops() {
  std::vector<FormatLoop> loops;
  has_blocks_ = asks_ = false;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const NumberFormat& format = detail::number_format(names_[i]);
    const double scale = scales_[i];
    TORCH_CHECK_VALUE(std::count(names_.begin(), names_.end(), names_[i]) == 1, "Formats: \"", names_[i],
                      "\" is there twice; name each format once.");
    TORCH_CHECK_VALUE(scale == 1 || format.scaling == NumberFormat::Scale::given, "Formats: \"", names_[i],
                      "\" finds the scale of each block itself; give it none.");
    TORCH_CHECK_VALUE(scale >= 0x1p-60 && scale <= 0x1p60,
                      "Formats: expected a scale from 2^-60 to 2^60 for \"", names_[i], "\", got ", scale,
                      ".");
    loops.emplace_back(format, static_cast<float>(scale));
    has_blocks_ = has_blocks_ || format.scaling != NumberFormat::Scale::given;
    asks_ = asks_ || format.scaling == NumberFormat::Scale::nv;
  }
  TORCH_CHECK_VALUE(!loops.empty(),
                    "Formats: expected at least one format; leave them out for the usual ones.");
  loops_ = std::make_shared<const std::vector<FormatLoop>>(std::move(loops));
}

std::int64_t* Formats::counts(std::int64_t kept) const {
  return counts_->data_ptr<std::int64_t>() + kept * counts_->size(1);
}

std::int32_t* Formats::sums(std::int64_t kept) const {
  return sums_->data_ptr<std::int32_t>() + kept * sums_->size(1) * ExactSum::kDigits;
}

void Formats::ask(reductions::Pass& pass) const {
  if (asks_) pass.ask_total({});
}

void Formats::check_sample(const reductions::Pass& pass) const {
  Reduction::check_sample(pass);
  check_blocks(pass.sample());
}

void Formats::check_blocks(const at::Tensor& sample) const {
  TORCH_CHECK_VALUE(!has_blocks_ || !Form(sample.sizes(), intake_.folding()).keeps_last, describe(),
                    ": blocks lie along the last dimension, which is kept of a sample of shape ",
                    sample.sizes(), "; fold it, as over_all(true) does, or give formats without blocks.");
}

/// Of a plain sample like those before no operation of ATen is needed.
void Formats::fold(const reductions::Pass& pass) {
  const at::Tensor& sample = pass.sample();
  const Form form(sample.sizes(), intake_.folding());
  const auto abs_max = [&](const at::Tensor& converted) {
    if (!asks_) return 0.0F;
    const reductions::Summary total = pass.total();
    const double most = total.taken == 0 ? 0 : std::max(std::abs(total.min), std::abs(total.max));
    if (std::isfinite(static_cast<float>(most))) return static_cast<float>(most);
    // float64 that became infinite, and does not count
    return at::nan_to_num(converted.abs(), 0, 0, 0).max().item<float>();
  };
  const auto known = intake_.fitting_rows(pass);
  const bool plain = sample.scalar_type() == at::kFloat && form.order.empty() && sample.is_contiguous() &&
                     !sample.is_neg() && !sample._is_zerotensor();
  if (known && plain && !(has_blocks_ && form.keeps_last)) {
    const bool one_chunk = form.outer * form.kept == 1 && sample.numel() <= detail::kFormatChunk;
    tally(sample.data_ptr<float>(), form, one_chunk ? -1 : abs_max(sample));
    return intake_.count_rows(*known);
  }
  const base::RecordingMode quiet;
  const reductions::extend::Rows rows = intake_.open(sample);
  check_blocks(sample);
  if (rows.count == 0) return;
  at::Tensor x = sample.to(at::kCPU, at::kFloat);
  if (x.is_neg() || x._is_zerotensor()) x = reductions::extend::own_copy(x);
  x = (form.order.empty() ? x : x.permute(form.order)).contiguous();
  if (count() == 0) {
    const auto formats = static_cast<std::int64_t>(names_.size());
    counts_ = at::zeros({form.kept, kOwnCounts + kFormatCounts * formats}, at::kLong);
    sums_ = at::zeros({form.kept, 1 + formats, ExactSum::kDigits}, at::kInt);
    abs_max_ = at::zeros({form.kept}, at::kFloat);
  }
  if (x.numel() != 0) tally(x.data_ptr<float>(), form, abs_max(x));
  intake_.commit(rows);
}

/// Threads share out parts of rows and groups of rows, in any order, as sums are exact.
void Formats::tally(const float* x, const Form& form, float abs_max) {
  const std::int64_t together = std::max<std::int64_t>(1, kPart / form.width);  // rows of a part
  const std::int64_t cuts = (form.width + kPart - 1) / kPart, rows = form.inner / form.width;
  const std::int64_t parts = (rows + together - 1) / together * cuts;
  std::mutex mutex;
  const auto each = [&](std::int64_t i) {
    const std::int64_t piece = i / parts, kept = piece % form.kept;
    const std::int64_t row = i % parts / cuts * together, cut = i % cuts * kPart;
    ValueTally values;
    std::array<FormatTally, kMostFormats> tallies;
    detail::tally_formats(*loops_, x + piece * form.inner + row * form.width + cut,
                          std::min(together, rows - row), std::min(kPart, form.width - cut), abs_max, values,
                          tallies.data());
    const std::lock_guard lock(mutex);
    std::int64_t* counts = this->counts(kept);
    std::int32_t* sums = this->sums(kept);
    counts[0] += values.zeros;
    counts[1] += values.nan;
    counts[2] += values.infinities;
    float& most = abs_max_->data_ptr<float>()[kept];
    most = std::max(most, values.abs_max);
    ExactSum::add(sums, values.squares);
    for (std::size_t f = 0; f < loops_->size(); ++f) {
      counts += kFormatCounts;
      counts[0] += tallies[f].underflow;
      counts[1] += tallies[f].subnormal;
      counts[2] += tallies[f].overflow;
      ExactSum::add(sums += ExactSum::kDigits, tallies[f].squared_error);
    }
  };
  const std::int64_t all = form.outer * form.kept * parts;
  if (all == 1) return each(0);
  // A function object of one pointer, which needs no memory of its own.
  reductions::extend::parallel(all, form.outer * form.kept * form.inner,
                               [&each](std::int64_t begin, std::int64_t end) {
                                 for (std::int64_t i = begin; i < end; ++i) each(i);
                               });
}

void Formats::merge(const Formats& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (count() == 0) {
    *this = other;
    return;
  }
  counts_->add_(*other.counts_);
  at::maximum_out(*abs_max_, *abs_max_, *other.abs_max_);
  for (std::int64_t i = 0; i < sums_->numel(); i += ExactSum::kDigits)
    ExactSum::merge(sums(0) + i, other.sums(0) + i);
  intake_.merge(other.intake_);
}

core::Results Formats::results() const {
  if (count() == 0) return {};
  const base::RecordingMode quiet;
  core::Results results;
  const auto set = [&](const std::string& name, auto of) {
    using T = decltype(of(0));
    at::Tensor table = at::empty(intake_.kept(), c10::CppTypeToScalarType<T>::value);
    for (std::int64_t k = 0; k < table.numel(); ++k) table.data_ptr<T>()[k] = of(k);
    results.set(name, table);
  };
  const auto finite = [&](std::int64_t k) {
    const std::int64_t n = count() - counts(k)[1] - counts(k)[2];
    return n == 0 ? kNaN : static_cast<double>(n);
  };
  const auto squares = [&](std::int64_t k, std::int64_t which) {
    return ExactSum::value(sums(k) + which * ExactSum::kDigits);
  };
  const auto abs_max = [&](std::int64_t k) { return abs_max_->data_ptr<float>()[k]; };
  set("zeros", [&](std::int64_t k) { return counts(k)[0]; });
  set("nan", [&](std::int64_t k) { return counts(k)[1]; });
  set("infinities", [&](std::int64_t k) { return counts(k)[2]; });
  set("abs_max", abs_max);
  set("mean_square", [&](std::int64_t k) { return squares(k, 0) / finite(k); });
  std::int64_t at = kOwnCounts, which = 1;
  for (const auto& format : names_) {
    for (const char* const share : {".underflow", ".subnormal", ".overflow"}) {
      set(format + share, [&](std::int64_t k) { return static_cast<double>(counts(k)[at]) / finite(k); });
      ++at;
    }
    set(format + ".mse", [&](std::int64_t k) { return squares(k, which) / finite(k); });
    set(format + ".sqnr", [&](std::int64_t k) { return decibels(squares(k, 0), squares(k, which)); });
    ++which;
    const NumberFormat& of = detail::number_format(format);
    if (of.scaling == NumberFormat::Scale::given)
      set(format + ".scale", [&](std::int64_t k) { return static_cast<double>(abs_max(k)) / of.max; });
  }
  return results;
}

std::string Formats::describe() const {
  std::string text;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    text += (text.empty() ? "" : ", ") + names_[i];
    if (scales_[i] != 1) text += " / " + reductions::extend::to_text(scales_[i]);
  }
  return intake_.describe(text);
}

Formats Formats::fresh() const {
  Formats fresh = *this;
  fresh.intake_ = intake_.fresh();
  fresh.counts_ = fresh.sums_ = fresh.abs_max_ = {};
  return fresh;
}

void Formats::restored() {
  const auto formats = static_cast<std::int64_t>(names_.size());
  const std::int64_t kept = intake_.kept_numel();
  intake_.check_restored(names_.size() == scales_.size());
  set_loops();
  const auto is = [&](const reductions::extend::Owned& tensor, at::IntArrayRef sizes, c10::ScalarType dtype) {
    if (count() == 0) return !tensor;
    return tensor && tensor->sizes() == sizes && tensor->scalar_type() == dtype &&
           tensor->device().is_cpu() && tensor->is_contiguous();
  };
  intake_.check_restored(is(counts_, {kept, kOwnCounts + kFormatCounts * formats}, at::kLong) &&
                         is(sums_, {kept, 1 + formats, ExactSum::kDigits}, at::kInt) &&
                         is(abs_max_, {kept}, at::kFloat));
}

namespace {

/// The finite counts of a histogram by magnitude.
struct Magnitudes {
  struct Bin {
    double low, high, count;
  };
  std::vector<Bin> bins;
  double all = 0;  // with zeros
  double most = 0;

  Magnitudes(const core::Results& histogram) {
    const auto numbers = [&](const char* name) {
      TORCH_CHECK_VALUE(histogram.contains(name),
                        "format_cost: expected results of a LogHistogram, which have \"", name, "\".");
      return histogram.at(name).to(at::kCPU, at::kDouble).reshape({-1});
    };
    const at::Tensor low = numbers("low").abs(), high = numbers("high").abs();
    const at::Tensor counts = numbers("counts").reshape({-1, low.numel()}).sum(0);
    all = counts.sum().item<double>() + numbers("zeros").sum().item<double>();
    for (std::int64_t i = 0; i < low.numel(); ++i) {
      const double one = low.data_ptr<double>()[i], other = high.data_ptr<double>()[i];
      bins.push_back({std::min(one, other), std::max(one, other), counts.data_ptr<double>()[i]});
      most = std::max(most, bins.back().high);
    }
  }
};

const NumberFormat& without_blocks(const std::string& name) {
  const NumberFormat& format = detail::number_format(name);
  TORCH_CHECK_VALUE(format.scaling == NumberFormat::Scale::given, "format_cost: \"", name,
                    "\" has blocks of neighbours, which a histogram does not know; record with Formats.");
  return format;
}

FormatCost cost_of(const NumberFormat& format, const Magnitudes& values, double scale) {
  constexpr int kPoints = 16;  // of a bin
  const double normal = std::ldexp(1.0, format.min_exponent);
  FormatCost cost;
  double signal = 0, noise = 0, place = 0;
  for (const auto& bin : values.bins) {
    const double share = bin.count / values.all, low = bin.low / scale, width = bin.high / scale - low;
    double none = 0, *const kinds[] = {&cost.underflow, &cost.subnormal, &none, &cost.overflow};
    const auto kind = [&](double rounded) {
      return rounded == 0 ? 0 : rounded < normal ? 1 : rounded <= format.max ? 2 : 3;
    };
    if (kind(format.rounded(low)) != kind(format.rounded(low + width))) cost.bound += share;
    for (int i = 0; i < kPoints; ++i) {
      // Steps of the golden ratio spread points evenly, and not as the format's numbers lie.
      place = std::fmod(place + 0.6180339887498949, 1);
      const double x = low + width * place, rounded = format.rounded(x);
      const double error = x - std::min(rounded, format.max);
      *kinds[kind(rounded)] += share / kPoints;
      signal += bin.count * x * x;
      noise += bin.count * error * error;
    }
  }
  cost.sqnr = decibels(signal, noise);
  return cost;
}

}  // namespace

FormatCost format_cost(const std::string& format, const core::Results& histogram, double scale) {
  TORCH_CHECK_VALUE(scale > 0 && std::isfinite(scale), "format_cost: expected a positive scale, got ", scale,
                    ".");
  const NumberFormat& to = without_blocks(format);
  return cost_of(to, histogram, scale);
}

double largest_scale(const std::string& format, const core::Results& histogram) {
  const NumberFormat& to = without_blocks(format);
  const double most = Magnitudes(histogram).most;
  return most == 0 ? 1 : most / to.max;
}

double best_scale(const std::string& format, const core::Results& histogram) {
  const NumberFormat& to = without_blocks(format);
  const Magnitudes values(histogram);
  const double largest = largest_scale(format, histogram);
  double best = largest, most = -kInfinity;
  for (int i = 0; i <= 24; ++i) {
    const double scale = largest * std::exp2(-i / 4.0), sqnr = cost_of(to, values, scale).sqnr;
    if (!(sqnr > most)) continue;
    most = sqnr;
    best = scale;
  }
  return best;
}

}  // namespace torchtap::quantization
