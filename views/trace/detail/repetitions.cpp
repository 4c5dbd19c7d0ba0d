// The runs of a sequence, from its longest Lyndon words in both orders of the alphabet.
#include <algorithm>
#include <tuple>

#include <torchtap/base/split_mix.hpp>
#include <torchtap/views/trace/detail/repetitions.hpp>

namespace torchtap::views::trace::detail {
namespace {

/// Measures how far a sequence agrees with itself from, or before, two of its places.
class Extensions {
 public:
  explicit Extensions(const std::vector<std::int64_t>& sequence) : sequence_(sequence) {
    hashes_.reserve(sequence.size() + 1);
    powers_.reserve(sequence.size() + 1);
    hashes_.push_back(0);
    powers_.push_back(1);
    for (const std::int64_t element : sequence) {
      hashes_.push_back(reduced(product(hashes_.back(), kBase) + mixed(element)));
      powers_.push_back(product(powers_.back(), kBase));
    }
  }

  /// The length of the longest stretch that begins at both places, i < j.
  std::size_t after(std::size_t i, std::size_t j) const {
    return longest(sequence_.size() - j, [&](std::size_t size) { return hash(i, size) == hash(j, size); });
  }
  /// The length of the longest stretch that ends before both.
  std::size_t before(std::size_t i, std::size_t j) const {
    return longest(i, [&](std::size_t size) { return hash(i - size, size) == hash(j - size, size); });
  }

 private:
  static constexpr std::uint64_t kModulus = (std::uint64_t{1} << 61) - 1;
  static constexpr std::uint64_t kBase = 0x1f3d5b79a2c4e687;

  static std::uint64_t reduced(std::uint64_t value) {
    value = (value & kModulus) + (value >> 61);
    return value >= kModulus ? value - kModulus : value;
  }
  static std::uint64_t product(std::uint64_t a, std::uint64_t b) {
    const auto wide = static_cast<unsigned __int128>(a) * b;
    return reduced((static_cast<std::uint64_t>(wide) & kModulus) + static_cast<std::uint64_t>(wide >> 61));
  }
  /// Neighbouring numbers should not have neighbouring hashes.
  static std::uint64_t mixed(std::int64_t element) {
    return reduced(base::split_mix(static_cast<std::uint64_t>(element) + base::kGolden));
  }

  std::uint64_t hash(std::size_t begin, std::size_t size) const {
    return reduced(hashes_[begin + size] + kModulus - product(hashes_[begin], powers_[size]));
  }

  /// The largest size up to `limit` for which `same` holds; it holds for all smaller ones.
  template <class Same>
  static std::size_t longest(std::size_t limit, const Same& same) {
    std::size_t holds = 0;
    std::size_t step = 1;
    while (holds + step <= limit && same(holds + step)) {
      holds += step;
      step *= 2;
    }
    for (; step > 0; step /= 2) {
      if (holds + step <= limit && same(holds + step)) holds += step;
    }
    return holds;
  }

  const std::vector<std::int64_t>& sequence_;
  std::vector<std::uint64_t> hashes_;
  std::vector<std::uint64_t> powers_;
};

/// The end of the longest Lyndon word that begins at each place: there the next smaller suffix begins.
std::vector<std::size_t> lyndon_ends(const std::vector<std::int64_t>& sequence, const Extensions& extensions,
                                     bool ascending) {
  const std::size_t size = sequence.size();
  const auto smaller = [&](std::size_t i, std::size_t j) {
    const std::size_t common = extensions.after(i, j);
    if (j + common == size) return false;  // a suffix that ends first is the smaller one
    return (sequence[i + common] < sequence[j + common]) == ascending;
  };
  std::vector<std::size_t> ends(size);
  for (std::size_t i = size; i-- > 0;) {
    std::size_t j = i + 1;
    while (j < size && smaller(i, j)) j = ends[j];
    ends[i] = j;
  }
  return ends;
}

}  // namespace

std::vector<Repetition> runs(const std::vector<std::int64_t>& sequence) {
  const Extensions extensions(sequence);
  std::vector<Repetition> found;
  for (const bool ascending : {true, false}) {
    const std::vector<std::size_t> ends = lyndon_ends(sequence, extensions, ascending);
    for (std::size_t i = 0; i < sequence.size(); ++i) {
      const std::size_t period = ends[i] - i;
      const std::size_t before = extensions.before(i, ends[i]);
      const std::size_t after = extensions.after(i, ends[i]);
      if (before + after >= period) found.push_back({i - before, ends[i] + after, period});
    }
  }
  const auto key = [](const Repetition& run) { return std::tie(run.begin, run.end, run.period); };
  std::sort(found.begin(), found.end(),
            [&](const Repetition& a, const Repetition& b) { return key(a) < key(b); });
  found.erase(std::unique(found.begin(), found.end(),
                          [&](const Repetition& a, const Repetition& b) { return key(a) == key(b); }),
              found.end());
  return found;
}

}  // namespace torchtap::views::trace::detail
