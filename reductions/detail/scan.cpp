#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <functional>
#include <mutex>
#include <numeric>
#include <torchtap/core/detail/recording_mode.hpp>
#include <torchtap/reductions/detail/kernels.hpp>
#include <torchtap/reductions/detail/scan.hpp>

namespace torchtap::reductions::detail {
namespace {

constexpr std::int64_t kPiece = 65536;  // elements: some 20 us, and more than enough pieces for all threads
constexpr std::int64_t kUnits = 64;     // beyond that there is no need to cut what is kept together
constexpr std::int64_t kShortRun = 32;  // elements: below, starting costs more than summing
constexpr std::int64_t kNarrow = 64;    // columns: below, several rows are taken as one

std::int64_t parts(std::int64_t whole, std::int64_t part) {
  return (whole + part - 1) / part;
}

/// All that the kernels know how to read; of what is left, ATen knows more.
bool is_plain(const at::Tensor& sample) {
  if (kernels() == nullptr || !sample.defined() || !sample.device().is_cpu() ||
      sample.layout() != c10::kStrided || !sample.has_storage() || sample.is_neg() ||
      sample._is_zerotensor() || sample.numel() == 0)
    return false;
  const auto type = sample.scalar_type();
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

Bins bins_of(const Edges& edges) {
  return {static_cast<std::int64_t>(edges->size()) - 1, edges->front(), edges->back(), edges->data()};
}

/// Can values be counted without ATen, in bins of their own for everything that is kept?
bool has_bins(const Layout& layout) {
  constexpr std::int64_t kLongRun = 512;  // elements: below, clearing counters costs more than counting
  return layout.columns == 1 && (layout.kept == 1 || layout.inner >= kLongRun);
}

/// Reads a layout with `Kernels`: cut into pieces, each with results of its own for everything that is kept.
class Reader {
 public:
  Reader(const at::Tensor& contiguous, Read& read)
      : type_(contiguous.scalar_type()),
        data_(static_cast<const char*>(contiguous.data_ptr())),
        item_(static_cast<std::int64_t>(contiguous.element_size())),
        read_(read),
        layout_(read.layout),
        numel_(contiguous.numel()) {}

  void read() {
    for (auto& counting : read_.countings)
      counting.slots.resize(static_cast<std::size_t>(layout_.kept) * (counting.edges->size() + 2));
    if (layout_.columns == 1 && (layout_.inner >= kShortRun || layout_.outer == 1)) {  // all that has bins
      read_runs();
    } else {
      read_columns();
    }
    if (read_.summarize) {
      read_.kept.assign(results_.begin(), results_.begin() + kept_);
      for (std::size_t i = static_cast<std::size_t>(kept_); i < results_.size(); ++i)
        read_.kept[i % static_cast<std::size_t>(kept_)].merge(results_[i]);
    }
    read_.done = true;
  }

 private:
  const void* at(std::int64_t element) const { return data_ + element * item_; }

  template <class F>
  void each_unit(std::int64_t units, const F& f) const {
    parallel(units, numel_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t unit = begin; unit < end; ++unit) f(unit);
    });
  }

  /// How many groups the outer extent is cut into, if each of them has `units` units.
  std::int64_t groups(std::int64_t units) const {
    return std::clamp<std::int64_t>(parts(kUnits, units), 1, layout_.outer);
  }

  /// Each kept element has `outer` runs of `inner` elements.
  void read_runs() {
    const auto [outer, kept, inner, columns] = layout_;
    kept_ = kept;
    // Where nothing has to be put together in order, larger pieces are as good.
    const std::int64_t whole = read_.summarize ? kPiece : 16 * kPiece;
    const std::int64_t width = std::clamp<std::int64_t>(whole / inner, 1, kept);
    const std::int64_t ranges = parts(kept, width);
    const std::int64_t segments = inner >= 2 * whole ? parts(inner, whole) : 1;
    const std::int64_t segment = parts(inner, segments);
    const std::int64_t groups = this->groups(ranges * segments);
    const std::int64_t group = parts(outer, groups);
    if (read_.summarize) results_.resize(static_cast<std::size_t>(groups * segments * kept));
    each_unit(groups * segments * ranges, [&, outer = outer, kept = kept, inner = inner](std::int64_t unit) {
      const std::int64_t range = unit % ranges, piece = unit / ranges;
      const std::int64_t from = piece % segments * segment, n = std::min(segment, inner - from);
      if (n <= 0) return;
      for (std::int64_t i = piece / segments * group; i < std::min(outer, (piece / segments + 1) * group);
           ++i) {
        for (std::int64_t k = range * width; k < std::min(kept, (range + 1) * width); ++k) {
          const void* const x = at((i * kept + k) * inner + from);
          if (read_.summarize) {
            Summary run;
            kernels()->run(type_, x, static_cast<std::size_t>(n), read_.needs, &run);
            results_[static_cast<std::size_t>(piece * kept + k)].merge(run);
          }
          for (auto& counting : read_.countings) count(x, n, k, counting);  // what is in the cache now
        }
      }
    });
  }

  void count(const void* x, std::int64_t n, std::int64_t k, Read::Counting& counting) {
    const Bins bins = bins_of(counting.edges);
    const auto size = static_cast<std::size_t>(bins.bins + 3);
    std::vector<std::int64_t> counts(size, 0);  // below, bins, above, NaN
    kernels()->count_bins(type_, x, static_cast<std::size_t>(n), bins, counts.data());
    const std::lock_guard lock(mutex_);
    std::int64_t* const to = counting.slots.data() + k * (bins.bins + 3);
    std::transform(counts.begin() + 1, counts.end() - 2, to, to, std::plus<>());
    to[bins.bins] += counts[0];
    to[bins.bins + 1] += counts[size - 2];
    to[bins.bins + 2] += counts[size - 1];
  }

  /// Each pair of indices into `outer` and `kept` has a matrix of `inner` rows, and columns that are kept.
  void read_columns() {
    auto [outer, kept, inner, columns] = layout_;
    kept_ = kept * columns;
    std::int64_t run = 1;  // neighbouring columns that belong to one kept element
    if (columns == 1) {    // short runs: the elements of all of them as columns
      run = inner;
      columns = kept * inner;
      inner = outer;
      kept = outer = 1;
    }
    constexpr auto kMost = static_cast<std::int64_t>(Kernels::kColumns);
    const std::int64_t together = columns < kNarrow ? std::min(parts(kNarrow, columns), inner) : 1;
    const std::int64_t width = std::min(columns * together, kMost - kMost % run);
    const std::int64_t tiles = parts(columns * together, width);
    const std::int64_t rows = inner / together;  // and inner % together narrow ones
    const std::int64_t segments =
        std::clamp<std::int64_t>(rows * width / (4 * kPiece), 1, parts(kUnits, kept * tiles));
    const std::int64_t segment = parts(rows, segments);
    const std::int64_t groups = std::clamp<std::int64_t>(parts(kUnits, kept * tiles * segments), 1, outer);
    const std::int64_t group = parts(outer, groups);
    results_.resize(static_cast<std::size_t>(groups * segments * kept_));
    each_unit(groups * segments * kept * tiles, [&, outer = outer, kept = kept, inner = inner,
                                                 columns = columns](std::int64_t unit) {
      const std::int64_t tile = unit % tiles, matrix = unit / tiles % kept, piece = unit / tiles / kept;
      const std::int64_t first = piece % segments * segment, last = std::min(rows, first + segment);
      const std::int64_t column = tile * width, n = std::min(width, columns * together - column);
      std::array<Summary, Kernels::kColumns> found;
      const auto add = [&](std::int64_t element, std::int64_t height, std::int64_t across) {
        kernels()->columns(type_, at(element), static_cast<std::size_t>(height),
                           static_cast<std::size_t>(across), static_cast<std::size_t>(columns * together),
                           found.data());
        for (std::int64_t c = 0; c < across; ++c) {
          const std::int64_t k = matrix * columns + (column + c) % columns;
          results_[static_cast<std::size_t>(piece * kept_ + k / run)].merge(
              found[static_cast<std::size_t>(c)]);
        }
      };
      for (std::int64_t i = piece / segments * group; i < std::min(outer, (piece / segments + 1) * group);
           ++i) {
        const std::int64_t begin = (i * kept + matrix) * inner * columns;
        if (first < last) add(begin + first * columns * together + column, last - first, n);
        const std::int64_t rest = inner - rows * together;
        if (rest != 0 && piece % segments == segments - 1)
          add(begin + rows * together * columns, 1, rest * columns);
      }
    });
  }

  c10::ScalarType type_;
  const char* data_;
  std::int64_t item_;
  Read& read_;
  Layout layout_;
  std::int64_t numel_;
  std::int64_t kept_ = 1;
  std::vector<Summary> results_;  // [pieces, kept]
  std::mutex mutex_;              // for the counts in `read_`
};

}  // namespace

Scan::Scan(const at::Tensor& sample) : sample_(sample), plain_(is_plain(sample)) {
  if (!plain_) return;
  order_.resize(static_cast<std::size_t>(sample.dim()));
  std::iota(order_.begin(), order_.end(), 0);
  if (sample.is_contiguous()) {
    contiguous_ = sample;
    return;
  }
  // Channels last and other orders without gaps are as good.
  std::stable_sort(order_.begin(), order_.end(),
                   [&](auto a, auto b) { return sample.stride(a) > sample.stride(b); });
  const core::detail::RecordingMode quiet;
  const at::Tensor ordered = sample.detach().permute(order_);
  if (ordered.is_contiguous()) {
    contiguous_ = ordered;
  } else {
    std::iota(order_.begin(), order_.end(), 0);
    contiguous_ = sample.detach().contiguous();
  }
}

std::optional<Layout> Scan::layout(const Folding& folding) const {
  if (!plain_ || (folding.over.empty() && !folding.over_all)) return std::nullopt;
  const std::int64_t dim = sample_.dim();
  std::vector<char> is_folded(static_cast<std::size_t>(dim), folding.over_all ? 1 : 0);
  for (const auto over : folding.over) {
    if (over < -dim || over >= dim) return std::nullopt;
    is_folded[static_cast<std::size_t>(over < 0 ? over + dim : over)] = 1;
  }
  Layout layout;
  std::int64_t* const extents[] = {&layout.outer, &layout.kept, &layout.inner, &layout.columns};
  std::size_t group = 0;
  std::int64_t last_kept = -1;
  for (const auto i : order_) {
    if (sample_.size(i) == 1) continue;
    const bool kept = is_folded[static_cast<std::size_t>(i)] == 0;
    if (kept && i < last_kept) return std::nullopt;  // the results would be in another order
    if (kept) last_kept = i;
    while (group < 4 && (group % 2 == 1) != kept) ++group;
    if (group == 4) return std::nullopt;
    *extents[group] *= sample_.size(i);
  }
  if (layout.outer * layout.inner == 1) return std::nullopt;  // a single row is elementwise
  if (layout.kept == 1 && layout.columns == 1) {              // one row of folded dimensions is one run
    layout.inner *= layout.outer;
    layout.outer = 1;
  }
  return layout;
}

Read& Scan::request(const Layout& layout) {
  if (Read* const found = find(layout)) return *found;
  reads_.emplace_back().layout = layout;
  return reads_.back();
}

Read* Scan::find(const std::optional<Layout>& layout) const {
  const auto found = std::find_if(reads_.begin(), reads_.end(),
                                  [&](const Read& read) { return layout && read.layout == *layout; });
  return found == reads_.end() ? nullptr : &*found;
}

void Scan::ask(const Folding& folding, Needs needs) {
  const auto layout = this->layout(folding);
  if (!layout) return;
  Read& read = request(*layout);
  read.summarize = true;
  read.needs = read.needs | needs;
}

void Scan::ask_total(Needs needs) {
  total_ = total_.value_or(Needs()) | needs;
}

void Scan::ask_bins(const Folding& folding, const Edges& edges) {
  const auto layout = this->layout(folding);
  if (!layout || !has_bins(*layout)) return;
  auto& countings = request(*layout).countings;
  const bool asked = std::any_of(countings.begin(), countings.end(),
                                 [&](const Read::Counting& one) { return one.edges == edges; });
  if (!asked) countings.push_back({edges, {}});
}

const Read& Scan::done(Read& read) const {
  if (!read.done) {
    if (&read == &reads_.front() && total_) {
      read.summarize = true;
      read.needs = read.needs | *total_;
    }
    Reader(contiguous_, read).read();
  }
  return read;
}

const std::vector<Summary>* Scan::answer(const Folding& folding) const {
  Read* const read = find(layout(folding));
  return read != nullptr && read->summarize ? &done(*read).kept : nullptr;
}

bool Scan::fold_moments(double count, at::Tensor& mean, at::Tensor& m2, at::Tensor& m3,
                        at::Tensor& m4) const {
  if (!plain_ || !std::is_sorted(order_.begin(), order_.end())) return false;
  const auto type = sample_.scalar_type();
  const char* x = static_cast<const char*>(contiguous_.data_ptr());
  const auto item = static_cast<std::int64_t>(contiguous_.element_size());
  double* const to[] = {mean.data_ptr<double>(), m2.data_ptr<double>(), m3.data_ptr<double>(),
                        m4.data_ptr<double>()};
  at::parallel_for(0, contiguous_.numel(), kPiece / 2, [&](std::int64_t begin, std::int64_t end) {
    kernels()->fold_moments(type, x + begin * item, static_cast<std::size_t>(end - begin), count,
                            to[0] + begin, to[1] + begin, to[2] + begin, to[3] + begin);
  });
  return true;
}

bool Scan::count_bins(const Folding& folding, const Edges& edges, std::int64_t* slots) const {
  const auto layout = this->layout(folding);
  if (!layout || !has_bins(*layout)) return false;
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
  Reader(contiguous_, own).read();
  return add(own);
}

void parallel(std::int64_t units, std::int64_t elements,
              const std::function<void(std::int64_t, std::int64_t)>& f) {
  at::parallel_for(0, units, elements < kPiece ? units : 1, f);
}

at::Tensor empty(at::IntArrayRef sizes, c10::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions().dtype(dtype));
}

std::optional<Summary> Scan::answer_total() const {
  if (!plain_ || !total_) return std::nullopt;
  if (reads_.empty()) reads_.emplace_back().layout = Layout{1, 1, sample_.numel(), 1};
  Summary total;
  for (const auto& one : done(reads_.front()).kept) total.merge(one);
  return total;
}

}  // namespace torchtap::reductions::detail
