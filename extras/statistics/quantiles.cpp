// Inserts values into the KLL sketch, compacts and merges its levels, and computes quantiles.

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/statistics/detail/columns.hpp>
#include <torchtap/statistics/detail/sort.hpp>
#include <torchtap/statistics/quantiles.hpp>

namespace torchtap::reductions {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr std::int64_t kLeast = 8;  // values in the smallest level

constexpr std::int64_t kBatch = 4;  // times `size`: samples with more rows are sorted and thinned out at once

/// The rank error with probability 0.99.
double sketch_error(std::int64_t size) {
  return 2.296 / std::pow(static_cast<double>(size), 0.9021);
}

bool is_level(double q) {
  return q >= 0 && q <= 1;
}

/// The extrema, in which infinities count and NaN does not.
double least(const Summary& one) {
  return one.negative_infinities != 0 ? -kInfinity : one.min;
}
double largest(const Summary& one) {
  return one.positive_infinities != 0 ? kInfinity : one.max;
}

}  // namespace

}  // namespace torchtap::reductions

namespace torchtap::statistics::detail {

at::Tensor Level::held() const {
  return places_->narrow(0, 0, used_);
}

void Level::move_to(std::int64_t places, std::int64_t kept, const at::TensorOptions& options) {
  const base::RecordingMode quiet;
  at::Tensor memory = at::empty({places, kept}, options);
  if (used_ != 0) memory.narrow(0, 0, used_).copy_(held());
  places_ = std::move(memory);
}

void Level::reserve(std::int64_t count, std::int64_t wanted, std::int64_t kept,
                    const at::TensorOptions& options) {
  if (has_room(count)) return;
  const std::int64_t now = places_ ? places_->size(0) : 0;
  // Beyond `wanted`, too, it grows by more than a row, which would be copied with all others each time.
  move_to(std::max(used_ + count, now < wanted ? std::min(2 * now, wanted) : now + now / 4), kept, options);
}

void Level::shrink(std::int64_t wanted) {
  if (places_ && places_->size(0) > wanted && used_ <= wanted)
    move_to(wanted, places_->size(1), places_->options());
}

void Level::append(const at::Tensor& rows) {
  places_->narrow(0, used_, rows.size(0)).copy_(rows);
  used_ += rows.size(0);
}

void Level::convert(c10::ScalarType dtype) {
  if (places_ && places_->scalar_type() != dtype) places_ = reductions::extend::own_copy(*places_, dtype);
}

}  // namespace torchtap::statistics::detail

namespace torchtap::reductions {

Quantiles::Quantiles(QuantilesOptions options)
    : Reduction(extend::Intake("Quantiles", options.folding(), extend::Accepts::real)),
      k_(options.k()),
      seed_(options.seed()),
      at_(options.at()),
      random_(options.seed()) {
  validate();
}

void Quantiles::validate() const {
  TORCH_CHECK_VALUE(k_ >= kLeast, "Quantiles: k must be at least ", kLeast, ", got ", k_,
                    "; 512 has a rank error below 1 %.");
  TORCH_CHECK_VALUE(std::all_of(at_.begin(), at_.end(), is_level),
                    "Quantiles: levels must be in [0, 1], got ", c10::ArrayRef<double>(at_), ".");
}

std::int64_t Quantiles::capacity(std::size_t level) const {
  const auto depth = static_cast<double>(levels_.size() - 1 - level);
  const auto wanted =
      static_cast<std::int64_t>(std::ceil(static_cast<double>(k_) * std::pow(2.0 / 3.0, depth)));
  return std::max(kLeast, wanted);
}

std::int64_t Quantiles::retained() const noexcept {
  std::int64_t rows = 0;
  for (const auto& level : levels_) rows += level.rows();
  return rows;
}

/// Makes room for more rows, and for the rows that a level gets while it is not full: half of a full level
/// below.
void Quantiles::reserve(std::size_t level, std::int64_t count) {
  if (levels_[level].has_room(count)) return;
  const std::int64_t full = capacity(level);
  levels_[level].reserve(count, full + full / 3 + 1, min_->numel(), min_->options());
}

void Quantiles::append(std::size_t level, const at::Tensor& rows) {
  reserve(level, rows.size(0));
  levels_[level].append(rows);
}

void Quantiles::ask(Pass& pass) const {
  extend::parts_of(pass).requests.ask(intake_.folding(), {});
}

/// Where the next row goes.
void* Quantiles::end() {
  statistics::detail::Level& first = levels_[0];
  if (min_->scalar_type() == at::kDouble) return first.row<double>(first.rows());
  return first.row<float>(first.rows());
}

/// Whether rows of this dtype, without ATen, join the values that are not sorted yet.
bool Quantiles::takes(std::int64_t rows, c10::ScalarType type) const {
  return count() != 0 && rows < kBatch * k_ && extend::mean_type(type) == min_->scalar_type();
}

bool Quantiles::combine_lines(const extend::Lines& lines) {
  if (!takes(lines.rows, lines.type)) return false;
  const statistics::detail::Extrema extrema{min_->data_ptr(), max_->data_ptr(),
                                            nan_->data_ptr<std::int64_t>()};
  reserve(0, lines.rows);
  lines.each([&](const extend::Memory& row) {
    statistics::detail::copy_row(row, min_->scalar_type(), end(), extrema);
    levels_[0].resize(levels_[0].rows() + 1);
  });
  compress();
  return true;
}

bool Quantiles::combine_all(const extend::Memory& all) {
  if (!takes(all.numel, all.type)) return false;
  const Summary found = extend::summarize(all, {});
  reserve(0, all.numel);
  extend::copy(all, min_->scalar_type(), end());
  levels_[0].resize(levels_[0].rows() + all.numel);
  const auto take = [&](auto* min, auto* max) {
    using T = std::remove_pointer_t<decltype(min)>;
    *min = std::min(*min, static_cast<T>(least(found)));
    *max = std::max(*max, static_cast<T>(largest(found)));
  };
  if (min_->scalar_type() == at::kDouble) {
    take(min_->data_ptr<double>(), max_->data_ptr<double>());
  } else {
    take(min_->data_ptr<float>(), max_->data_ptr<float>());
  }
  *nan_->data_ptr<std::int64_t>() += found.nan;
  compress();
  return true;
}

void Quantiles::combine_rows(const Pass& pass, const extend::Rows& rows, c10::ArrayRef<Summary> /*kept*/) {
  const auto dtype = extend::mean_type(rows.view.scalar_type());
  const auto kept = extend::parts_of(pass).answers.summaries(intake_.folding());
  if (!kept.empty()) {
    const std::vector<std::int64_t> flat{static_cast<std::int64_t>(kept.size())};
    take_extrema(extend::tabulate(flat, kept, least).to(dtype),
                 extend::tabulate(flat, kept, largest).to(dtype),
                 extend::tabulate(flat, kept, [](const Summary& one) { return one.nan; }));
  }
  if (!kept.empty() && rows.count >= kBatch * k_) {
    // [kept elements, rows]: in most layouts the rows of a kept element are contiguous runs.
    std::vector<std::int64_t> order;
    for (auto i = static_cast<std::int64_t>(rows.folded.size()); i < rows.view.dim(); ++i) order.push_back(i);
    order.insert(order.end(), rows.folded.begin(), rows.folded.end());
    const at::Tensor x =
        rows.view.permute(order).reshape({static_cast<std::int64_t>(kept.size()), rows.count}).to(dtype);
    if (dtype == at::kDouble) {
      insert_sorted<double>(x.contiguous());
    } else {
      insert_sorted<float>(x.contiguous());
    }
  } else {
    const at::Tensor x = rows.flat(rows.view).to(dtype);
    if (kept.empty()) {
      const at::Tensor is_nan = x.isnan();
      take_extrema(x.masked_fill(is_nan, kInfinity).amin(0), x.masked_fill(is_nan, -kInfinity).amax(0),
                   is_nan.sum(0));
    }
    append(0, x);
  }
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
    for (auto& level : levels_) level.convert(min_->scalar_type());
  }
}

/// Inserts many rows, [kept elements, rows]. Chooses one of every `stride` neighbours at random (the sampler
/// of Karnin, Lang & Liberty), sorts pieces of them and keeps every w-th value from a random offset on, as
/// log2(w) successive compactions would.
template <class T>
void Quantiles::insert_sorted(const at::Tensor& rows) {
  constexpr std::int64_t kPiece = 65536;  // values: fits the caches and takes 0.3 ms to sort
  const std::int64_t kept = rows.size(0), n = rows.size(1);
  // Sampling n rows has a standard error of sqrt(stride / 4n) of them. Allow at most a tenth of the sketch's
  // own error.
  const double sampling = sketch_error(k_) / 2.576 / 10;
  const double most = 4 * sampling * sampling * static_cast<double>(count() + n);
  std::int64_t sampled = 0;  // log2 of the stride
  while (sampled < 20 && std::ldexp(1.0, static_cast<int>(sampled) + 1) <= most) ++sampled;
  const std::int64_t stride = std::int64_t{1} << sampled;
  thins_out(rows);

  struct Piece {
    std::int64_t from, size, weight, offset;
    std::uint64_t seed;
    std::size_t level;
    at::Tensor values;  // [size, kept elements]
  };
  std::vector<Piece> pieces;
  const auto add = [&](std::int64_t from, std::int64_t size, std::int64_t level) {
    const auto offset = static_cast<std::int64_t>(
        random_.next() & ((std::uint64_t{1} << (level - std::min(level, sampled))) - 1));
    pieces.push_back({from, size, std::int64_t{1} << level, offset, random_.next(),
                      static_cast<std::size_t>(level), at::empty({size, kept}, rows.options())});
    return from + (size << level);
  };
  for (std::int64_t from = 0; from < n;) {
    const std::int64_t size = std::min(kPiece, (n - from) >> sampled);
    std::int64_t level = 0;
    while ((size >> (level + 1)) >= k_) ++level;
    from = size == 0 ? add(from, n - from, 0) : add(from, size >> level, level + sampled);
  }
  const T* const x = rows.data_ptr<T>();
  const auto units = static_cast<std::int64_t>(pieces.size()) * kept;
  extend::parallel(units, kept * n, [&](std::int64_t begin, std::int64_t end) {
    statistics::detail::Sorter<T> sorter;
    std::vector<T> chosen;
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const Piece& piece = pieces[static_cast<std::size_t>(unit / kept)];
      const std::int64_t k = unit % kept, step = std::min(stride, piece.weight);
      const std::int64_t weight = piece.weight / step;
      const T* from = x + k * n + piece.from;
      if (step != 1) {
        statistics::detail::Random random(piece.seed);  // shared by all kept elements, yet fair for each
        chosen.resize(static_cast<std::size_t>(piece.size * weight));
        // A choice takes few bits, so one random number serves several choices.
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
  for (const Piece& piece : pieces) {
    if (piece.level >= levels_.size()) levels_.resize(piece.level + 1);
    append(piece.level, piece.values);
  }
}

/// Before values are left out for the first time, mixes them into the generator: sketches that are merged
/// later would otherwise err in the same direction, as most have the same seed.
void Quantiles::thins_out(const at::Tensor& rows) {
  if (exact_) random_.mix(statistics::detail::fingerprint(rows));
  exact_ = false;
}

void Quantiles::compress() {
  // A single column waits until there is enough to sort many pieces side by side, on the upper levels, too.
  const std::int64_t most = min_->numel() == 1 ? k_ : 0;
  std::int64_t spare = most;
  for (;;) {
    if (capacities_.size() != levels_.size()) {
      capacities_.resize(levels_.size());
      for (std::size_t level = 0; level < levels_.size(); ++level) capacities_[level] = capacity(level);
    }
    std::int64_t total = 0, capacities = 0;
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      total += levels_[level].rows();
      capacities += capacities_[level];
    }
    if (total <= capacities + spare) return;
    spare = most / 2;
    // Compact the lowest full level, which halves it. A full level exists, otherwise the total would fit.
    std::size_t level = 0;
    while (levels_[level].rows() < capacities_[level]) ++level;
    if (!halve_pieces(level)) halve(level);
  }
}

/// Halves a level of one column in pieces of as many values as fill it: that many are sorted soonest, side by
/// side, and the stated error allows for it. False if there is none.
bool Quantiles::halve_pieces(std::size_t level) {
  constexpr std::int64_t kTogether = 64;  // pieces that share a random number, one bit each
  constexpr std::int64_t kLine = 16;      // pieces that are sorted as soon as fewer
  if (!min_->is_cpu() || min_->numel() != 1 || level + 1 == levels_.size()) return false;
  statistics::detail::Level& from = levels_[level];
  statistics::detail::Level& to = levels_[level + 1];
  const std::int64_t half = (capacities_[level] + 1) / 2;
  std::int64_t pieces = from.rows() / (2 * half);
  if (pieces == 0) return false;
  if (pieces > kLine) pieces -= pieces % kLine;
  reserve(level + 1, pieces * half);
  thins_out(from.held());
  const auto sort = [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t done = 0; done < pieces; done += kTogether) {
      const std::int64_t some = std::min(kTogether, pieces - done);
      from.resize(from.rows() - some * 2 * half);
      // Columns of [values of a piece, pieces]: it does not matter which values a piece has.
      statistics::detail::halve_columns(from.row<T>(from.rows()), 2 * half, some, 0, some, random_.next(),
                                        to.row<T>(to.rows()));
      to.resize(to.rows() + some * half);
    }
  };
  if (min_->scalar_type() == at::kDouble) {
    sort(0.0);
  } else {
    sort(0.0F);
  }
  return true;
}

/// Sorts the rows of a level, each kept element for itself, and moves every second one to the next level. The
/// others are forgotten. The first one stays if their number is odd.
void Quantiles::halve(std::size_t level) {
  if (level + 1 == levels_.size()) {
    levels_.emplace_back();
    for (std::size_t i = 0; i <= level; ++i) {  // all below hold less from now on
      const std::int64_t full = capacity(i);
      levels_[i].shrink(full + full / 3 + 1);
    }
  }
  statistics::detail::Level& from = levels_[level];
  statistics::detail::Level& to = levels_[level + 1];
  const std::int64_t odd = from.rows() % 2, pairs = from.rows() / 2, kept = min_->numel();
  reserve(level + 1, pairs);
  thins_out(from.held());
  // One coin for all kept elements; it is still fair for each. NaN sorts last, like one more large value.
  const bool coin = random_.next() >> 63 != 0;
  const auto sort = [&](auto zero) {
    using T = decltype(zero);
    const T* const values = from.row<T>(odd);
    T* const half = to.row<T>(to.rows());
    const auto columns = [&](std::int64_t begin, std::int64_t end) {
      statistics::detail::halve_columns(values, 2 * pairs, kept, begin, end - begin,
                                        coin ? ~std::uint64_t{0} : 0, half);
    };
    extend::parallel(kept, from.rows() * kept, columns);
  };
  if (!min_->is_cpu()) {
    const base::RecordingMode quiet;
    const at::Tensor values = from.held().narrow(0, odd, 2 * pairs);
    to.append(
        std::get<0>(at::sort(values, /*dim=*/0, /*descending=*/false)).slice(0, coin ? 1 : 0, 2 * pairs, 2));
  } else {
    if (min_->scalar_type() == at::kDouble) {
      sort(0.0);
    } else {
      sort(0.0F);
    }
    to.resize(to.rows() + pairs);
  }
  from.resize(odd);
}

void Quantiles::merge(const Quantiles& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (&other == this) return merge(Quantiles(other));
  if (count() == 0) {
    const auto seed = seed_;
    auto at = at_;
    *this = other;  // with its generator, whose numbers compacted it
    seed_ = seed;
    at_ = std::move(at);
    return;
  }
  const auto device = min_->device();
  take_extrema(other.min_->to(device), other.max_->to(device), other.nan_->to(device));
  levels_.resize(std::max(levels_.size(), other.levels_.size()));
  for (std::size_t level = 0; level < other.levels_.size(); ++level) {
    if (other.levels_[level].rows() != 0) append(level, other.levels_[level].held());
  }
  if (!other.exact_) {
    statistics::detail::Random theirs = other.random_;
    random_.mix(theirs.next());
    exact_ = false;
  }
  intake_.merge(other.intake_);
  compress();
}

at::Tensor Quantiles::quantiles(const std::vector<double>& levels) const {
  intake_.require_samples("quantiles");
  TORCH_CHECK_VALUE(std::all_of(levels.begin(), levels.end(), is_level),
                    "reductions::Quantiles::quantiles: levels must be in [0, 1], got ",
                    c10::ArrayRef<double>(levels), ".");
  const base::RecordingMode quiet;
  const auto options = min_->options();
  std::vector<at::Tensor> pieces, weights;
  for (std::size_t level = 0; level < levels_.size(); ++level) {
    const std::int64_t rows = levels_[level].rows();
    if (rows == 0) continue;
    pieces.push_back(levels_[level].held());
    weights.push_back(at::full({rows}, std::int64_t{1} << level, options.dtype(at::kLong)));
  }
  // The values are [kept elements, values], ascending, with the cumulative number of rows for each.
  const auto sorted = at::sort(at::cat(pieces).t().contiguous(), /*dim=*/1, /*descending=*/false);
  const at::Tensor& values = std::get<0>(sorted);  // C++17 lambdas cannot capture a structured binding
  at::Tensor weight = at::cat(weights).index({std::get<1>(sorted)});
  weight = weight.masked_fill(values.isnan(), 0);
  const at::Tensor ranks = weight.cumsum(1);
  const at::Tensor rows = weight.sum(1, /*keepdim=*/true);
  // The quantile has the position q (n - 1) among n rows, interpolated between its two neighbours, as in
  // torch::quantile.
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
  return extend::own_copy(result.t().reshape(sizes));
}

at::Tensor Quantiles::quantile(double q) const {
  const base::RecordingMode quiet;
  return quantiles({q}).squeeze(0);
}

at::Tensor Quantiles::nan() const {
  intake_.require_samples("nan");
  const base::RecordingMode quiet;
  return extend::own_copy(nan_->reshape(intake_.kept()));
}

double Quantiles::rank_error() const noexcept {
  return exact_ ? 0.0 : sketch_error(k_);
}

core::Results Quantiles::results() const {
  if (count() == 0) return {};
  const base::RecordingMode quiet;
  at::Tensor levels =
      at::empty({static_cast<std::int64_t>(at_.size())}, at::TensorOptions().dtype(at::kDouble));
  std::copy(at_.begin(), at_.end(), levels.data_ptr<double>());
  return {{"quantiles", quantiles(at_)}, {"levels", levels}, {"nan", nan()}};
}

std::string Quantiles::describe() const {
  return intake_.describe(std::to_string(k_));
}

Quantiles Quantiles::fresh() const {
  Quantiles fresh(QuantilesOptions().at(at_).k(k_).seed(seed_));
  fresh.intake_ = intake_.fresh();
  return fresh;
}

/// The form in archives: tensors [values, kept elements] of each level.
std::vector<std::vector<at::Tensor>> Quantiles::pieces() const {
  std::vector<std::vector<at::Tensor>> pieces(levels_.size());
  for (std::size_t level = 0; level < levels_.size(); ++level) {
    if (levels_[level].rows() != 0) pieces[level].push_back(levels_[level].held());
  }
  return pieces;
}

void Quantiles::restored(const std::vector<std::vector<at::Tensor>>& pieces) {
  validate();
  levels_.clear();
  capacities_.clear();
  if (count() == 0) return intake_.check_restored(pieces.empty());
  const std::int64_t numel = intake_.kept_numel();
  intake_.check_restored(!pieces.empty() && pieces.size() < 63);
  for (const auto* extremum : {&min_, &max_, &nan_}) {
    intake_.check_restored(*extremum && (*extremum)->dim() == 1 && (*extremum)->size(0) == numel &&
                           (*extremum)->device() == intake_.device());
  }
  const auto dtype = min_->scalar_type();
  intake_.check_restored((dtype == at::kFloat || dtype == at::kDouble) && max_->scalar_type() == dtype &&
                         nan_->scalar_type() == at::kLong);
  double rows = 0;
  for (std::size_t level = 0; level < pieces.size(); ++level) {
    for (const auto& piece : pieces[level]) {
      intake_.check_restored(piece.defined() && piece.dim() == 2 && piece.size(1) == numel &&
                             c10::isFloatingType(piece.scalar_type()));
      rows += std::ldexp(static_cast<double>(piece.size(0)), static_cast<int>(level));
    }
  }
  intake_.check_restored(rows == static_cast<double>(count()));
  levels_.resize(pieces.size());
  for (std::size_t level = 0; level < pieces.size(); ++level) {
    for (const auto& piece : pieces[level]) append(level, piece);
  }
}

}  // namespace torchtap::reductions
