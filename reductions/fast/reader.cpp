// Splits a sample into pieces, reads them with the kernels on several threads, and merges the results.

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>

#include <torchtap/reductions/fast/kernels.hpp>
#include <torchtap/reductions/fast/reader.hpp>

namespace torchtap::reductions::detail {
namespace {

constexpr std::int64_t kReadAtOnce = 65536;  // elements: about 20 us, and enough pieces for all threads
constexpr std::int64_t kUnits = 64;          // with this many units, kept elements need not be split further
constexpr std::int64_t kShortRun = 32;       // elements: below, the call overhead exceeds the summing
constexpr std::int64_t kNarrow = 64;         // columns: below, several rows are read as one
constexpr std::int64_t kJoined = 65536;  // bytes that `Kernels::run` takes as one, so that bits are the same

std::int64_t parts(std::int64_t whole, std::int64_t part) {
  return (whole + part - 1) / part;
}

/// Whether each kept element is read in runs, and not in columns.
bool has_runs(const Layout& layout) noexcept {
  return layout.columns == 1 && (layout.inner >= kShortRun || layout.outer == 1);
}

/// Counts numbers by their bits, on one thread, for one kept element after another.
class Tally {
 public:
  Tally(std::vector<Read::BitCounting>& countings, std::mutex& mutex) : countings_(countings), mutex_(mutex) {
    for (const auto& counting : countings)
      counts_.emplace_back(static_cast<std::size_t>(counting.bins.slots()));
  }

  void add(c10::ScalarType type, const void* x, std::int64_t n) {
    for (std::size_t i = 0; i < counts_.size(); ++i)
      bit_kernels().count(type, x, static_cast<std::size_t>(n), countings_[i].bins, counts_[i].data());
  }

  /// Hands over what was counted, as counts of the kept element `k`.
  void give(std::int64_t k) {
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      SlotCounts found;
      for (std::size_t slot = 0; slot < counts_[i].size(); ++slot) {
        std::int64_t& count = counts_[i][slot];
        if (count != 0) found.emplace_back(static_cast<std::uint32_t>(slot), count);
        count = 0;
      }
      const std::lock_guard lock(mutex_);
      SlotCounts& to = countings_[i].kept[static_cast<std::size_t>(k)];
      to.insert(to.end(), found.begin(), found.end());
    }
  }

 private:
  std::vector<Read::BitCounting>& countings_;
  std::mutex& mutex_;
  std::vector<std::vector<std::int64_t>> counts_;  // [countings, slots]
};

/// Reads a layout with `Kernels` in pieces, each with its own results for all kept elements.
class Reader {
 public:
  Reader(const Elements& elements, Read& read)
      : type_(elements.type),
        data_(elements.data),
        scattered_(elements.scattered),
        item_(static_cast<std::int64_t>(c10::elementSize(type_))),
        read_(read),
        layout_(read.layout),
        numel_(elements.numel) {}

  void read() {
    for (auto& counting : read_.countings)
      counting.slots.resize(static_cast<std::size_t>(layout_.kept * counting.edges->counters()));
    for (auto& counting : read_.bit_countings) counting.kept.resize(static_cast<std::size_t>(layout_.kept));
    if (has_runs(layout_)) {  // every layout that has bins
      read_runs();
    } else {
      read_columns();
    }
    if (read_.summarize) {
      for (std::size_t i = static_cast<std::size_t>(kept_); i < results_.size(); ++i)
        results_[i % static_cast<std::size_t>(kept_)].merge(results_[i]);
      results_.resize(static_cast<std::size_t>(kept_));
      read_.kept = std::move(results_);
    }
    read_.done = true;
  }

 private:
  const char* at(std::int64_t element) const { return data_ + element * item_; }
  /// The runs of index i in `outer`.
  const char* runs(std::int64_t i) const {
    const std::int64_t numel = layout_.kept * layout_.inner;
    if (scattered_.data == nullptr) return at(i * numel);
    const std::int64_t each = layout_.outer / static_cast<std::int64_t>(scattered_.rows.size());
    return scattered_.at(i / each) + i % each * numel * item_;
  }

  /// Fetches the beginning of a row that the processor cannot expect.
  void prefetch(const char* row) const {
    for (std::int64_t byte = 0; byte < std::min<std::int64_t>(2048, scattered_.bytes); byte += 64)
      __builtin_prefetch(row + byte);
  }

  /// Elements [from, from + n) of a single run of scattered rows, copied side by side: at most `kJoined`.
  const char* joined(std::int64_t from, std::int64_t n, std::unique_ptr<char[]>& room) const {
    if (room == nullptr) room.reset(new char[kJoined]);
    const std::int64_t first = from * item_, last = first + n * item_;
    for (std::int64_t at = first; at < last;) {
      const std::int64_t row = at / scattered_.bytes, inside = at % scattered_.bytes;
      const std::int64_t bytes = std::min(scattered_.bytes - inside, last - at);
      if (row + 1 < static_cast<std::int64_t>(scattered_.rows.size())) prefetch(scattered_.at(row + 1));
      std::memcpy(room.get() + (at - first), scattered_.at(row) + inside, static_cast<std::size_t>(bytes));
      at += bytes;
    }
    return room.get();
  }

  template <class F>
  void each_unit(std::int64_t units, const F& f) const {
    parallel(units, numel_, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t unit = begin; unit < end; ++unit) f(unit);
    });
  }

  /// Number of groups to split the outer extent into if each has `units` units.
  std::int64_t groups(std::int64_t units) const {
    return std::clamp<std::int64_t>(parts(kUnits, units), 1, layout_.outer);
  }

  /// Adds elements of kept element k to the answers of a piece.
  void take(const void* x, std::int64_t n, std::int64_t k, std::int64_t piece, Tally& tally) {
    if (read_.summarize) {
      Summary run;
      kernels()->run(type_, x, static_cast<std::size_t>(n), read_.needs, &run);
      results_[static_cast<std::size_t>(piece * kept_ + k)].merge(run);
    }
    for (auto& counting : read_.countings) count(x, n, k, counting);  // while the piece is in the cache
    tally.add(type_, x, n);
  }

  /// Each kept element has `outer` runs of `inner` elements.
  void read_runs() {
    const auto [outer, kept, inner, columns] = layout_;
    kept_ = kept;
    // Counts need not be combined in order, so larger pieces work as well.
    const std::int64_t whole = read_.summarize ? kReadAtOnce : 16 * kReadAtOnce;
    const std::int64_t width = std::clamp<std::int64_t>(whole / inner, 1, kept);
    const std::int64_t ranges = parts(kept, width);
    const std::int64_t segments = inner >= 2 * whole ? parts(inner, whole) : 1;
    const std::int64_t segment = parts(inner, segments);
    const std::int64_t groups = this->groups(ranges * segments);
    const std::int64_t group = parts(outer, groups);
    if (read_.summarize) results_.resize(static_cast<std::size_t>(groups * segments * kept));
    const bool joins = scattered_.data != nullptr && outer == 1;
    const auto read_unit = [&, outer = outer, kept = kept, inner = inner](std::int64_t unit, Tally& tally,
                                                                          std::unique_ptr<char[]>& room) {
      const std::int64_t range = unit % ranges, piece = unit / ranges;
      const std::int64_t from = piece % segments * segment, n = std::min(segment, inner - from);
      if (n <= 0) return;
      const std::int64_t first = piece / segments * group, last = std::min(outer, first + group);
      const auto read_run = [&](const char* runs, std::int64_t k) {
        if (!joins) return take(runs + (k * inner + from) * item_, n, k, piece, tally);
        const std::int64_t most = kJoined / item_;
        for (std::int64_t i = 0; i < n; i += most) {
          const std::int64_t part = std::min(most, n - i);
          take(joined(from + i, part, room), part, k, piece, tally);
        }
      };
      if (kept == 1 || read_.bit_countings.empty()) {
        for (std::int64_t i = first; i < last; ++i) {
          const char* const runs = joins ? nullptr : this->runs(i);
          if (scattered_.data != nullptr && i + 1 < outer) {  // the processor cannot know where it lies
            prefetch(this->runs(i + 1));
          }
          for (std::int64_t k = range * width; k < std::min(kept, (range + 1) * width); ++k)
            read_run(runs, k);
        }
      } else {  // one kept element after another: their tallies are large
        for (std::int64_t k = range * width; k < std::min(kept, (range + 1) * width); ++k) {
          for (std::int64_t i = first; i < last; ++i) read_run(joins ? nullptr : runs(i), k);
          tally.give(k);
        }
      }
    };
    const auto read_units = [&, kept = kept](std::int64_t begin, std::int64_t end) {
      Tally tally(read_.bit_countings, mutex_);
      std::unique_ptr<char[]> room;
      for (std::int64_t unit = begin; unit < end; ++unit) read_unit(unit, tally, room);
      if (kept == 1) tally.give(0);
    };
    const std::int64_t units = groups * segments * ranges;
    if (units == 1) return read_units(0, 1);  // say few rows of one key
    parallel(units, numel_, read_units);
  }

  void count(const void* x, std::int64_t n, std::int64_t k, Read::Counting& counting) {
    const std::int64_t counters = counting.edges->counters();
    std::vector<std::int64_t> counts(static_cast<std::size_t>(counters), 0);
    kernels()->count_bins(type_, x, static_cast<std::size_t>(n), *counting.edges, counts.data());
    const std::lock_guard lock(mutex_);
    std::int64_t* const to = counting.slots.data() + k * counters;
    std::transform(counts.begin(), counts.end(), to, to, std::plus<>());
  }

  /// Each pair of indices into `outer` and `kept` has a matrix of `inner` rows; its columns are kept.
  void read_columns() {
    auto [outer, kept, inner, columns] = layout_;
    kept_ = kept * columns;
    std::int64_t run = 1;  // neighbouring columns of one kept element
    if (columns == 1) {    // short runs: treat their elements as columns
      run = inner;
      columns = kept * inner;
      inner = outer;
      kept = outer = 1;
    }
    constexpr auto kMost = static_cast<std::int64_t>(Kernels::kColumns);
    const std::int64_t together = columns < kNarrow ? std::min(parts(kNarrow, columns), inner) : 1;
    const std::int64_t width = std::min(columns * together, kMost - kMost % run);
    const std::int64_t tiles = parts(columns * together, width);
    const std::int64_t rows = inner / together;  // the remaining inner % together rows are narrow
    const std::int64_t segments =
        std::clamp<std::int64_t>(rows * width / (4 * kReadAtOnce), 1, parts(kUnits, kept * tiles));
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
  Scattered scattered_;
  std::int64_t item_;
  Read& read_;
  Layout layout_;
  std::int64_t numel_;
  std::int64_t kept_ = 1;
  std::vector<Summary> results_;  // [pieces, kept]
  std::mutex mutex_;              // for the counts in `read_`
};

}  // namespace

bool has_bins(const Layout& layout) noexcept {
  constexpr std::int64_t kLongRun = 512;  // elements: below, clearing counters costs more than counting
  return layout.columns == 1 && (layout.kept == 1 || layout.inner >= kLongRun);
}

bool has_bit_counts(const Layout& layout) noexcept {
  constexpr std::int64_t kMany = 4096;  // elements: below, handing over a tally costs more than counting
  return layout.columns == 1 &&
         (layout.kept == 1 || (layout.inner >= kShortRun && layout.outer * layout.inner >= kMany));
}

bool reads_scattered(const Layout& layout, std::int64_t rows) noexcept {
  const bool single = layout.outer * layout.kept == 1;  // a piece of it is copied before it is read
  return has_runs(layout) && (layout.outer % rows == 0 || single);
}

void read(const Elements& elements, Read& read) {
  Reader(elements, read).read();
}

void parallel(std::int64_t units, std::int64_t elements,
              const std::function<void(std::int64_t, std::int64_t)>& f) {
  at::parallel_for(0, units, elements < kReadAtOnce ? units : 1, f);
}

}  // namespace torchtap::reductions::detail
