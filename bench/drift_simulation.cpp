// False alarms and power of `views::monitor::DriftTest` on what a small CNN makes of Fashion-MNIST, as tables
// of docs/benchmarks.md.
//
// usage: bench_drift_simulation FILE [WINDOWS]
//
// FILE is of bench/python/drift_rows.py. Windows are made of rows (images) that are neither in the reference
// nor trained on; the statistic is the library's own.
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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
  return {{"counts", counts},
          {"zeros", zeros},
          {"low", ends(place.low)},
          {"high", ends(place.high)},
          {"rows", rows}};
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

void false_alarms(const Data& data, const char* what, std::size_t blocks, std::size_t batch, bool correlated,
                  std::size_t n, std::size_t windows) {
  const auto tests = learn(data, blocks, batch, correlated, n);
  const std::size_t set = data.sets.at("further");
  std::size_t all = 0, worst = 0, with_size = 0;
  for (std::size_t place = 0; place < data.places.size(); ++place) {
    Source source(data.labels[set], correlated, 1000 + place);
    std::size_t mine = 0;
    for (std::size_t window = 0; window < windows; ++window) {
      const Drift drift = tests[place].compare(results_of(data.places[place], set, {source.next(n)}));
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
          const Drift drift = tests[place].compare(results_of(data.places[place], set, {source.next(n)}));
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

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_drift_simulation FILE [WINDOWS]\n");
    return 2;
  }
  const Data data = read_data(argv[1]);
  const std::size_t windows = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1000000;
  std::printf(
      "| reference | rows of a window | windows × places | T² beyond its limit | a window and place (95 %%) "
      "| worst "
      "place | and PSI ≥ 0.02 |\n|---|---|---|---|---|---|---|\n");
  for (const std::size_t n : {64, 256}) {
    const std::size_t of_n = std::max<std::size_t>(1, windows * 64 / n);
    false_alarms(data, "312 batches of 32", 312, 32, false, n, of_n);
    false_alarms(data, "100 batches of 100", 100, 100, false, n, of_n / 4);
    false_alarms(data, "512 batches of 32, classes in runs", 512, 32, true, n, of_n / 4);
  }
  std::printf(
      "\n| corruption | rows of a window | severity 1 | 2 | 3 | 4 | 5 |\n|---|---|---|---|---|---|---|\n");
  for (const std::size_t n : {64, 256}) power(data, n);
}
