#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <torchtap/core/detail/recording_mode.hpp>
#include <torchtap/reductions/detail/scan.hpp>
#include <torchtap/reductions/detail/sort.hpp>
#include <torchtap/reductions/quantiles.hpp>

namespace torchtap::reductions {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kLeast = 8;  // values in the smallest level

constexpr std::int64_t kBatch = 4;  // times the size: samples of more rows are sorted and thinned out at once

/// [values, kept elements] with each column ascending, NaN last.
at::Tensor sorted_rows(const at::Tensor& values) {
  const auto sort = [&](auto zero) {
    using T = decltype(zero);
    detail::Sorter<T> sorter;
    at::Tensor result = at::empty_like(values);
    const auto* sorted =
        sorter(static_cast<const T*>(values.data_ptr()), static_cast<std::size_t>(values.numel()));
    std::transform(sorted, sorted + values.numel(), static_cast<T*>(result.data_ptr()), sorter.number);
    return result;
  };
  if (values.size(1) == 1 && values.device().is_cpu() && values.is_contiguous()) {
    if (values.scalar_type() == at::kFloat) return sort(0.0F);
    if (values.scalar_type() == at::kDouble) return sort(0.0);
  }
  return std::get<0>(at::sort(values, /*dim=*/0, /*descending=*/false));
}

/// With probability 0.99.
double sketch_error(std::int64_t size) {
  return 2.296 / std::pow(static_cast<double>(size), 0.9021);
}

bool is_level(double q) {
  return q >= 0 && q <= 1;
}

}  // namespace

Quantiles::Quantiles(QuantilesOptions options)
    : intake_("Quantiles", options.folding(), detail::Accepts::real),
      size_(options.size()),
      seed_(options.seed()),
      at_(options.at()),
      random_(options.seed()) {
  validate();
}

void Quantiles::validate() const {
  TORCH_CHECK_VALUE(size_ >= kLeast, "Quantiles: the size must be at least ", kLeast, ", got ", size_,
                    "; 512 has a rank error below 1 %.");
  TORCH_CHECK_VALUE(std::all_of(at_.begin(), at_.end(), is_level),
                    "Quantiles: levels must be in [0, 1], got ", c10::ArrayRef<double>(at_), ".");
}

std::int64_t Quantiles::capacity(std::size_t level) const {
  const auto depth = static_cast<double>(levels_.size() - 1 - level);
  const auto wanted =
      static_cast<std::int64_t>(std::ceil(static_cast<double>(size_) * std::pow(2.0 / 3.0, depth)));
  return std::max(kLeast, wanted);
}

std::int64_t Quantiles::level_size(std::size_t level) const {
  std::int64_t size = 0;
  for (const auto& piece : levels_[level]) size += piece.size(0);
  return size;
}

std::int64_t Quantiles::retained() const noexcept {
  std::int64_t size = 0;
  for (std::size_t level = 0; level < levels_.size(); ++level) size += level_size(level);
  return size;
}

void Quantiles::update(const at::Tensor& sample) {
  const core::detail::RecordingMode quiet;
  detail::Scan scan(sample);
  ask(scan);
  update(scan);
}

void Quantiles::ask(detail::Scan& scan) const {
  scan.ask(intake_.folding(), {});
}

void Quantiles::update(const detail::Scan& scan) {
  const core::detail::RecordingMode quiet;
  const detail::Rows rows = intake_.open(scan.sample());
  if (rows.count == 0) return;
  const auto dtype = detail::mean_type(rows.view.scalar_type());
  const auto* kept = scan.answer(intake_.folding());
  if (kept != nullptr) {
    const std::vector<std::int64_t> flat{static_cast<std::int64_t>(kept->size())};
    const auto min = [](const detail::Summary& one) {
      return one.negative_infinities != 0 ? -kInfinity : one.min;
    };
    const auto max = [](const detail::Summary& one) {
      return one.positive_infinities != 0 ? kInfinity : one.max;
    };
    take_extrema(detail::tabulate(flat, *kept, min).to(dtype), detail::tabulate(flat, *kept, max).to(dtype),
                 detail::tabulate(flat, *kept, [](const detail::Summary& one) { return one.nan; }));
  }
  if (kept != nullptr && rows.count >= kBatch * size_) {
    // [kept elements, rows]: what is kept of most layouts lies in runs.
    std::vector<std::int64_t> order;
    for (auto i = static_cast<std::int64_t>(rows.folded.size()); i < rows.view.dim(); ++i) order.push_back(i);
    order.insert(order.end(), rows.folded.begin(), rows.folded.end());
    const at::Tensor x =
        rows.view.permute(order).reshape({static_cast<std::int64_t>(kept->size()), rows.count}).to(dtype);
    if (dtype == at::kDouble) {
      insert_sorted<double>(x.contiguous());
    } else {
      insert_sorted<float>(x.contiguous());
    }
  } else {
    const at::Tensor x = detail::own_copy(rows.flat(rows.view), dtype);
    if (kept == nullptr) {
      const at::Tensor is_nan = x.isnan();
      take_extrema(x.masked_fill(is_nan, kInfinity).amin(0), x.masked_fill(is_nan, -kInfinity).amax(0),
                   is_nan.sum(0));
    }
    levels_[0].push_back(x);
  }
  intake_.commit(rows);
  compress();
}

void Quantiles::take_extrema(const at::Tensor& min, const at::Tensor& max, const at::Tensor& nan) {
  if (count() == 0) {
    min_ = min;
    max_ = max;
    nan_ = nan;
    levels_.assign(1, {});
  } else {
    min_ = at::minimum(*min_, min);
    max_ = at::maximum(*max_, max);
    nan_->add_(nan);
  }
}

/// Of many rows, [kept elements, rows]: one of every `stride` neighbours is chosen at random (the sampler of
/// Karnin, Lang & Liberty); pieces of those are sorted and thinned out at once to every w-th value, from a
/// random one on, which is what log2(w) compactions in a row would leave of them.
template <class T>
void Quantiles::insert_sorted(const at::Tensor& rows) {
  constexpr std::int64_t kPiece = 65536;  // values: the caches hold them, and sorting them takes 0.3 ms
  const std::int64_t kept = rows.size(0), n = rows.size(1);
  // Sampling n rows has a standard error of sqrt(stride / 4n) of them: at most a tenth of the sketch's own.
  const double sampling = sketch_error(size_) / 2.576 / 10;
  const double most = 4 * sampling * sampling * static_cast<double>(count() + n);
  std::int64_t sampled = 0;  // as a level
  while (sampled < 20 && std::ldexp(1.0, static_cast<int>(sampled) + 1) <= most) ++sampled;
  const std::int64_t stride = std::int64_t{1} << sampled;

  struct Piece {
    std::int64_t from, size, weight, offset;
    std::uint64_t seed;
    at::Tensor values;  // [size, kept elements]
  };
  std::vector<Piece> pieces;
  const auto add = [&](std::int64_t from, std::int64_t size, std::int64_t level) {
    const auto offset = static_cast<std::int64_t>(
        random_.next() & ((std::uint64_t{1} << (level - std::min(level, sampled))) - 1));
    pieces.push_back({from, size, std::int64_t{1} << level, offset, random_.next(),
                      at::empty({size, kept}, rows.options())});
    if (static_cast<std::size_t>(level) >= levels_.size())
      levels_.resize(static_cast<std::size_t>(level) + 1);
    levels_[static_cast<std::size_t>(level)].push_back(pieces.back().values);
    if (level != 0) exact_ = false;
    return from + (size << level);
  };
  for (std::int64_t from = 0; from < n;) {
    const std::int64_t size = std::min(kPiece, (n - from) >> sampled);
    std::int64_t level = 0;
    while ((size >> (level + 1)) >= size_) ++level;
    from = size == 0 ? add(from, n - from, 0) : add(from, size >> level, level + sampled);
  }
  const T* const x = rows.data_ptr<T>();
  const auto units = static_cast<std::int64_t>(pieces.size()) * kept;
  detail::parallel(units, kept * n, [&](std::int64_t begin, std::int64_t end) {
    detail::Sorter<T> sorter;
    std::vector<T> chosen;
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const Piece& piece = pieces[static_cast<std::size_t>(unit / kept)];
      const std::int64_t k = unit % kept, step = std::min(stride, piece.weight);
      const std::int64_t weight = piece.weight / step;
      const T* from = x + k * n + piece.from;
      if (step != 1) {
        detail::Random random(piece.seed);  // the same for all kept elements: each still sees fair choices
        chosen.resize(static_cast<std::size_t>(piece.size * weight));
        // Choosing takes few bits: the upper ones of a random number are good for the next choices.
        int bits = 0, left = 0;
        while ((std::int64_t{1} << bits) < step) ++bits;
        std::uint64_t choices = 0;
        for (auto& one : chosen) {
          if (left < bits) {
            choices = random.next();
            left = 64;
          }
          one = from[choices & static_cast<std::uint64_t>(step - 1)];
          choices >>= bits;
          left -= bits;
          from += step;
        }
        from = chosen.data();
      }
      const auto* sorted = sorter(from, static_cast<std::size_t>(piece.size * weight));
      T* const values = static_cast<T*>(piece.values.data_ptr()) + k;
      for (std::int64_t i = 0; i < piece.size; ++i)
        values[i * kept] = sorter.number(sorted[i * weight + piece.offset]);
    }
  });
}

void Quantiles::compress() {
  for (;;) {
    std::int64_t total = 0, capacities = 0;
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      total += level_size(level);
      capacities += capacity(level);
    }
    if (total <= capacities) return;
    // The lowest level that is full: there is one, or the total would fit. It loses half of its values.
    std::size_t level = 0;
    while (level_size(level) < capacity(level)) ++level;
    at::Tensor values = levels_[level].size() == 1 ? levels_[level][0] : at::cat(levels_[level]);
    std::vector<at::Tensor> rest;
    std::int64_t pairs = values.size(0) / 2;
    if (values.size(0) % 2 != 0) {
      rest.push_back(detail::own_copy(values.narrow(0, 0, 1)));
      values = values.narrow(0, 1, 2 * pairs);
    }
    // One coin for all kept elements: each still sees a fair one. NaN sorts last, as one more large value.
    const auto coin = static_cast<std::int64_t>(random_.next() >> 63);
    const at::Tensor sorted = sorted_rows(values);
    const at::Tensor half = detail::own_copy(sorted.slice(0, coin, 2 * pairs, 2));
    if (level + 1 == levels_.size()) levels_.emplace_back();
    levels_[level] = std::move(rest);
    levels_[level + 1].push_back(half);
    exact_ = false;
  }
}

void Quantiles::check(const at::Tensor& sample) const {
  const core::detail::RecordingMode quiet;
  (void)intake_.open(sample);
}

void Quantiles::check(const detail::Scan& scan) const {
  check(scan.sample());
}

void Quantiles::merge(const Quantiles& other) {
  const core::detail::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (&other == this) return merge(Quantiles(other));
  if (count() == 0) {
    const auto random = random_;
    const auto seed = seed_;
    auto at = at_;
    *this = other;
    random_ = random;
    seed_ = seed;
    at_ = std::move(at);
    return;
  }
  const auto device = min_->device();
  levels_.resize(std::max(levels_.size(), other.levels_.size()));
  for (std::size_t level = 0; level < other.levels_.size(); ++level) {
    for (const auto& piece : other.levels_[level]) levels_[level].push_back(piece.to(device));
  }
  min_ = at::minimum(*min_, other.min_->to(device));
  max_ = at::maximum(*max_, other.max_->to(device));
  nan_->add_(other.nan_->to(device));
  exact_ = exact_ && other.exact_;
  intake_.merge(other.intake_);
  compress();
}

at::Tensor Quantiles::quantiles(const std::vector<double>& levels) const {
  intake_.require_samples("quantiles");
  TORCH_CHECK_VALUE(std::all_of(levels.begin(), levels.end(), is_level),
                    "Quantiles::quantiles: levels must be in [0, 1], got ", c10::ArrayRef<double>(levels),
                    ".");
  const core::detail::RecordingMode quiet;
  const auto options = min_->options();
  std::vector<at::Tensor> pieces, weights;
  for (std::size_t level = 0; level < levels_.size(); ++level) {
    for (const auto& piece : levels_[level]) {
      pieces.push_back(piece);
      weights.push_back(at::full({piece.size(0)}, std::int64_t{1} << level, options.dtype(at::kLong)));
    }
  }
  // [kept elements, values], ascending, with the number of rows up to and including each.
  const auto sorted = at::sort(at::cat(pieces).t().contiguous(), /*dim=*/1, /*descending=*/false);
  const at::Tensor& values = std::get<0>(sorted);  // C++17 lets no lambda capture a structured binding
  at::Tensor weight = at::cat(weights).index({std::get<1>(sorted)});
  weight = weight.masked_fill(values.isnan(), 0);
  const at::Tensor ranks = weight.cumsum(1);
  const at::Tensor rows = weight.sum(1, /*keepdim=*/true);
  // Position q (n - 1) among n rows, between the two rows next to it, as torch::quantile.
  at::Tensor q =
      at::empty({static_cast<std::int64_t>(levels.size())}, at::TensorOptions().dtype(at::kDouble));
  std::copy(levels.begin(), levels.end(), q.data_ptr<double>());
  q = q.to(options.device());
  const at::Tensor position = at::mul(at::sub(rows, 1).clamp_min_(0).to(at::kDouble), q);
  const at::Tensor below = position.floor();
  const auto row = [&](const at::Tensor& number) {
    const at::Tensor index =
        at::searchsorted(ranks, number.to(at::kLong), /*out_int32=*/false, /*right=*/true);
    return values.gather(1, index.clamp_max(values.size(1) - 1));
  };
  const at::Tensor low = row(below);
  const at::Tensor high = row(position.ceil());
  const at::Tensor fraction = at::sub(position, below).to(low.scalar_type());
  at::Tensor result = at::where(at::eq(low, high), low, at::add(low, at::mul(at::sub(high, low), fraction)));
  result = at::where(at::eq(q, 0), min_->unsqueeze(1), at::where(at::eq(q, 1), max_->unsqueeze(1), result));
  result.masked_fill_(at::eq(rows, 0).expand(result.sizes()), kNaN);
  auto sizes = intake_.kept().vec();
  sizes.insert(sizes.begin(), static_cast<std::int64_t>(levels.size()));
  return detail::own_copy(result.t().reshape(sizes));
}

at::Tensor Quantiles::quantile(double q) const {
  const core::detail::RecordingMode quiet;
  return quantiles({q}).squeeze(0);
}

at::Tensor Quantiles::nan() const {
  intake_.require_samples("nan");
  const core::detail::RecordingMode quiet;
  return detail::own_copy(nan_->reshape(intake_.kept()));
}

double Quantiles::rank_error() const noexcept {
  return exact_ ? 0.0 : sketch_error(size_);
}

core::Results Quantiles::results() const {
  if (count() == 0) return {};
  const core::detail::RecordingMode quiet;
  at::Tensor levels =
      at::empty({static_cast<std::int64_t>(at_.size())}, at::TensorOptions().dtype(at::kDouble));
  std::copy(at_.begin(), at_.end(), levels.data_ptr<double>());
  return {{"quantiles", quantiles(at_)}, {"levels", levels}, {"nan", nan()}};
}

std::string Quantiles::describe() const {
  return intake_.describe(c10::str(size_));
}

Quantiles Quantiles::fresh() const {
  Quantiles fresh(QuantilesOptions().at(at_).size(size_).seed(seed_));
  fresh.intake_ = intake_.fresh();
  return fresh;
}

void Quantiles::restored() const {
  validate();
  if (count() == 0) return intake_.check_restored(levels_.empty());
  const std::int64_t numel = intake_.kept_numel();
  intake_.check_restored(!levels_.empty() && levels_.size() < 63);
  double rows = 0;
  for (std::size_t level = 0; level < levels_.size(); ++level) {
    for (const auto& piece : levels_[level]) {
      intake_.check_restored(piece.defined() && piece.dim() == 2 && piece.size(1) == numel);
      rows += std::ldexp(static_cast<double>(piece.size(0)), static_cast<int>(level));
    }
  }
  intake_.check_restored(rows == static_cast<double>(count()));
  for (const auto* extremum : {&min_, &max_, &nan_}) {
    intake_.check_restored(*extremum && (*extremum)->dim() == 1 && (*extremum)->size(0) == numel);
  }
}

}  // namespace torchtap::reductions
