// Collects the requests of reductions about a sample, and answers them from as few reads as possible.

#include <algorithm>
#include <functional>

#include <torchtap/reductions/detail/requests.hpp>
#include <torchtap/reductions/fast/small.hpp>

namespace torchtap::reductions::detail {

Requests::Reads::~Reads() = default;

Read& Requests::request(const Layout& layout) {
  if (Read* const found = find(layout)) return *found;
  auto& reads = reads_ ? reads_->all : reads_.emplace().all;
  reads.emplace_back().layout = layout;
  return reads.back();
}

Read* Requests::find(const std::optional<Layout>& layout) const {
  if (!reads_ || !layout) return nullptr;
  auto& reads = reads_->all;
  const auto found =
      std::find_if(reads.begin(), reads.end(), [&](const Read& read) { return read.layout == *layout; });
  return found == reads.end() ? nullptr : &*found;
}

/// Whether the folding is of all elements of a small sample.
bool Requests::is_whole(const Folding& folding) const noexcept {
  return sample_.small() && folding.over_all && sample_.numel() != 1;
}

void Requests::ask(const Folding& folding, Needs needs) {
  if (is_whole(folding)) return ask_total(needs);
  if (!sample_.plain()) return;
  const auto layout = sample_.layout(folding);
  if (!layout) return;
  Read& read = request(*layout);
  read.summarize = true;
  read.needs = read.needs | needs;
}

void Requests::ask_bins(const Folding& folding, const Edges& edges) {
  const auto layout = sample_.layout(folding);
  if (!sample_.plain() || !layout || !has_bins(*layout)) return;
  auto& countings = request(*layout).countings;
  const bool asked = std::any_of(countings.begin(), countings.end(),
                                 [&](const Read::Counting& one) { return one.edges == edges; });
  if (!asked) countings.push_back({edges, {}});
}

void Requests::ask_bits(const Folding& folding, BitBins bins) {
  const auto layout = sample_.layout(folding);
  if (!layout || !has_bit_counts(*layout)) return;
  auto& countings = request(*layout).bit_countings;
  const bool asked = std::any_of(countings.begin(), countings.end(), [&](const Read::BitCounting& one) {
    return one.bins.mantissa_bits == bins.mantissa_bits;
  });
  if (!asked) countings.push_back({bins, {}});
}

/// Whether the total of a small sample comes from other reads, which suffice unless moments are needed.
bool Requests::total_of_reads() const noexcept {
  return sample_.plain() && total_ && !total_->moments && reads_.has_value();
}

const Summary& Requests::whole() const {
  if (!whole_) whole_ = summarize(*sample_.memory(), *total_);
  return *whole_;
}

const Read& Requests::done(Read& read) const {
  if (!read.done) {
    // The first read has the total, too.
    const bool has_total = sample_.plain() && total_ && (!sample_.small() || total_of_reads());
    if (has_total && &read == &reads_->all.front()) {
      read.summarize = true;
      read.needs = read.needs | *total_;
    }
    sample_.read(read);
  }
  return read;
}

c10::ArrayRef<Summary> Requests::summaries(const Folding& folding) const {
  if (is_whole(folding)) return total_ ? c10::ArrayRef<Summary>(whole()) : c10::ArrayRef<Summary>();
  Read* const read = !reads_ ? nullptr : find(sample_.layout(folding));
  if (read == nullptr || !read->summarize) return {};
  return done(*read).kept;
}

std::optional<Summary> Requests::total() const {
  if (!total_) return std::nullopt;
  if (sample_.small() && !total_of_reads()) return whole();
  if (!sample_.plain()) return std::nullopt;
  if (!reads_) reads_.emplace().all.emplace_back().layout = Layout{1, 1, sample_.numel(), 1};
  Summary total;
  for (const auto& one : done(reads_->all.front()).kept) total.merge(one);
  return total;
}

bool Requests::count_bins(const Folding& folding, const Edges& edges, std::int64_t* slots) const {
  const auto layout = sample_.layout(folding);
  if (!sample_.plain() || !layout || !has_bins(*layout)) return false;
  const auto add = [&](const Read& read) {
    for (const auto& counting : read.countings) {
      if (counting.edges != edges) continue;
      std::transform(counting.slots.begin(), counting.slots.end(), slots, slots, std::plus<>());
      return true;
    }
    return false;
  };
  Read* const read = find(layout);
  if (read != nullptr && add(done(*read))) return true;
  Read own;
  own.layout = *layout;
  own.countings.push_back({edges, {}});
  sample_.read(own);
  return add(own);
}

const std::vector<SlotCounts>* Requests::count_bits(const Folding& folding, BitBins bins) const {
  Read* const read = !reads_ ? nullptr : find(sample_.layout(folding));
  if (read == nullptr) return nullptr;
  for (const auto& counting : read->bit_countings) {
    if (counting.bins.mantissa_bits != bins.mantissa_bits) continue;
    (void)done(*read);
    return &counting.kept;
  }
  return nullptr;
}

}  // namespace torchtap::reductions::detail
