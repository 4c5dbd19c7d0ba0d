// Tallies what formats would cost, and estimates it from histograms.

#include <ATen/Functions.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>

#include <torchtap/base/of_thread.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/reductions/detail/exact_sum.hpp>
#include <torchtap/reductions/detail/format_loops.hpp>
#include <torchtap/reductions/detail/infinity.hpp>
#include <torchtap/reductions/detail/reader.hpp>
#include <torchtap/reductions/detail/small.hpp>
#include <torchtap/reductions/formats.hpp>

namespace torchtap::reductions {
namespace {

using detail::ExactSum;
using detail::FloatFormat;
using detail::FormatLoop;
using detail::FormatTally;
using detail::kInfinity;
using detail::kNaN;
using detail::ValueTally;

constexpr std::int64_t kOwnCounts = 3;        // counts of the numbers themselves: zeros, NaN, infinities
constexpr std::int64_t kFormatCounts = 3;     // counts of each format
constexpr std::int64_t kFormatPiece = 65536;  // numbers that are tallied at a time
constexpr std::size_t kUsualFormats = 7;      // formats unless others are given

double decibels(double signal, double noise) {
  if (noise == 0) return signal == 0 ? kNaN : kInfinity;
  return 10 * std::log10(signal / noise);
}

}  // namespace

std::vector<std::string> formats() {
  std::vector<std::string> names;
  for (const auto& format : detail::float_formats()) names.emplace_back(format.name);
  return names;
}

FormatsOptions::FormatsOptions() : formats_(reductions::formats()) {
  formats_.resize(kUsualFormats);
}

FormatsOptions::FormatsOptions(std::vector<std::string> formats) : formats_(std::move(formats)) {}

FormatsOptions& FormatsOptions::scale(const std::string& format, double scale) {
  scales_[format] = scale;
  return *this;
}

/// How a contiguous sample lies in memory: pieces that belong to one kept element each, or, as columns, have
/// one for each number.
struct Formats::Shape {
  /// A dimension before the pieces, and how far apart its kept elements are; 0 if it is folded.
  struct Dim {
    std::int64_t size, step, numbers;
  };

  Shape(c10::ScalarType type, const void* data, at::IntArrayRef sizes, const detail::Folding& folding)
      : type(type), data(static_cast<const char*>(data)) {
    const auto dim = static_cast<std::int64_t>(sizes.size());
    const auto keeps = [&](std::int64_t i) {
      return !folding.over_all &&
             std::none_of(folding.over.begin(), folding.over.end(),
                          [&](std::int64_t over) { return over == i || over + dim == i; });
    };
    width = dim == 0 ? 1 : sizes.back();
    columns = keeps(dim - 1);
    std::int64_t i = dim - 1;
    for (; i >= 0 && keeps(i) == columns; --i) piece *= sizes[static_cast<std::size_t>(i)];
    std::int64_t step = columns ? piece : 1;
    numel = piece;
    for (; i >= 0; --i) {
      const std::int64_t size = sizes[static_cast<std::size_t>(i)];
      dims.insert(dims.begin(), Dim{size, keeps(i) ? step : 0, numel});
      if (keeps(i)) step *= size;
      numel *= size;
    }
    // Folded dimensions last: what is summed for a column belongs to one kept element for longer.
    std::partition(dims.begin(), dims.end(), [](const Dim& one) { return one.step != 0; });
  }

  /// Where a piece begins, and its (first) kept element.
  std::pair<std::int64_t, std::int64_t> at(std::int64_t index) const {
    std::int64_t number = 0, kept = 0;
    for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
      const std::int64_t i = index % dim->size;
      index /= dim->size;
      number += i * dim->numbers;
      kept += i * dim->step;
    }
    return {number, kept};
  }
  detail::FormatRows rows(std::int64_t number, std::int64_t rows, std::int64_t row_width) const {
    return {type, data + number * static_cast<std::int64_t>(c10::elementSize(type)), rows, row_width};
  }

  c10::ScalarType type;
  const char* data;
  c10::SmallVector<Dim, 4> dims;
  std::int64_t numel = 1, piece = 1, width = 1;  // numbers, of a piece, of a row of the sample
  bool columns = false;
};

Formats::Formats(FormatsOptions options)
    : Reduction(detail::Intake("Formats", options.folding(), detail::Accepts::real)),
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
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const FloatFormat& format = detail::find_float_format(names_[i]);
    const double scale = scales_[i];
    TORCH_CHECK_VALUE(std::count(names_.begin(), names_.end(), names_[i]) == 1, "Formats: \"", names_[i],
                      "\" is there twice; name each format once.");
    TORCH_CHECK_VALUE(scale == 1 || format.scaling == FloatFormat::Scale::given, "Formats: \"", names_[i],
                      "\" finds the scale of each block itself; give it none.");
    TORCH_CHECK_VALUE(scale >= 0x1p-60 && scale <= 0x1p60,
                      "Formats: expected a scale from 2^-60 to 2^60 for \"", names_[i], "\", got ", scale,
                      ".");
    loops.emplace_back(format, static_cast<float>(scale));
  }
  TORCH_CHECK_VALUE(!loops.empty(),
                    "Formats: expected at least one format; leave them out for the usual ones.");
  asks_ = std::any_of(loops.begin(), loops.end(),
                      [](const FormatLoop& format) { return format.scaling == FloatFormat::Scale::nv; });
  loops_ = std::make_shared<const std::vector<FormatLoop>>(std::move(loops));
}

void Formats::start(std::int64_t kept) {
  const auto formats = static_cast<std::int64_t>(names_.size());
  const auto zeros = [](at::IntArrayRef sizes, c10::ScalarType dtype) {
    return at::zeros(sizes, at::TensorOptions().dtype(dtype));
  };
  counts_ = zeros({kept, kOwnCounts + kFormatCounts * formats}, at::kLong);
  sums_ = zeros({kept, 1 + formats, ExactSum::kDigits}, at::kInt);
  abs_max_ = zeros({kept}, at::kFloat);
}

std::int64_t* Formats::counts(std::int64_t kept) const {
  return counts_->data_ptr<std::int64_t>() + kept * counts_->size(1);
}

std::int32_t* Formats::sums(std::int64_t kept) const {
  return sums_->data_ptr<std::int32_t>() + kept * sums_->size(1) * ExactSum::kDigits;
}

namespace {

/// The largest finite magnitude, as a float32.
float abs_max_of(const Summary& total) {
  const double most = total.taken == 0 ? 0 : std::max(std::abs(total.min), std::abs(total.max));
  return static_cast<float>(std::min(most, static_cast<double>(std::numeric_limits<float>::max())));
}

/// Adds tallies to the state of a kept element.
void give(const ValueTally& values, const std::vector<FormatTally>& tallies, std::int64_t* counts,
          std::int32_t* sums, float& abs_max) {
  counts[0] += values.zeros;
  counts[1] += values.nan;
  counts[2] += values.infinities;
  abs_max = std::max(abs_max, values.abs_max);
  ExactSum::add(sums, values.squares);
  for (const FormatTally& tally : tallies) {
    counts += kFormatCounts;
    counts[0] += tally.underflow;
    counts[1] += tally.subnormal;
    counts[2] += tally.overflow;
    sums += ExactSum::kDigits;
    ExactSum::add(sums, tally.squared_error);
  }
}

}  // namespace

void Formats::ask(Pass& pass) const {
  if (asks_) pass.ask_total({});
}

/// A small sample like those before, without ATen. Returns false for any other sample, and does nothing then.
bool Formats::fold_small(const Pass& pass) {
  const detail::KernelPass& kernels = detail::kernels_of(pass);
  const auto rows = intake_.fitting_rows(pass);
  if (!rows || kernels.memory() == nullptr) return false;
  const auto total = asks_ ? kernels.answer_total() : Summary();
  if (!total) return false;
  fold({kernels.type(), kernels.memory()->data, kernels.sizes(), intake_.folding()}, abs_max_of(*total));
  intake_.count_rows(*rows);
  return true;
}

void Formats::fold(const Pass& pass) {
  if (fold_small(pass)) return;
  const base::RecordingMode quiet;
  const detail::Rows rows = intake_.open(pass.sample());
  if (rows.count == 0) return;
  at::Tensor x = pass.sample().to(at::kCPU);
  x = x.is_neg() || x._is_zerotensor() ? detail::own_copy(x) : x.contiguous();
  if (!detail::is_small_type(x.scalar_type())) x = x.to(at::kFloat);
  if (count() == 0) {
    std::int64_t kept = 1;
    for (const auto size : rows.kept()) kept *= size;
    start(kept);
  }
  if (x.numel() != 0) {
    fold({x.scalar_type(), x.data_ptr(), x.sizes(), intake_.folding()}, asks_ ? abs_max_of(pass.total()) : 0);
  }
  intake_.commit(rows);
}

/// Threads share out parts: of pieces that belong to one kept element, rows or pieces of rows, in any order,
/// as sums are exact; of columns, kept elements, whose sum over one sample is in the order of its rows.
void Formats::fold(const Shape& shape, float abs_max) {
  const std::int64_t most = shape.columns ? detail::FormatColumns::kMost : kFormatPiece;
  const bool cut =
      shape.columns || shape.width > most;  // each row into parts; otherwise a part has several rows
  const std::int64_t of_row = (shape.width + most - 1) / most;
  const std::int64_t in_part = most / std::min(shape.width, most) * shape.width;
  const std::int64_t parts = cut ? shape.piece / shape.width * of_row : (shape.piece + in_part - 1) / in_part;
  std::int64_t together = 1;  // pieces whose numbers belong to the same kept elements
  for (const auto& dim : shape.dims) together *= shape.columns && dim.step == 0 ? dim.size : 1;
  std::array<std::mutex, 64> mutexes;
  const auto each = [&](std::int64_t i) {
    const std::int64_t group = i / parts * together, part = i % parts;
    const std::int64_t first = cut ? part / of_row * shape.width + part % of_row * most : part * in_part;
    const std::int64_t n =
        cut ? std::min(most, shape.width - part % of_row * most) : std::min(in_part, shape.piece - first);
    const auto [number, kept] = shape.at(group);
    auto& tallies = base::of_thread<std::vector<FormatTally>, Formats>();
    tallies.assign(loops_->size(), {});
    if (!shape.columns) {
      ValueTally values;
      const std::int64_t width = cut ? n : shape.width;
      detail::format_loops().tally(*loops_, shape.rows(number + first, n / width, width), abs_max, values,
                                   tallies.data());
      const std::lock_guard lock(mutexes[static_cast<std::size_t>(kept) % mutexes.size()]);
      return give(values, tallies, counts(kept), sums(kept), abs_max_->data_ptr<float>()[kept]);
    }
    auto& columns = base::of_thread<detail::FormatColumns, Formats>();
    columns.clear(loops_->size(), n);
    for (std::int64_t row = 0; row < together; ++row)
      detail::format_loops().add_row(*loops_, shape.rows(shape.at(group + row).first + first, 1, n), abs_max,
                                     columns);
    for (std::int64_t c = 0, to = kept + first; c < n; ++c, ++to) {
      for (std::size_t f = 0; f < tallies.size(); ++f) {
        const auto& of = columns.of_formats[f];
        tallies[f] = {of.squared_error[c], of.underflow[c], of.subnormal[c], of.overflow[c]};
      }
      give({columns.squares[c], columns.abs_max[c], columns.zeros[c], columns.nan[c], columns.infinities[c]},
           tallies, counts(to), sums(to), abs_max_->data_ptr<float>()[to]);
    }
  };
  // A function object of one pointer, which needs no memory of its own.
  detail::parallel(shape.numel / shape.piece / together * parts, shape.numel,
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
  const std::int64_t sums = sums_->numel() / ExactSum::kDigits;
  for (std::int64_t i = 0; i < sums; ++i)
    ExactSum::merge(this->sums(0) + i * ExactSum::kDigits, other.sums(0) + i * ExactSum::kDigits);
  intake_.merge(other.intake_);
}

core::Results Formats::results() const {
  if (count() == 0) return {};
  const base::RecordingMode quiet;
  const std::int64_t kept = intake_.kept_numel();
  core::Results results;
  const auto set = [&](const std::string& name, auto of) {
    using T = decltype(of(0));
    at::Tensor table = detail::empty(intake_.kept(), c10::CppTypeToScalarType<T>::value);
    T* const to = table.data_ptr<T>();
    for (std::int64_t k = 0; k < kept; ++k) to[k] = of(k);
    results.set(name, table);
  };
  const auto finite = [&](std::int64_t k) {
    const std::int64_t n = count() - counts(k)[1] - counts(k)[2];
    return n == 0 ? kNaN : static_cast<double>(n);
  };
  const auto squares = [&](std::int64_t k, std::int64_t which) {
    return ExactSum::value(sums(k) + which * ExactSum::kDigits);
  };
  set("zeros", [&](std::int64_t k) { return counts(k)[0]; });
  set("nan", [&](std::int64_t k) { return counts(k)[1]; });
  set("infinities", [&](std::int64_t k) { return counts(k)[2]; });
  set("abs_max", [&](std::int64_t k) { return abs_max_->data_ptr<float>()[k]; });
  set("mean_square", [&](std::int64_t k) { return squares(k, 0) / finite(k); });
  for (std::size_t f = 0; f < names_.size(); ++f) {
    const std::string name = names_[f] + ".";
    const auto which = static_cast<std::int64_t>(f) + 1;
    std::int64_t at = kOwnCounts + kFormatCounts * (which - 1);
    for (const char* const share : {"underflow", "subnormal", "overflow"}) {
      set(name + share, [&](std::int64_t k) { return static_cast<double>(counts(k)[at]) / finite(k); });
      ++at;
    }
    set(name + "mse", [&](std::int64_t k) { return squares(k, which) / finite(k); });
    set(name + "sqnr", [&](std::int64_t k) { return decibels(squares(k, 0), squares(k, which)); });
    const FloatFormat& format = detail::find_float_format(names_[f]);
    if (format.scaling != FloatFormat::Scale::given) continue;
    set(name + "scale",
        [&](std::int64_t k) { return static_cast<double>(abs_max_->data_ptr<float>()[k]) / format.max; });
  }
  return results;
}

std::string Formats::describe() const {
  std::string text;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    text += (text.empty() ? "" : ", ") + names_[i];
    if (scales_[i] != 1) text += " / " + detail::to_text(scales_[i]);
  }
  return intake_.describe(text);
}

Formats Formats::fresh() const {
  Formats fresh;
  fresh.names_ = names_;
  fresh.scales_ = scales_;
  fresh.loops_ = loops_;
  fresh.asks_ = asks_;
  fresh.intake_ = intake_.fresh();
  return fresh;
}

void Formats::restored() {
  intake_.check_restored(names_.size() == scales_.size());
  set_loops();
  if (count() == 0) return intake_.check_restored(!counts_ && !sums_ && !abs_max_);
  const auto formats = static_cast<std::int64_t>(names_.size());
  const std::int64_t kept = intake_.kept_numel();
  const auto is = [](const detail::Owned& tensor, at::IntArrayRef sizes, c10::ScalarType dtype) {
    return tensor && tensor->sizes() == sizes && tensor->scalar_type() == dtype &&
           tensor->device().is_cpu() && tensor->is_contiguous();
  };
  intake_.check_restored(is(counts_, {kept, kOwnCounts + kFormatCounts * formats}, at::kLong) &&
                         is(sums_, {kept, 1 + formats, ExactSum::kDigits}, at::kInt) &&
                         is(abs_max_, {kept}, at::kFloat));
  const base::RecordingMode quiet;
  intake_.check_restored(at::ge(*counts_, 0).all().item<bool>() &&
                         at::le(*counts_, count()).all().item<bool>() &&
                         at::isfinite(*abs_max_).all().item<bool>());
}

namespace {

/// The finite counts of a histogram by magnitude, ascending.
struct Magnitudes {
  struct Bin {
    double low, high, count;
  };
  std::vector<Bin> bins;
  double all = 0;  // with zeros

  Magnitudes(const core::Results& histogram) {
    const auto numbers = [&](const char* name) {
      TORCH_CHECK_VALUE(histogram.contains(name),
                        "format_cost: expected results of a LogHistogram, which have \"", name, "\".");
      const at::Tensor tensor = histogram.at(name).to(at::kCPU, at::kDouble).contiguous();
      return std::vector<double>(tensor.data_ptr<double>(), tensor.data_ptr<double>() + tensor.numel());
    };
    const auto low = numbers("low"), high = numbers("high"), counts = numbers("counts");
    for (const double zeros : numbers("zeros")) all += zeros;
    for (std::size_t i = 0; i < low.size(); ++i) {
      double count = 0;
      for (std::size_t j = i; j < counts.size(); j += low.size()) count += counts[j];
      bins.push_back({std::min(std::abs(low[i]), std::abs(high[i])),
                      std::max(std::abs(low[i]), std::abs(high[i])), count});
      all += count;
    }
    std::sort(bins.begin(), bins.end(), [](const Bin& a, const Bin& b) { return a.high < b.high; });
  }
};

const FloatFormat& without_blocks(const std::string& name) {
  const FloatFormat& format = detail::find_float_format(name);
  TORCH_CHECK_VALUE(format.scaling == FloatFormat::Scale::given, "format_cost: \"", name,
                    "\" has blocks of neighbours, which a histogram does not know; record with Formats.");
  return format;
}

FormatCost cost_of(const FloatFormat& format, const Magnitudes& values, double scale) {
  constexpr int kPoints = 16;  // of a bin
  const FormatLoop loop(format);
  FormatCost cost;
  double signal = 0, noise = 0, most = 0;
  for (const auto& bin : values.bins) {
    const double low = bin.low / scale, high = bin.high / scale;
    /// The count of the values below a threshold.
    const auto below = [&](float threshold) {
      const double part = (static_cast<double>(threshold) - low) / (high - low);
      if (part > 0 && part < 1) cost.bound += bin.count / values.all;
      return bin.count * std::clamp(part, 0.0, 1.0);
    };
    const double zero = below(loop.underflow), small = format.whole ? zero : below(loop.normal);
    cost.underflow += zero / values.all;
    cost.subnormal += (small - zero) / values.all;
    cost.overflow += (bin.count - below(loop.large)) / values.all;
    for (int i = 0; i < kPoints; ++i) {
      const double x = low + (high - low) * (i + 0.5) / kPoints;
      const double error = x - std::min(format.rounded(x), format.max), unit = format.quantum(x);
      const bool fine =
          x < format.max && 4 * unit <= high - low;  // errors between points are spread evenly, too
      signal += bin.count * x * x;
      noise += bin.count * (fine ? unit * unit / 12 : error * error);
    }
    const double half = std::max(std::min(format.quantum(high) / 2, high), high - format.max);
    most += kPoints * bin.count * half * half;
  }
  cost.sqnr = decibels(signal, noise);
  cost.least_sqnr = decibels(signal, most);
  return cost;
}

}  // namespace

FormatCost format_cost(const std::string& format, const core::Results& histogram, double scale) {
  TORCH_CHECK_VALUE(scale > 0 && std::isfinite(scale), "format_cost: expected a positive scale, got ", scale,
                    ".");
  const FloatFormat& to = without_blocks(format);
  return cost_of(to, Magnitudes(histogram), scale);
}

double largest_scale(const std::string& format, const core::Results& histogram) {
  const FloatFormat& to = without_blocks(format);
  const Magnitudes values(histogram);
  return values.bins.empty() ? 1 : values.bins.back().high / to.max;
}

double best_scale(const std::string& format, const core::Results& histogram) {
  const FloatFormat& to = without_blocks(format);
  const Magnitudes values(histogram);
  const double largest = largest_scale(format, histogram);
  double best = largest, most = -kInfinity;
  for (int i = 0; i <= 24; ++i) {
    const double scale = largest * std::exp2(-i / 4.0);
    const double sqnr = cost_of(to, values, scale).sqnr;
    if (!(sqnr > most)) continue;
    most = sqnr;
    best = scale;
  }
  return best;
}

}  // namespace torchtap::reductions
