// Measures blocks of samples, joins neighbours when there are too many, and packs bins for archives.

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/little_endian.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/strided.hpp>
#include <torchtap/core/unfit.hpp>
#include <torchtap/reductions/extend/bit_bins.hpp>
#include <torchtap/statistics/blocks.hpp>

namespace torchtap::reductions {
namespace {

constexpr extend::BitBins block_bins{3};
constexpr std::int64_t most_elements = std::int64_t{1} << 52;  // of a block; more are a damaged archive
constexpr double no_extremum = std::numeric_limits<double>::quiet_NaN();

/// Slots of finite numbers but zeros, ascending. Throws `c10::ValueError` if `packed` is damaged.
extend::SlotCounts unpacked_bins(const std::string& packed) {
  extend::SlotCounts bins;
  const auto negative = static_cast<std::uint32_t>(block_bins.negative());
  bool sound = base::unpack_counts(packed, 2 * negative, static_cast<std::uint64_t>(most_elements), bins);
  for (const auto& bin : bins)
    sound = sound && bin.first % negative < static_cast<std::uint32_t>(block_bins.infinity());
  TORCH_CHECK_VALUE(sound, "restore: the bins in the archive of Blocks are inconsistent; it is damaged.");
  return bins;
}

/// In order of their slots, each once.
void tidy(extend::SlotCounts& bins) {
  std::sort(bins.begin(), bins.end());
  std::size_t kept = 0;
  for (std::size_t i = 1; i < bins.size(); ++i) {
    if (bins[i].first == bins[kept].first) {
      bins[kept].second += bins[i].second;
    } else {
      bins[++kept] = bins[i];
    }
  }
  if (!bins.empty()) bins.resize(kept + 1);
}

/// Whether kernels read the sample without a copy.
bool as_it_is(const at::Tensor& sample) {
  return sample.device().is_cpu() && !sample.is_complex();
}

/// The counts of a sample in memory of real numbers, for which `pass` was asked.
extend::SlotCounts slots_of(const Pass& pass) {
  const auto* const found = extend::count_bits(pass, block_bins);
  extend::SlotCounts slots = found == nullptr ? extend::count_bits(pass.sample(), block_bins) : *found;
  tidy(slots);
  return slots;
}

/// The ends of the bin with this slot.
std::pair<double, double> ends_of(std::uint32_t slot) {
  const bool negative = slot >= block_bins.negative();
  const std::int64_t magnitude = slot - (negative ? block_bins.negative() : 0);
  const double near = block_bins.edge(magnitude), far = block_bins.edge(magnitude + 1);
  return negative ? std::pair(-far, 0.0 - near) : std::pair(near, far);
}

template <class T>
at::Tensor as_tensor(const std::vector<T>& numbers) {
  at::Tensor result = at::empty({static_cast<std::int64_t>(numbers.size())},
                                at::TensorOptions().dtype(c10::CppTypeToScalarType<T>()));
  std::copy(numbers.begin(), numbers.end(), result.data_ptr<T>());
  return result;
}

}  // namespace

Blocks::Blocks(std::int64_t most) : most_(most) {
  TORCH_CHECK_VALUE(most >= 2 && most % 2 == 0, "Blocks: expected an even number of at least 2 blocks, got ",
                    most, ".");
}

void Blocks::update(const at::Tensor& sample) {
  Pass pass(sample);
  pass.ask(*this);
  pass.fold_into(*this);
}

void Blocks::check(const at::Tensor& sample) const {
  const Pass pass(sample);
  pass.check(*this);
}

void Blocks::ask(Pass& pass) const {
  if (!pass.sample().defined() || !as_it_is(pass.sample())) return;
  pass.ask_total({/*moments=*/true, /*zeros=*/true});
  extend::ask_bits(pass, block_bins);
}

void Blocks::check_sample(const Pass& pass) const {
  const at::Tensor& sample = pass.sample();
  TORCH_CHECK_TYPE(sample.defined(), "reductions::Blocks::update: expected a tensor, got an undefined one.");
  if (!base::is_strided(sample)) {
    core::unfit<c10::TypeError>(c10::str("reductions::Blocks::update: expected a strided tensor, got ",
                                         base::instead_of_strided(sample), "."));
  }
  TORCH_CHECK_TYPE(!sample.is_quantized(), "reductions::Blocks::update: expected plain numbers, got dtype ",
                   sample.scalar_type(), "; convert it with dequantize() or int_repr() first.");
}

void Blocks::fold(const Pass& pass) {
  check_sample(pass);
  const base::RecordingMode quiet;
  const at::Tensor& sample = pass.sample();
  Block block;
  if (as_it_is(sample)) {
    block = measure(pass);
  } else {
    const at::Tensor real = sample.is_complex() ? at::view_as_real(sample.resolve_conj()) : sample;
    const at::Tensor copy = real.to(at::kCPU);
    Pass own(copy);
    ask(own);
    block = measure(own);
  }
  block.rows = sample.dim() == 0 ? 1 : sample.size(0);
  if (!blocks_.empty() && blocks_.back().samples < each_) {
    blocks_.back().add(block);
  } else {
    if (static_cast<std::int64_t>(blocks_.size()) == most_) join();
    if (!blocks_.empty() && blocks_.back().samples < each_) {
      blocks_.back().add(block);
    } else {
      blocks_.push_back(std::move(block));
    }
  }
  ++samples_;
}

Blocks::Block Blocks::measure(const Pass& pass) {
  Block block;
  block.samples = 1;
  block.min = block.max = no_extremum;
  if (pass.sample().numel() == 0) return block;
  extend::SlotCounts slots = slots_of(pass);
  const auto apart = std::remove_if(slots.begin(), slots.end(), [&](const auto& one) {
    std::int64_t* const to = one.first == block_bins.zero()       ? &block.zeros
                             : one.first == block_bins.nan()      ? &block.nan
                             : one.first == block_bins.infinity() ? &block.positive_infinity
                             : one.first == block_bins.negative() + block_bins.infinity()
                                 ? &block.negative_infinity
                                 : nullptr;
    if (to != nullptr) *to = one.second;
    return to != nullptr;
  });
  slots.erase(apart, slots.end());
  block.bins = base::packed_counts(slots);
  const Summary total = pass.total();
  block.sum = total.sum;
  block.sum_squares = total.m2 + static_cast<double>(total.taken) * total.mean * total.mean;
  if (std::isnan(block.sum_squares))
    block.sum_squares = std::numeric_limits<double>::infinity();  // too large
  if (total.taken != 0) {
    block.min = total.min;
    block.max = total.max;
  }
  return block;
}

void Blocks::Block::add(const Block& other) {
  samples += other.samples;
  rows += other.rows;
  zeros += other.zeros;
  nan += other.nan;
  negative_infinity += other.negative_infinity;
  positive_infinity += other.positive_infinity;
  min = std::fmin(min, other.min);  // of NaN and a number, the number
  max = std::fmax(max, other.max);
  sum += other.sum;
  sum_squares += other.sum_squares;
  extend::SlotCounts both = unpacked_bins(bins);
  const extend::SlotCounts more = unpacked_bins(other.bins);
  both.insert(both.end(), more.begin(), more.end());
  tidy(both);
  bins = base::packed_counts(both);
}

/// Makes one block of two.
void Blocks::join() {
  std::vector<Block> joined;
  for (std::size_t i = 0; i < blocks_.size(); i += 2) {
    joined.push_back(std::move(blocks_[i]));
    if (i + 1 < blocks_.size()) joined.back().add(blocks_[i + 1]);
  }
  blocks_ = std::move(joined);
  each_ *= 2;
}

void Blocks::merge(const Blocks& other) {
  TORCH_CHECK_VALUE(most_ == other.most_, "reductions::Blocks::merge: cannot merge ", other.describe(),
                    " into ", describe(), "; both must be configured alike.");
  Blocks theirs = other, mine = *this;
  if (theirs.samples_ == 0) return;
  if (mine.samples_ == 0) mine.each_ = theirs.each_;
  while (mine.each_ < theirs.each_) mine.join();
  while (theirs.each_ < mine.each_) theirs.join();
  mine.blocks_.insert(mine.blocks_.end(), theirs.blocks_.begin(), theirs.blocks_.end());
  while (static_cast<std::int64_t>(mine.blocks_.size()) > most_) mine.join();
  mine.samples_ += theirs.samples_;
  *this = std::move(mine);
}

core::Results Blocks::results() const {
  if (samples_ == 0) return {};
  const base::RecordingMode quiet;
  std::map<std::pair<double, double>, std::int64_t> columns;  // by their ends
  std::vector<extend::SlotCounts> bins;
  for (const auto& block : blocks_) {
    bins.push_back(unpacked_bins(block.bins));
    for (const auto& [slot, count] : bins.back()) columns[ends_of(slot)] = 0;
  }
  std::vector<double> low, high;
  for (auto& [ends, column] : columns) {
    column = static_cast<std::int64_t>(low.size());
    low.push_back(ends.first);
    high.push_back(ends.second);
  }
  const auto width = static_cast<std::int64_t>(low.size());
  at::Tensor counts = at::zeros({static_cast<std::int64_t>(blocks_.size()), width}, at::kLong);
  std::int64_t* to = counts.data_ptr<std::int64_t>();
  for (const auto& one : bins) {
    for (const auto& [slot, count] : one) to[columns.at(ends_of(slot))] = count;
    to += width;
  }
  const auto each = [&](auto member) {
    using T = std::decay_t<decltype(std::declval<Block>().*member)>;
    std::vector<T> numbers;
    for (const auto& block : blocks_) numbers.push_back(block.*member);
    return as_tensor(numbers);
  };
  return {{"samples", each(&Block::samples)},
          {"rows", each(&Block::rows)},
          {"counts", counts},
          {"low", as_tensor(low)},
          {"high", as_tensor(high)},
          {"zeros", each(&Block::zeros)},
          {"negative_infinity", each(&Block::negative_infinity)},
          {"positive_infinity", each(&Block::positive_infinity)},
          {"nan", each(&Block::nan)},
          {"min", each(&Block::min)},
          {"max", each(&Block::max)},
          {"sum", each(&Block::sum)},
          {"sum_squares", each(&Block::sum_squares)}};
}

std::string Blocks::describe() const {
  return "Blocks(" + std::to_string(most_) + ")";
}

void Blocks::restored() {
  bool fits = most_ >= 2 && most_ % 2 == 0 && each_ >= 1 && each_ <= most_elements &&
              (each_ & (each_ - 1)) == 0 && static_cast<std::int64_t>(blocks_.size()) <= most_;
  samples_ = 0;
  for (const auto& block : blocks_) {
    (void)unpacked_bins(block.bins);
    const auto counts = {block.rows, block.zeros, block.nan, block.negative_infinity,
                         block.positive_infinity};
    fits = fits && block.samples > 0 && block.samples <= each_ && std::min(counts) >= 0 &&
           std::max(counts) <= most_elements;
    samples_ += fits ? block.samples : 0;
  }
  TORCH_CHECK_VALUE(fits, "restore: the parts of the archive of ", describe(),
                    " are inconsistent; it is damaged.");
}

}  // namespace torchtap::reductions
