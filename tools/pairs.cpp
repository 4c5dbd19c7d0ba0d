#include "pairs.hpp"

#include <algorithm>
#include <set>

namespace torchtap::tools {
namespace {

bool inside(const std::string& path, const std::string& of) {
  return of.empty() || path.compare(0, of.size() + 1, of + ".") == 0;
}

/// The order in which modules finish: after their submodules. A walk lists them before.
std::vector<const Layer*> in_order(const Layers& layers) {
  std::vector<const Layer*> order, open;
  for (const auto& layer : layers.all) {
    const auto& kind = layer.entry.kind();
    if (kind == "ForwardPre" || kind == "ForwardInput") {
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

/// The module of `others` with the path or an alias of `layer` that is not matched yet.
const Layer* match(const Layer& layer, const Layers& others, const std::set<std::int64_t>& matched) {
  const auto has_name = [](const Layer& one, const std::string& name) {
    const auto& aliases = one.entry.aliases();
    return one.path == name || std::find(aliases.begin(), aliases.end(), name) != aliases.end();
  };
  for (const bool by_alias : {false, true}) {
    for (const auto& other : others.all) {
      if (matched.count(other.index) != 0) continue;
      if (by_alias ? has_name(other, layer.path) || has_name(layer, other.path) : other.path == layer.path) {
        return &other;
      }
    }
  }
  return nullptr;
}

}  // namespace

std::vector<Pair> pair_up(const Layers& a, const Layers& b, bool files) {
  std::vector<Pair> pairs;
  std::set<std::int64_t> matched;
  for (const Layer* layer : in_order(a)) {
    const Layer* other = files ? &b.all.front() : match(*layer, b, matched);
    if (other != nullptr) matched.insert(other->index);
    pairs.push_back({layer, other});
  }
  for (const auto& layer : b.all) {
    if (matched.count(layer.index) == 0) pairs.push_back({nullptr, &layer});
  }
  return pairs;
}

}  // namespace torchtap::tools
