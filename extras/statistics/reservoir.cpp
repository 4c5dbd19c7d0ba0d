// Chooses rows uniformly at random by skips, and merges choices.

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/statistics/reservoir.hpp>

namespace torchtap::reductions {
namespace {

at::Tensor to_tensor(const std::vector<std::int64_t>& numbers) {
  at::Tensor tensor =
      at::empty({static_cast<std::int64_t>(numbers.size())}, at::TensorOptions().dtype(at::kLong));
  std::copy(numbers.begin(), numbers.end(), tensor.data_ptr<std::int64_t>());
  return tensor;
}

/// A tensor with `places` rows that begins with the rows of `samples`.
at::Tensor widened(const at::Tensor& samples, std::int64_t places, c10::ScalarType dtype) {
  auto sizes = samples.sizes().vec();
  sizes[0] = places;
  at::Tensor wide = at::zeros(sizes, samples.options().dtype(dtype));
  const std::int64_t rows = std::min(places, samples.size(0));
  wide.narrow(0, 0, rows).copy_(samples.narrow(0, 0, rows));
  return wide;
}

std::int64_t after_latest(const std::vector<std::int64_t>& indices) {
  return *std::max_element(indices.begin(), indices.end()) + 1;
}

}  // namespace

Reservoir::Reservoir(ReservoirOptions options)
    : Reduction(extend::Intake("Reservoir", options.folding()), Order::matters),
      k_(options.k()),
      seed_(options.seed()),
      random_(options.seed()) {
  TORCH_CHECK_VALUE(k_ > 0, "Reservoir: k must be positive, got ", k_, ".");
}

/// The first row from `seen` on that is chosen, where row i is with probability k / (i + 1), by skips from
/// row `from` on, which is at least k and at most `seen`.
///
/// It follows from the contents of archives: skips are drawn from the generator's state after the latest
/// choice, and from the next row on, which keeps its place until the next choice. Rows before `seen` were not
/// chosen, or in another way, and do not matter to later ones.
std::int64_t Reservoir::next_choice(statistics::detail::Random random, std::int64_t from,
                                    std::int64_t seen) const {
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  statistics::detail::Random skips(random.next());
  while (from <= kNever / 2) {
    // Candidates are as probable as the first row is; each is chosen with the ratio of both probabilities,
    // which is above one half among the next `from` rows.
    const double uniform = static_cast<double>((skips.next() >> 11) + 1) * 0x1p-53;  // in (0, 1]
    const double share = static_cast<double>(k_) / static_cast<double>(from + 1);
    const double gap = std::floor(std::log(uniform) / std::log1p(-share));
    if (gap > static_cast<double>(from)) {
      from += from + 1;
      continue;
    }
    const std::int64_t row = from + static_cast<std::int64_t>(gap);
    const bool chosen = skips.below(static_cast<std::uint64_t>(row) + 1) <= static_cast<std::uint64_t>(from);
    if (chosen && row >= seen) return row;
    from = row + 1;
  }
  return kNever;
}

/// The first choice if none is known. The first one of all mixes the rows that fill the places into the
/// generator: parts that are merged later would otherwise choose the same places, as most have the same seed.
std::int64_t Reservoir::first_choice(statistics::detail::Random& random, std::int64_t from,
                                     std::int64_t seen) const {
  if (seen == k_) random.mix(statistics::detail::fingerprint(samples_->narrow(0, 0, k_)));
  return next_choice(random, from, seen);
}

/// Once all places are filled, most often no row is chosen.
bool Reservoir::combine_lines(const extend::Lines& lines) {
  if (count() < k_ || samples_->scalar_type() != lines.type) return false;
  const std::int64_t seen = count(), end = seen + lines.rows;
  const auto bytes = static_cast<std::size_t>(lines.bytes());
  if (chosen_next_ < seen) chosen_next_ = first_choice(random_, after_latest(indices_), seen);
  for (; chosen_next_ < end; chosen_next_ = next_choice(random_, chosen_next_ + 1, chosen_next_ + 1)) {
    const auto place = static_cast<std::size_t>(random_.below(static_cast<std::uint64_t>(k_)));
    std::memcpy(static_cast<char*>(samples_->data_ptr()) + place * bytes,
                lines.at(chosen_next_ - seen, lines.bytes()).data, bytes);
    indices_[place] = chosen_next_;
  }
  return true;
}

bool Reservoir::combine_all(const extend::Memory& all) {
  return combine_lines({all.type, all.data, all.numel, 1});
}

void Reservoir::combine_rows(const Pass& /*pass*/, const extend::Rows& rows,
                             c10::ArrayRef<Summary> /*kept*/) {
  auto sizes = rows.kept().vec();
  sizes.insert(sizes.begin(), rows.count);
  const at::Tensor x = rows.view.reshape(sizes);

  // The first k rows fill the places. Until they are counted, these places are spare ones.
  std::vector<std::int64_t> indices = indices_;
  const auto had = static_cast<std::int64_t>(indices.size());
  const std::int64_t filling = std::min(k_ - had, rows.count), filled = had + filling;
  for (std::int64_t row = 0; row < filling; ++row) indices.push_back(count() + row);
  const auto dtype =
      count() == 0 ? x.scalar_type() : c10::promoteTypes(samples_->scalar_type(), x.scalar_type());
  if (!samples_) samples_ = at::empty_like(x.narrow(0, 0, 0));
  if (samples_->size(0) < filled || samples_->scalar_type() != dtype) {
    samples_ = widened(*samples_, std::min(k_, std::max(filled, 2 * samples_->size(0))), dtype);
  }
  if (filling != 0) samples_->narrow(0, had, filling).copy_(x.narrow(0, 0, filling));

  // Decide all moves before copying anything. If a position is taken more than once, the last row stays.
  statistics::detail::Random random = random_;
  std::vector<std::pair<std::int64_t, std::int64_t>> moves;  // position, row of x
  std::int64_t next = chosen_next_;
  if (filling < rows.count) {
    const std::int64_t seen = count() + filling, end = count() + rows.count;
    if (next < seen) next = first_choice(random, after_latest(indices), seen);
    for (; next < end; next = next_choice(random, next + 1, next + 1)) {
      const auto place = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(k_)));
      moves.emplace_back(place, next - count());
      indices[static_cast<std::size_t>(place)] = next;
    }
  }
  for (const auto& [place, from] : moves) {
    if (indices[static_cast<std::size_t>(place)] == count() + from)
      samples_->select(0, place).copy_(x.select(0, from));
  }
  indices_ = std::move(indices);
  random_ = random;
  chosen_next_ = next;
}

void Reservoir::merge(const Reservoir& other) {
  const base::RecordingMode quiet;
  intake_.check_merge(other.intake_, describe(), other.describe());
  if (other.count() == 0) return;
  if (&other == this) return merge(Reservoir(other));
  if (count() == 0) {
    samples_ = other.samples_;
    indices_ = other.indices_;
    random_ = other.random_;  // goes on as `other` would: its numbers chose these rows
    chosen_next_ = 0;
    intake_.merge(other.intake_);
    return;
  }
  const std::int64_t mine = static_cast<std::int64_t>(indices_.size());
  const std::int64_t theirs = static_cast<std::int64_t>(other.indices_.size());
  std::vector<std::int64_t> chosen;  // positions in mine, followed by the other's
  if (count() + other.count() <= k_) {
    for (std::int64_t place = 0; place < mine + theirs; ++place) chosen.push_back(place);
  } else {
    for (const Reservoir* const one : std::initializer_list<const Reservoir*>{this, &other}) {
      statistics::detail::Random theirs = one->random_;
      random_.mix(theirs.next());
      const auto filled = static_cast<std::int64_t>(one->indices_.size());
      random_.mix(statistics::detail::fingerprint(one->samples_->narrow(0, 0, filled)));
    }
    // Draw k times from both streams without replacement: pick a stream with probability proportional to its
    // remaining rows, then any member of its reservoir, which is already a uniform choice.
    std::vector<std::int64_t> members[2];
    for (std::int64_t place = 0; place < mine + theirs; ++place)
      members[place < mine ? 0 : 1].push_back(place);
    std::uint64_t left[2] = {static_cast<std::uint64_t>(count()), static_cast<std::uint64_t>(other.count())};
    for (std::int64_t i = 0; i < k_; ++i) {
      const int turn = random_.below(left[0] + left[1]) < left[0] ? 0 : 1;
      auto& from = members[turn];
      const auto pick = static_cast<std::size_t>(random_.below(from.size()));
      chosen.push_back(from[pick]);
      from.erase(from.begin() + static_cast<std::ptrdiff_t>(pick));
      --left[turn];
    }
  }
  std::vector<std::int64_t> indices;
  indices.reserve(chosen.size());
  for (const auto place : chosen) {
    indices.push_back(place < mine ? indices_[static_cast<std::size_t>(place)]
                                   : other.indices_[static_cast<std::size_t>(place - mine)] + count());
  }
  const auto device = samples_->device();
  const at::Tensor both =
      at::cat({samples_->narrow(0, 0, mine), other.samples_->narrow(0, 0, theirs).to(device)});
  samples_ = both.index_select(0, to_tensor(chosen).to(device));
  indices_ = std::move(indices);
  chosen_next_ = 0;
  intake_.merge(other.intake_);
}

at::Tensor Reservoir::samples() const {
  intake_.require_samples("samples");
  const base::RecordingMode quiet;
  return extend::own_copy(samples_->narrow(0, 0, static_cast<std::int64_t>(indices_.size())));
}

at::Tensor Reservoir::indices() const {
  intake_.require_samples("indices");
  const base::RecordingMode quiet;
  return to_tensor(indices_);
}

core::Results Reservoir::results() const {
  if (count() == 0) return {};
  return {{"samples", samples()}, {"indices", indices()}};
}

std::string Reservoir::describe() const {
  return intake_.describe(std::to_string(k_));
}

Reservoir Reservoir::fresh() const {
  Reservoir fresh(ReservoirOptions(k_).seed(seed_));
  fresh.intake_ = intake_.fresh();
  return fresh;
}

void Reservoir::restored() {
  chosen_next_ = 0;
  intake_.check_restored(k_ > 0 && static_cast<std::int64_t>(indices_.size()) == std::min(k_, count()) &&
                         std::all_of(indices_.begin(), indices_.end(),
                                     [&](auto index) { return index >= 0 && index < count(); }));
  if (count() == 0) return intake_.check_restored(!samples_);
  intake_.check_restored(
      after_latest(indices_) >= static_cast<std::int64_t>(indices_.size()) && samples_ &&
      samples_->dim() > 0 && samples_->size(0) >= static_cast<std::int64_t>(indices_.size()) &&
      samples_->sizes().slice(1) == intake_.kept() && samples_->device() == intake_.device());
}

}  // namespace torchtap::reductions
