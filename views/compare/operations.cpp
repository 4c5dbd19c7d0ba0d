// Aligns the operations of two calls, and judges each by its own arguments.
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <vector>

#include <torchtap/views/compare/detail/alignment.hpp>
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
  std::optional<std::uint32_t> thread;
  for (const Record& record : call.run.records()) {
    if (record.kind == frames::Kind::forward_input && record.path == path && record.sample == call.sample &&
        record.digest == call.given && !thread)
      thread = record.thread;
  }
  for (const std::uint32_t index : call.run.operations()) {
    const Record& record = call.run.records()[index];
    if (record.path != path || record.sample != call.sample) continue;
    if (record.thread != thread.value_or(record.thread)) continue;
    thread = record.thread;
    if (all.empty() || all.back().number != record.call) all.push_back({record.type, record.call, {}, {}});
    const bool argument = record.kind == frames::Kind::operation_argument;
    if (const auto print = call.run.print(record)) {
      (argument ? all.back().arguments : all.back().results).push_back(*print);
    }
  }
  return all;
}

}  // namespace

std::string first_operation(const CallOf& a, const CallOf& b, const Thresholds& thresholds) {
  constexpr std::size_t kMost = 4096;
  const auto mine = operations_of(a), other = operations_of(b);
  if (mine.size() > kMost || other.size() > kMost) return {};
  const auto score = [&](std::size_t i, std::size_t j) {
    const Operation &x = mine[i], &y = other[j];
    if (x.results.empty() || y.results.empty() || x.results[0].numel() != y.results[0].numel())
      return detail::kNever;
    return detail::closeness(x.results[0], y.results[0]) +
           (a.run.text(x.name) == b.run.text(y.name) ? 1.5 : 0);
  };
  for (const auto& [i, j] : detail::aligned(mine.size(), other.size(), score)) {
    const Operation &x = mine[i], &y = other[j];
    Extent given;
    for (std::size_t k = 0; k < std::min(x.arguments.size(), y.arguments.size()); ++k)
      given.add(difference(x.arguments[k], y.arguments[k]));
    const Difference made = difference(x.results[0], y.results[0]);
    if (given.broken || thresholds.allowed(made, given).holds(made)) continue;  // given something else
    const std::string &name = a.run.text(x.name), &its = b.run.text(y.name);
    return c10::str(name, name == its ? "" : " (in B " + its + ")", ", operation ", i + 1, " of ",
                    mine.size());
  }
  return {};
}

}  // namespace torchtap::views::compare
