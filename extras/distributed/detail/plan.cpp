// Shares the work of a merge among ranks.
#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>

#include <torchtap/distributed/detail/plan.hpp>

namespace torchtap::distributed::detail {
namespace {

/// The facts that all ranks which have a module send about its state.
struct States {
  std::int64_t bytes = 0;  // of the largest
  std::int64_t elements = 0;
  std::vector<std::int64_t> whole;
  bool divisible = true;

  void add(const ModuleFacts& facts) {
    bytes = std::max(bytes, facts.bytes);
    divisible = divisible && facts.divisible && !facts.reduction.empty();
    if (facts.whole.empty()) return;
    divisible = divisible && (whole.empty() || whole == facts.whole);
    whole = facts.whole;
    elements = std::max(elements, facts.bytes_of_elements);
  }
  /// Each part has whole numbers and tensors of few elements, so these must be the smaller share.
  bool worth_cutting(std::int64_t parts) const {
    return divisible && !whole.empty() && elements >= Plan::kWorthSharing && elements >= bytes / 4 * 3 &&
           c10::multiply_integers(whole) / Elements::kFewest >= parts;
  }
};

}  // namespace

bool Plan::shared(int root) const {
  return std::any_of(modules.begin(), modules.end(),
                     [root](const Module& module) { return module.owner != root; });
}

std::int64_t Plan::part_of(int rank) const {
  const auto at = std::find(merging.begin(), merging.end(), rank);
  return at == merging.end() ? -1 : at - merging.begin();
}

Elements Plan::cut(const Module& module, std::int64_t part) const {
  const std::int64_t count = c10::multiply_integers(module.whole);
  const auto parts = static_cast<std::int64_t>(merging.size());
  const std::int64_t begin = Elements::begin_of(count, parts, part);
  return {Elements::Use::cut, module.whole, begin, Elements::begin_of(count, parts, part + 1) - begin};
}

Plan plan_of(const std::vector<Header>& headers, const std::vector<storage::EntryId>& modules, bool direct) {
  Plan plan;
  std::int64_t root = 0, order = 0;
  std::map<ModuleKey, States> states;
  for (std::size_t rank = 0; rank < headers.size(); ++rank) {
    const Header& header = headers[rank];
    if (!header.present) continue;
    root = header.root;
    order = header.order;
    plan.merging.push_back(static_cast<std::int64_t>(rank));
    std::vector<storage::EntryId> ids;
    for (const auto& module : header.modules) ids.push_back(module.id);
    const auto keys = keys_of(ids);
    for (std::size_t i = 0; i < keys.size(); ++i) states[keys[i]].add(header.modules[i]);
  }
  plan.modules.assign(modules.size(), {root, {}});
  const auto parts = static_cast<std::int64_t>(plan.merging.size());
  if (!direct || parts < 2) return plan;
  std::vector<std::size_t> entire;  // places of modules that are not cut
  std::vector<std::int64_t> bytes;
  std::int64_t total = 0;
  const auto keys = keys_of(modules);
  for (std::size_t place = 0; place < modules.size(); ++place) {
    const States& state = states[keys[place]];
    if (state.worth_cutting(parts)) {
      plan.modules[place] = {Plan::kAll, state.whole};
    } else {
      entire.push_back(place);
      bytes.push_back(state.bytes);
      total += state.bytes;
    }
  }
  // A tree merges these on their way to the root. A single state is best broadcast.
  if (order == static_cast<std::int64_t>(Order::tree) || entire.size() < 2 || total < Plan::kWorthSharing) {
    return plan;
  }
  std::int64_t before = 0;
  for (std::size_t i = 0; i < entire.size(); ++i) {
    const std::int64_t part = (before + bytes[i] / 2) * parts / total;
    plan.modules[entire[i]].owner = plan.merging[static_cast<std::size_t>(std::min(part, parts - 1))];
    before += bytes[i];
  }
  return plan;
}

}  // namespace torchtap::distributed::detail
