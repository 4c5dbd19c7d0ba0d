// False alarms and power of `views::monitor::DriftTest` on what a small CNN makes of Fashion-MNIST, as tables
// of views/monitor/README.md.
//
// usage: bench_drift_simulation FILE [WINDOWS]
//        bench_drift_simulation streams [REFERENCES [WINDOWS [SEED [KIND]]]]
//
// FILE is of views/monitor/bench/drift_rows.py. Windows are made of rows (images) that are neither in the
// reference nor trained on; the statistic is the library's own. "streams" needs no file: numbers one at a
// time, rows that follow each other, seasons, rare events, batches of many sizes; of each the windows that
// alarm on what goes on as it was learned, and of those with another distribution. The kinds from "uniform"
// on were added after the statistic was made: nothing in it was chosen by them.
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/core/value.hpp>
#include <torchtap/views/monitor/drift.hpp>

namespace {

using torchtap::core::Results;
using torchtap::views::monitor::Drift;
using torchtap::views::monitor::DriftOptions;
using torchtap::views::monitor::DriftTest;
using Rows = std::vector<std::size_t>;

struct Place {
  std::string name;
  std::vector<double> low, high;
  std::vector<std::vector<std::uint16_t>> counts;  // of each set, [images, bins + 1]

  std::size_t width() const { return low.size() + 1; }
};

struct Data {
  std::map<std::string, std::size_t> sets;
  std::vector<std::vector<std::uint8_t>> labels;  // of each set
  std::vector<Place> places;

  std::size_t size(std::size_t set) const { return labels[set].size(); }
};

template <class T>
std::vector<T> read(std::istream& in, std::size_t count) {
  std::vector<T> numbers(count);
  in.read(reinterpret_cast<char*>(numbers.data()), static_cast<std::streamsize>(count * sizeof(T)));
  if (!in) throw std::runtime_error("the file is cut off");
  return numbers;
}

std::string read_text(std::istream& in) {
  const auto bytes = read<char>(in, read<std::uint64_t>(in, 1)[0]);
  return {bytes.begin(), bytes.end()};
}

Data read_data(const char* file) {
  std::ifstream in(file, std::ios::binary);
  Data data;
  const auto numbers = read<std::uint64_t>(in, 2);
  for (std::uint64_t i = 0; i < numbers[0]; ++i) {
    data.sets.emplace(read_text(in), i);
    data.labels.push_back(read<std::uint8_t>(in, read<std::uint64_t>(in, 1)[0]));
  }
  for (std::uint64_t i = 0; i < numbers[1]; ++i) {
    Place place;
    place.name = read_text(in);
    const auto bins = read<std::uint64_t>(in, 1)[0];
    place.low = read<double>(in, bins);
    place.high = read<double>(in, bins);
    for (std::size_t set = 0; set < data.labels.size(); ++set)
      place.counts.push_back(read<std::uint16_t>(in, data.size(set) * place.width()));
    data.places.push_back(std::move(place));
  }
  return data;
}

/// Chooses rows: independent ones, or so that the next has the class of the one before with probability 0.9.
class Source {
 public:
  Source(const std::vector<std::uint8_t>& labels, bool correlated, std::uint64_t seed)
      : random_(seed), size_(labels.size()), correlated_(correlated), of_class_(10) {
    for (std::size_t i = 0; i < labels.size(); ++i) of_class_[labels[i]].push_back(i);
  }
  std::size_t next() {
    if (!correlated_) return below(size_);
    if (below(10) == 0) class_ = below(10);
    return of_class_[class_][below(of_class_[class_].size())];
  }
  Rows next(std::size_t n) {
    Rows rows(n);
    for (auto& row : rows) row = next();
    return rows;
  }

 private:
  std::size_t below(std::size_t n) { return (random_() >> 32) * n >> 32; }

  std::mt19937_64 random_;
  std::size_t size_;
  bool correlated_;
  std::vector<Rows> of_class_;
  std::size_t class_ = 0;
};

/// As the results of `Blocks`, of blocks of rows.
Results results_of(const Place& place, std::size_t set, const std::vector<Rows>& blocks) {
  const auto bins = static_cast<std::int64_t>(place.low.size()), b = static_cast<std::int64_t>(blocks.size());
  const auto whole = at::TensorOptions().dtype(at::kLong), real = at::TensorOptions().dtype(at::kDouble);
  at::Tensor counts = at::empty({b, bins}, whole), zeros = at::empty({b}, whole),
             rows = at::empty({b}, whole);
  std::vector<std::int32_t> sums(place.width());
  for (std::int64_t block = 0; block < b; ++block) {
    std::fill(sums.begin(), sums.end(), 0);
    const Rows& of_block = blocks[static_cast<std::size_t>(block)];
    for (const std::size_t row : of_block) {
      const std::uint16_t* const from = place.counts[set].data() + row * place.width();
      for (std::size_t i = 0; i < place.width(); ++i) sums[i] += from[i];
    }
    std::copy(sums.begin(), sums.end() - 1, counts.data_ptr<std::int64_t>() + block * bins);
    zeros.data_ptr<std::int64_t>()[block] = sums.back();
    rows.data_ptr<std::int64_t>()[block] = static_cast<std::int64_t>(of_block.size());
  }
  const auto ends = [&](const std::vector<double>& of) {
    return at::from_blob(const_cast<double*>(of.data()), {bins}, real);
  };
  return {{"counts", counts},         {"zeros", zeros}, {"low", ends(place.low)},
          {"high", ends(place.high)}, {"rows", rows},   {"samples", at::ones({b}, whole)}};
}

/// One test for each place.
std::vector<DriftTest> learn(const Data& data, std::size_t blocks, std::size_t batch, bool correlated,
                             std::size_t n) {
  const std::size_t set = data.sets.at("reference");
  std::vector<Rows> chosen(blocks);
  Source source(data.labels[set], correlated, 7);
  std::size_t at = 0;
  for (auto& block : chosen) {
    if (correlated) {
      block = source.next(batch);
    } else {
      for (std::size_t i = 0; i < batch; ++i) block.push_back(at++);
    }
  }
  DriftOptions options;
  options.rows = static_cast<std::int64_t>(n);
  std::vector<DriftTest> tests;
  for (const auto& place : data.places) tests.emplace_back(results_of(place, set, chosen), options);
  return tests;
}

/// Batches of `batch` rows, as many as have `n` rows.
std::vector<Rows> window_of(Source& source, std::size_t batch, std::size_t n) {
  std::vector<Rows> blocks;
  for (std::size_t rows = 0; rows < n; rows += batch) blocks.push_back(source.next(batch));
  return blocks;
}

void false_alarms(const Data& data, const char* what, std::size_t blocks, std::size_t batch, bool correlated,
                  std::size_t n, std::size_t windows) {
  const auto tests = learn(data, blocks, batch, correlated, n);
  const std::size_t set = data.sets.at("further");
  std::size_t all = 0, worst = 0, with_size = 0;
  for (std::size_t place = 0; place < data.places.size(); ++place) {
    Source source(data.labels[set], correlated, 1000 + place);
    std::size_t mine = 0;
    for (std::size_t window = 0; window < windows; ++window) {
      const Drift drift =
          tests[place].compare(results_of(data.places[place], set, window_of(source, batch, n)));
      mine += drift.t2 > drift.limit ? 1 : 0;
      with_size += drift.drifted ? 1 : 0;
    }
    all += mine;
    worst = std::max(worst, mine);
  }
  const double judged = static_cast<double>(windows * tests.size());
  // The 95 % interval of a Poisson variable, by the cubes of Wilson and Hilferty.
  const auto cube = [](double k, double z) {
    return k <= 0 ? 0 : k * std::pow(1 - 1 / (9 * k) + z / (3 * std::sqrt(k)), 3);
  };
  const double least = cube(static_cast<double>(all), -1.96), most = cube(static_cast<double>(all + 1), 1.96);
  std::printf("| %s | %zu | %zu × %zu | %zu | %.1e (%.0e to %.0e) | %zu | %zu |\n", what, n, windows,
              tests.size(), all, static_cast<double>(all) / judged, least / judged, most / judged, worst,
              with_size);
  std::fflush(stdout);
}

void power(const Data& data, std::size_t n) {
  constexpr std::size_t windows = 300;
  const auto tests = learn(data, 312, 32, false, n);
  for (const char* const kind : {"noise", "blur", "brightness", "contrast", "rotation"}) {
    std::printf("| %s | %zu |", kind, n);
    for (int severity = 1; severity <= 5; ++severity) {
      const std::size_t set = data.sets.at(std::string(kind) + " " + std::to_string(severity));
      std::vector<double> t2(windows, 0), alarm(windows, 0);
      double psi = 0;
      for (std::size_t place = 0; place < tests.size(); ++place) {
        Source source(data.labels[set], false, 99);  // the same rows in all places
        std::vector<double> sizes;
        for (std::size_t window = 0; window < windows; ++window) {
          const Drift drift =
              tests[place].compare(results_of(data.places[place], set, window_of(source, 32, n)));
          if (drift.t2 > drift.limit) t2[window] = 1;
          if (drift.drifted) alarm[window] = 1;
          sizes.push_back(drift.psi);
        }
        std::nth_element(sizes.begin(), sizes.begin() + windows / 2, sizes.end());
        psi = std::max(psi, sizes[windows / 2]);
      }
      const auto share = [](const std::vector<double>& hits) {
        double sum = 0;
        for (const double hit : hits) sum += hit / windows;
        return sum;
      };
      std::printf(" %.2f, %.2f (%.3f) |", share(t2), share(alarm), psi);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

/// A generator of batches, each of which may follow the one before.
struct Stream {
  std::mt19937_64 random;
  std::normal_distribution<double> normals;
  double level = 0;
  std::int64_t batches = 0;

  double normal() { return normals(random); }
  double uniform() { return std::uniform_real_distribution<double>()(random); }
  double step(double by) { return level = by * level + std::sqrt(1 - by * by) * normal(); }
};
using Batch = std::vector<double>;
using Next = std::function<Batch(Stream& stream, int rows)>;

Batch filled(int size, const std::function<double()>& next) {
  Batch batch(static_cast<std::size_t>(size));
  for (double& value : batch) value = next();
  return batch;
}

struct Situation {
  const char* name;
  int blocks, least_rows, most_rows;  // of a batch
  Next next;
  double factor, shift;  // of the other distribution
};

std::vector<Situation> situations() {
  const auto normal = [](int width) -> Next {
    return [=](Stream& s, int n) { return filled(n * width, [&] { return s.normal(); }); };
  };
  const auto lognormal = [](Stream& s, int n) { return filled(n, [&] { return std::exp(2 * s.normal()); }); };
  const auto rare = [](double share, double scale) -> Next {
    return [=](Stream& s, int n) {
      const double by = s.uniform() < share ? scale : 1;
      return filled(n * 10, [&] { return by * s.normal(); });
    };
  };
  const auto zero_but = [](double share) -> Next {
    return [=](Stream& s, int n) {
      const bool on = s.uniform() < share;
      return filled(n * 10, [&] { return on ? s.normal() : 0; });
    };
  };
  const auto follow = [](double by, int width) -> Next {
    return [=](Stream& s, int n) {
      Batch batch;
      for (int row = 0; row < n; ++row) {
        s.step(by);
        for (int i = 0; i < width; ++i) batch.push_back(s.level + (width == 1 ? 0 : s.normal()));
      }
      return batch;
    };
  };
  const auto season = [](int period) -> Next {
    return [=](Stream& s, int n) {
      const double level = std::sin(2 * M_PI * static_cast<double>(s.batches++) / period);
      return filled(n * 10, [&] { return s.normal() + level; });
    };
  };
  const auto each = [](int width, double (*value)(Stream&)) -> Next {
    return [=](Stream& s, int n) { return filled(n * width, [&] { return value(s); }); };
  };
  const auto uniform = [](Stream& s) { return s.uniform(); };
  const auto heavy = [](Stream& s) { return std::student_t_distribution<double>(2)(s.random); };
  const auto cauchy = [](Stream& s) { return std::cauchy_distribution<double>()(s.random); };
  const auto poisson = [](Stream& s) { return double(std::poisson_distribution<int>(3)(s.random)); };
  const auto digit = [](Stream& s) { return std::floor(10 * s.uniform()); };
  const auto inflated = [](Stream& s) { return s.uniform() < 0.9 ? 0 : std::exp(s.normal()); };
  const auto softmax = [](Stream& s, int n) {
    Batch batch;
    for (int row = 0; row < n; ++row) {
      Batch of = filled(10, [&] { return std::exp(3 * s.normal()); });
      const double sum = std::accumulate(of.begin(), of.end(), 0.0);
      for (const double one : of) batch.push_back(one / sum);
    }
    return batch;
  };
  const auto two_kinds = [](Stream& s, int n) {
    const bool first = s.uniform() < 0.7;
    return filled(n * 10, [&] { return first ? s.normal() : 3 + s.normal() / 2; });
  };
  const auto sinusoid = [](int period, int width) -> Next {
    return [=](Stream& s, int n) {
      Batch batch;
      for (int row = 0; row < n; ++row, ++s.batches) {
        const double level = 2 * std::sin(2 * M_PI * static_cast<double>(s.batches) / period);
        for (int i = 0; i < width; ++i) batch.push_back(level + s.normal() / 2);
      }
      return batch;
    };
  };
  const auto by_batches = [](Stream& s, int n) {
    s.step(0.8);
    return filled(n * 10, [&] { return s.level + s.normal(); });
  };
  const auto bursts = [](Stream& s, int n) {  // of 10 batches, in 5 % of the time
    s.level = s.level != 0 ? s.uniform() < 0.9 : s.uniform() < 0.1 / 19;
    const double by = s.level != 0 ? 3 : 1;
    return filled(n * 10, [&] { return by * s.normal(); });
  };
  const auto customers = [](Stream& s, int n) {
    const double scale = std::exp(s.normal());
    return filled(n * 10, [&] { return scale * s.normal(); });
  };
  return {{"normal [1, 1]", 100, 1, 1, normal(1), 1, 1},
          {"normal [1, 1]", 400, 1, 1, normal(1), 1, 1},
          {"lognormal [1, 1]", 100, 1, 1, lognormal, 3, 0},
          {"lognormal [1, 1]", 400, 1, 1, lognormal, 3, 0},
          {"normal [1, 10]", 100, 1, 1, normal(10), 1, 0.5},
          {"normal [32, 10]", 100, 32, 32, normal(10), 1, 0.3},
          {"normal [32, 10]", 400, 32, 32, normal(10), 1, 0.2},
          {"normal [256, 10]", 400, 256, 256, normal(10), 1, 0.2},
          {"normal [1 to 64, 10]", 100, 1, 64, normal(10), 1, 0.3},
          {"another scale for each batch [32, 10]", 100, 32, 32, customers, 4, 0},
          {"another scale for each batch [1, 10]", 400, 1, 1, customers, 3, 0},
          {"2 % of batches five times as wide [32, 10]", 100, 32, 32, rare(0.02, 5), 1, 0.4},
          {"2 % of batches five times as wide [32, 10]", 400, 32, 32, rare(0.02, 5), 1, 0.4},
          {"1 % of batches 1.5 times as wide [32, 10]", 100, 32, 32, rare(0.01, 1.5), 1, 0.4},
          {"0.5 % of batches not zero [32, 10]", 400, 32, 32, zero_but(0.005), 1, 1},
          {"3 % of batches not zero [32, 10]", 100, 32, 32, zero_but(0.03), 1, 1},
          {"0.5 of the row before [32, 10]", 100, 32, 32, follow(0.5, 10), 1, 1},
          {"0.9 of the row before [32, 1]", 100, 32, 32, follow(0.9, 1), 1, 1},
          {"0.97 of the row before [32, 10]", 100, 32, 32, follow(0.97, 10), 1, 2},
          {"0.97 of the row before [32, 10]", 400, 32, 32, follow(0.97, 10), 1, 2},
          {"0.99 of the row before [32, 1]", 400, 32, 32, follow(0.99, 1), 1, 4},
          {"0.9 of the row before [1, 10]", 100, 1, 1, follow(0.9, 10), 1, 4},
          {"0.9 of the row before [1, 10]", 400, 1, 1, follow(0.9, 10), 1, 4},
          {"a season of 24 batches [32, 10]", 400, 32, 32, season(24), 1, 2},
          {"a season of 100 batches [32, 10]", 400, 32, 32, season(100), 1, 2},
          {"uniform [1, 1]", 100, 1, 1, each(1, uniform), 1, 0.5},
          {"integers from 0 to 9 [1, 1]", 100, 1, 1, each(1, digit), 1, 4},
          {"Cauchy [1, 1]", 400, 1, 1, each(1, cauchy), 1, 2},
          {"Student's t, 2 degrees [32, 10]", 100, 32, 32, each(10, heavy), 1, 0.3},
          {"Poisson of 3 [32, 10]", 100, 32, 32, each(10, poisson), 1, 1},
          {"0.9 zeros, else lognormal [32, 10]", 100, 32, 32, each(10, inflated), 2, 0},
          {"0.9 zeros, else lognormal [1, 10]", 400, 1, 1, each(10, inflated), 2, 0},
          {"softmax [32, 10]", 100, 32, 32, softmax, 0.5, 0},
          {"normal [32, 128]", 400, 32, 32, normal(128), 1, 0.2},
          {"normal [1 to 512, 3]", 100, 1, 512, normal(3), 1, 0.3},
          {"batches of two kinds, 7 to 3 [32, 10]", 100, 32, 32, two_kinds, 1, 1},
          {"batches of two kinds, 7 to 3 [32, 10]", 400, 32, 32, two_kinds, 1, 1},
          {"0.5 of the row before [1, 1]", 100, 1, 1, follow(0.5, 1), 1, 2},
          {"0.5 of the row before [1, 1]", 400, 1, 1, follow(0.5, 1), 1, 2},
          {"0.8 of the batch before [32, 10]", 100, 32, 32, by_batches, 1, 3},
          {"0.8 of the batch before [32, 10]", 400, 32, 32, by_batches, 1, 3},
          {"a sinusoid of 37 rows [1, 10]", 400, 1, 1, sinusoid(37, 10), 1, 2},
          {"a sinusoid of 1000 rows [32, 10]", 400, 32, 32, sinusoid(1000, 10), 1, 2},
          {"bursts of 10 batches three times as wide [32, 10]", 100, 32, 32, bursts, 1, 1},
          {"bursts of 10 batches three times as wide [32, 10]", 400, 32, 32, bursts, 1, 1}};
}

/// As the results of `reductions::Blocks`, a block for each batch; many times as fast for batches of one
/// value.
Results blocks_of(const Situation& of, Stream& stream, std::int64_t blocks, std::int64_t rows, double factor,
                  double shift) {
  constexpr std::size_t most_bins = 4096;  // by sign, exponent and three bits of the mantissa
  std::vector<std::int64_t> counts, zeros, rows_of;
  std::int64_t folded = 0;
  std::vector<std::size_t> column(most_bins, most_bins), bins;
  std::vector<std::pair<std::size_t, std::size_t>> found;  // block and column
  for (std::int64_t at = 0; at < blocks || folded < rows; ++at) {
    const int n = of.least_rows + static_cast<int>(stream.uniform() * (of.most_rows - of.least_rows + 1));
    zeros.push_back(0);
    for (const double value : of.next(stream, n)) {
      const auto number = static_cast<float>(value * factor + shift);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &number, sizeof(bits));
      const std::size_t bin = bits >> 20;
      if (number == 0) {
        ++zeros.back();
      } else {
        if (column[bin] == most_bins) column[bin] = bins.size(), bins.push_back(bin);
        found.emplace_back(static_cast<std::size_t>(at), column[bin]);
      }
    }
    rows_of.push_back(n);
    folded += n;
  }
  counts.assign(zeros.size() * bins.size(), 0);
  for (const auto& [block, bin] : found) ++counts[block * bins.size() + bin];
  const auto edge = [](std::size_t bin) {
    const auto bits = static_cast<std::uint32_t>(bin << 20);
    float number = 0;
    std::memcpy(&number, &bits, sizeof(bits));
    return static_cast<double>(number);
  };
  std::vector<double> low, high;
  for (const std::size_t bin : bins) {
    const double one = edge(bin), other = edge(bin + 1);  // away from zero
    low.push_back(std::min(one, other)), high.push_back(std::max(one, other));
  }
  const auto b = static_cast<std::int64_t>(zeros.size()), k = static_cast<std::int64_t>(bins.size());
  return {{"counts", at::tensor(counts).view({b, k})},
          {"zeros", at::tensor(zeros)},
          {"low", at::tensor(low)},
          {"high", at::tensor(high)},
          {"rows", at::tensor(rows_of)},
          {"samples", at::ones({b}, at::kLong)}};
}

/// Windows of 256 rows, or of as many of these as are judged: how many there are, and how many alarm.
std::pair<std::size_t, std::size_t> judged(const Situation& of, const DriftTest& test, Stream& stream,
                                           std::size_t windows, double factor, double shift) {
  std::pair<std::size_t, std::size_t> found{0, 0};
  std::vector<Results> held;
  for (std::size_t i = 0; i < windows; ++i) {
    held.push_back(blocks_of(of, stream, 0, 256, factor, shift));
    const Drift drift = test.compare(held);
    if (std::isinf(drift.limit)) continue;
    held.clear();
    ++found.first;
    found.second += drift.drifted ? 1 : 0;
  }
  return found;
}

int streams(std::size_t references, std::size_t windows, std::uint64_t seed, const std::string& kind) {
  std::printf(
      "| rows | batches of the reference | references judged | windows | alarms | references with alarms "
      "| found |\n|---|---|---|---|---|---|---|\n");
  std::uint32_t number = 0;
  for (const Situation& of : situations()) {
    if (std::string(of.name).find(kind) == std::string::npos) continue;
    std::size_t judging = 0, all = 0, alarms = 0, alarming = 0, others = 0, found = 0;
    for (std::size_t i = 0; i < references; ++i) {
      std::seed_seq seeds{static_cast<std::uint32_t>(seed), ++number};
      Stream stream{std::mt19937_64(seeds), {}, 0, 0};
      const DriftTest test(blocks_of(of, stream, of.blocks, 0, 1, 0));
      if (!test.why_not().empty()) continue;
      ++judging;
      const auto same = judged(of, test, stream, windows, 1, 0);
      const auto other =
          judged(of, test, stream, std::max<std::size_t>(windows / 5, 20), of.factor, of.shift);
      all += same.first;
      alarms += same.second;
      alarming += same.second > 0 ? 1 : 0;
      others += other.first;
      found += other.second;
    }
    std::printf("| %s | %d | %zu of %zu | %zu | %zu | %zu | %.2f |\n", of.name, of.blocks, judging,
                references, all, alarms, alarming,
                others == 0 ? 0 : static_cast<double>(found) / static_cast<double>(others));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: bench_drift_simulation FILE [WINDOWS]\n       bench_drift_simulation streams "
                 "[REFERENCES [WINDOWS [SEED [KIND]]]]\n");
    return 2;
  }
  if (std::strcmp(argv[1], "streams") == 0)
    return streams(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 20,
                   argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 300,
                   argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 1, argc > 5 ? argv[5] : "");
  const Data data = read_data(argv[1]);
  const std::size_t windows = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1000000;
  std::printf(
      "| reference | rows of a window | windows × places | T² beyond its limit | a window and place (95 %%) "
      "| worst "
      "place | and PSI ≥ 0.02 |\n|---|---|---|---|---|---|---|\n");
  for (const std::size_t n : {256, 1024}) {
    const std::size_t of_n = std::max<std::size_t>(1, windows * 64 / n);
    false_alarms(data, "312 batches of 32", 312, 32, false, n, of_n);
    false_alarms(data, "100 batches of 100", 100, 100, false, n, of_n / 4);
    false_alarms(data, "512 batches of 32, classes in runs", 512, 32, true, n, of_n / 4);
  }
  std::printf(
      "\n| corruption | rows of a window | severity 1 | 2 | 3 | 4 | 5 |\n|---|---|---|---|---|---|---|\n");
  for (const std::size_t n : {128, 256}) power(data, n);
}
