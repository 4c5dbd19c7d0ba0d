// Aligns the operations of two calls, and judges each by its own arguments.
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <torchtap/views/compare/difference.hpp>
#include <torchtap/views/compare/operations.hpp>

namespace torchtap::views::compare {
namespace {

struct Operation {
  std::uint32_t name = 0, number = 0;
  std::vector<Fingerprint> arguments, results;
};

std::vector<Operation> operations_of(const CallOf& call) {
  std::vector<Operation> all;
  const std::uint32_t path = call.run.number_of(call.path);
  for (const std::uint32_t index : call.run.operations()) {
    const Record& record = call.run.records()[index];
    if (record.path != path || record.sample != call.sample) continue;
    if (all.empty() || all.back().number != record.call) all.push_back({record.type, record.call, {}, {}});
    const bool argument = record.kind == frames::Kind::operation_argument;
    if (const auto print = call.run.print(record)) {
      (argument ? all.back().arguments : all.back().results).push_back(*print);
    }
  }
  return all;
}

/// Pairs that may be of the same operation, in the order of both (Needleman and Wunsch 1970).
std::vector<std::pair<std::size_t, std::size_t>> aligned(const std::vector<Operation>& a, const Run& of_a,
                                                         const std::vector<Operation>& b, const Run& of_b) {
  constexpr std::size_t kMost = 4096;
  constexpr float kGap = -0.1F, kNever = -1e9F;
  if (a.size() > kMost || b.size() > kMost) return {};
  const auto score = [&](const Operation& x, const Operation& y) {
    if (x.results.empty() || y.results.empty()) return kNever;
    const Fingerprint &p = x.results.front(), &q = y.results.front();
    if (p.numel() != q.numel()) return kNever;
    const float name = of_a.text(x.name) == of_b.text(y.name) ? 1.5F : 0;
    if (same_bits(p, q)) return 4 + name;
    const double error = difference(p, q).error;
    return (error < 1e-4 ? 3 : error < 0.3 ? 1 : 0.3F) + name;
  };
  const std::size_t width = b.size() + 1;
  std::vector<float> best((a.size() + 1) * width);
  std::vector<char> move(best.size());
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      float& here = best[i * width + j];
      char& from = move[i * width + j];
      if (i + j == 0) continue;
      const float up = i == 0 ? kNever : best[(i - 1) * width + j] + kGap;
      const float left = j == 0 ? kNever : best[i * width + j - 1] + kGap;
      const float both =
          i == 0 || j == 0 ? kNever : best[(i - 1) * width + j - 1] + score(a[i - 1], b[j - 1]);
      here = std::max({up, left, both});
      from = here == both ? 'b' : here == up ? 'a' : 'l';
    }
  }
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t i = a.size(), j = b.size(); i + j != 0;) {
    const char from = move[i * width + j];
    if (from != 'l') --i;
    if (from != 'a') --j;
    if (from == 'b') pairs.emplace_back(i, j);
  }
  std::reverse(pairs.begin(), pairs.end());
  return pairs;
}

}  // namespace

std::string first_operation(const CallOf& a, const CallOf& b, const Thresholds& thresholds) {
  const auto mine = operations_of(a), other = operations_of(b);
  for (const auto& [i, j] : aligned(mine, a.run, other, b.run)) {
    const Operation &x = mine[i], &y = other[j];
    double given = 0, given_scale = 0;
    for (std::size_t k = 0; k < std::min(x.arguments.size(), y.arguments.size()); ++k) {
      const Difference measured = difference(x.arguments[k], y.arguments[k]);
      given = std::max(given, measured.error);
      given_scale = std::max(given_scale, std::abs(measured.scale));
    }
    const Difference made = difference(x.results.front(), y.results.front());
    const double allowed = thresholds.tolerance * made.unit + thresholds.gain * given;
    const double allowed_scale =
        thresholds.gain * (made.unit + given_scale) + 8 * made.error / std::sqrt(made.elements);
    if (made.same_bits || (made.error <= allowed && std::abs(made.scale) <= allowed_scale)) continue;
    const std::string &name = a.run.text(x.name), &its = b.run.text(y.name);
    return c10::str(name, name == its ? "" : " (in B " + its + ")", ", operation ", i + 1, " of ",
                    mine.size());
  }
  return {};
}

}  // namespace torchtap::views::compare
