#include "module_pairs.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "recordings/recorded_facts.hpp"

namespace torchtap::tools {
namespace {

bool inside(const std::string& path, const std::string& of) {
  return of.empty() || path.compare(0, of.size() + 1, of + ".") == 0;
}

/// The order in which modules finish: after their submodules. A walk lists them before.
std::vector<const Layer*> in_order(const Layers& layers) {
  std::vector<const Layer*> order, open;
  for (const auto& layer : layers.all) {
    if (tensor_of(layer.entry.kind()) == rules::Tensor::input) {
      order.push_back(&layer);
      continue;
    }
    while (!open.empty() && !inside(layer.path, open.back()->path)) {
      order.push_back(open.back());
      open.pop_back();
    }
    open.push_back(&layer);
  }
  order.insert(order.end(), open.rbegin(), open.rend());
  return order;
}

/// Finds modules of B, each once.
class Unmatched {
 public:
  explicit Unmatched(const Layers& layers) {
    for (const auto& layer : layers.all) {
      by_path_[layer.path].push_back(&layer);
      for (const auto& alias : layer.entry.aliases()) by_alias_[alias].push_back(&layer);
    }
  }

  /// The first one with the path of `layer`, or else with an alias in common; null if there is none.
  const Layer* take(const Layer& layer) {
    const Layer* found = first(by_path_, layer.path);
    if (found == nullptr) {
      found = first(by_alias_, layer.path);
      for (const auto& alias : layer.entry.aliases()) {
        const Layer* other = first(by_path_, alias);
        if (found == nullptr || (other != nullptr && other->index < found->index)) found = other;
      }
    }
    if (found != nullptr) taken_.insert(found);
    return found;
  }
  bool has(const Layer& layer) const { return taken_.count(&layer) == 0; }

 private:
  using Named = std::unordered_map<std::string, std::vector<const Layer*>>;

  const Layer* first(const Named& named, const std::string& name) const {
    const auto found = named.find(name);
    if (found == named.end()) return nullptr;
    for (const Layer* layer : found->second) {
      if (has(*layer)) return layer;
    }
    return nullptr;
  }

  Named by_path_, by_alias_;
  std::unordered_set<const Layer*> taken_;
};

}  // namespace

std::vector<Pair> pair_up(const Layers& a, const Layers& b) {
  const auto is_single = [](const Layers& layers) { return !layers.recorded && layers.all.size() == 1; };
  if (is_single(a) && is_single(b) && !(a.named && b.named)) return {{&a.all.front(), &b.all.front()}};
  const bool by_b = b.recorded && !a.recorded;
  Unmatched others(by_b ? a : b);
  std::vector<Pair> pairs;
  const auto add = [&](const Layer* one, const Layer* other) {
    pairs.push_back(by_b ? Pair{other, one} : Pair{one, other});
  };
  for (const Layer* layer : in_order(by_b ? b : a)) add(layer, others.take(*layer));
  for (const auto& layer : (by_b ? a : b).all) {
    if (others.has(layer)) add(nullptr, &layer);
  }
  return pairs;
}

}  // namespace torchtap::tools
