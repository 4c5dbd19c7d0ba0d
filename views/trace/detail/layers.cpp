// Finds operations that are passes of one layer: by parameters, then by equal edges, then by repeats.
#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <utility>

#include <torchtap/views/trace/detail/layers.hpp>
#include <torchtap/views/trace/detail/repetitions.hpp>

namespace torchtap::views::trace::detail {
namespace {

/// If runs with a short period refer too far back, multiples of the period are tried up to this one: a loop
/// over two things, `x = x + 1; y = y + 1`, repeats one function, and refers two back. All multiples of a
/// long run would be quadratic.
constexpr std::size_t kMultiples = 16;

class Layers {
 public:
  explicit Layers(const std::vector<LayerNode>& nodes)
      : nodes_(nodes), children_(nodes.size()), layer_(nodes.size(), -1) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      for (std::size_t place = 0; place < nodes[i].parents.size(); ++place) {
        const std::int64_t parent = nodes[i].parents[place];
        if (parent >= 0) children_[static_cast<std::size_t>(parent)].push_back({place, i});
      }
    }
  }

  std::vector<LayerOf> find() {
    join_by_parameters();
    join_by_edges();
    join_repeats();
    return numbered();
  }

 private:
  using Members = std::vector<std::size_t>;
  /// The place of an argument, and the node on the other end.
  using Edge = std::pair<std::size_t, std::size_t>;

  void join(Members members) {
    for (const std::size_t node : members) layer_[node] = static_cast<std::int64_t>(layers_.size());
    layers_.push_back(std::move(members));
  }

  void join_by_parameters() {
    std::map<std::pair<std::int64_t, std::vector<std::int64_t>>, Members> same;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].parameters.empty()) same[{nodes_[i].function, nodes_[i].parameters}].push_back(i);
    }
    std::vector<Members> found;
    for (auto& [key, members] : same) {
      if (members.size() > 1) found.push_back(std::move(members));
    }
    std::sort(found.begin(), found.end());  // by the program, not by the numbers that stand for parameters
    for (Members& members : found) join(std::move(members));
  }

  /// Children come first: all passes have them, while the first pass of a loop has other parents than the
  /// rest, so that going up would leave out the last pass.
  void join_by_edges() {
    std::deque<std::size_t> down(layers_.size());
    for (std::size_t i = 0; i < down.size(); ++i) down[i] = i;
    std::deque<std::size_t> up;
    while (!down.empty() || !up.empty()) {
      std::deque<std::size_t>& next = down.empty() ? up : down;
      const bool to_children = !down.empty();
      const std::size_t layer = next.front();
      next.pop_front();
      const std::size_t before = layers_.size();
      join_neighbours(layer, to_children);
      if (to_children) up.push_back(layer);
      for (std::size_t i = before; i < layers_.size(); ++i) down.push_back(i);
    }
  }

  /// The nodes on the other ends of a node's edges that are in no layer yet.
  std::vector<Edge> neighbours(std::size_t node, bool children) const {
    std::vector<Edge> found;
    const auto add = [&](std::size_t place, std::size_t other) {
      if (layer_[other] < 0 && nodes_[other].parameters.empty()) found.push_back({place, other});
    };
    if (children) {
      for (const auto& [place, child] : children_[node]) add(place, child);
    } else {
      for (std::size_t place = 0; place < nodes_[node].parents.size(); ++place) {
        const std::int64_t parent = nodes_[node].parents[place];
        if (parent >= 0) add(place, static_cast<std::size_t>(parent));
      }
    }
    return found;
  }

  /// Joins nodes that all passes of a layer reach along equal edges. A pass may have several edges that are
  /// equal, such as two children of one function: the first go together, the second go together.
  void join_neighbours(std::size_t layer, bool children) {
    struct Column {
      std::size_t of_pass = 0;  // the pass that was last here
      std::size_t edges = 0;    // how many equal edges this pass has so far
      std::vector<Members> members;
    };
    std::map<std::pair<std::size_t, std::int64_t>, Column> columns;
    const Members passes = layers_[layer];
    for (std::size_t pass = 0; pass < passes.size(); ++pass) {
      for (const auto& [place, other] : neighbours(passes[pass], children)) {
        const std::pair<std::size_t, std::int64_t> key{place, nodes_[other].function};
        if (pass > 0 && columns.count(key) == 0) continue;  // the first pass lacks it
        Column& column = columns[key];
        if (column.of_pass != pass) column.edges = 0;
        column.of_pass = pass;
        if (pass == 0) column.members.emplace_back();
        if (column.edges < column.members.size() && column.members[column.edges].size() == pass) {
          column.members[column.edges].push_back(other);
        }
        ++column.edges;
      }
    }
    for (auto& [key, column] : columns) {
      for (Members& members : column.members) {
        if (members.size() == passes.size()) join_if_free(std::move(members));
      }
    }
  }

  /// Several passes may share a neighbour, and a node may be reached along two edges.
  void join_if_free(Members members) {
    std::sort(members.begin(), members.end());
    members.erase(std::unique(members.begin(), members.end()), members.end());
    const bool free =
        std::all_of(members.begin(), members.end(), [&](std::size_t i) { return layer_[i] < 0; });
    if (free && members.size() > 1) join(std::move(members));
  }

  /// In the sequence of the nodes that are left, each stretch that repeats the one before it joins it.
  void join_repeats() {
    std::vector<std::size_t> left;
    std::vector<std::int64_t> functions;
    std::map<std::int64_t, std::int64_t> numbers;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (layer_[i] >= 0) continue;
      left.push_back(i);
      // No other node has its parameters, so it repeats nothing.
      const auto unique = -1 - static_cast<std::int64_t>(i);
      functions.push_back(
          nodes_[i].parameters.empty()
              ? numbers.emplace(nodes_[i].function, static_cast<std::int64_t>(numbers.size())).first->second
              : unique);
    }
    std::vector<std::size_t> first(left.size());  // an earlier pass of the same layer, or itself
    for (std::size_t i = 0; i < first.size(); ++i) first[i] = i;
    for (const Repetition& run : runs(functions)) {
      std::vector<std::size_t> reach(run.end - run.begin, 0);
      for (std::size_t period = run.period;
           period <= kMultiples * run.period && 2 * period <= run.end - run.begin; period += run.period) {
        if (join_run(left, run, period, first, reach)) break;
      }
    }
    std::map<std::size_t, Members> members;
    for (std::size_t i = 0; i < left.size(); ++i) members[root(first, i)].push_back(left[i]);
    for (auto& [earliest, of_layer] : members) {
      if (of_layer.size() > 1) join(std::move(of_layer));
    }
  }

  static std::size_t root(std::vector<std::size_t>& first, std::size_t i) {
    while (first[i] != i) i = first[i] = first[first[i]];
    return i;
  }

  /// Joins the stretches of a run in which at least one period repeats the one before it, references
  /// included. Returns whether that is the whole run.
  bool join_run(const std::vector<std::size_t>& left, const Repetition& run, std::size_t period,
                std::vector<std::size_t>& first, std::vector<std::size_t>& reach) const {
    std::size_t begin = run.begin + period;
    for (std::size_t i = begin; i <= run.end; ++i) {
      if (i < run.end && repeats(left[i - period], left[i])) continue;
      const std::size_t end = i;
      const auto from = reach.begin() + static_cast<std::ptrdiff_t>(begin - period - run.begin);
      // A loop of fewer operations may explain all of it already.
      const bool known = end - begin >= period && *from >= end;
      const bool loop = end - begin >= period && !known && hangs_together(left, begin, end, period);
      if (loop) {
        unite(first, begin, end, period);
        std::for_each(from, from + static_cast<std::ptrdiff_t>(end - begin + period),
                      [&](std::size_t& to) { to = std::max(to, end); });
      }
      if (loop && end == run.end && begin == run.begin + period) return true;
      begin = i + 1;
    }
    return false;
  }

  /// Whether the stretches belong together: each reads the same earlier values, or each beginning of a
  /// stretch is crossed by a read of a value from the stretch before. Otherwise two are neighbours by chance,
  /// such as two zeros, and more are taken for a loop.
  bool hangs_together(const std::vector<std::size_t>& left, std::size_t begin, std::size_t end,
                      std::size_t period) const {
    if (end - begin >= 2 * period) return true;
    std::vector<std::int64_t> crossed(period + 1, 0);  // changes, from one beginning to the next
    for (std::size_t i = begin; i < end; ++i) {
      for (const std::int64_t parent : nodes_[left[i]].parents) {
        if (parent < 0) continue;
        if (parent < static_cast<std::int64_t>(left[i - period])) return true;  // each reads this value
        const auto made = std::upper_bound(left.begin(), left.end(), static_cast<std::size_t>(parent));
        const auto from = static_cast<std::size_t>(made - left.begin());  // the first beginning after it
        if (from > i) continue;
        if (i - from + 1 >= period) return true;
        ++crossed[from % period];
        --crossed[i % period + 1];
        if (from % period > i % period) {  // around the end
          ++crossed[0];
          --crossed[period];
        }
      }
    }
    std::int64_t here = 0;
    return std::all_of(crossed.begin(), crossed.end() - 1, [&](std::int64_t by) { return (here += by) > 0; });
  }

  static void unite(std::vector<std::size_t>& first, std::size_t begin, std::size_t end, std::size_t period) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t a = root(first, i - period);
      const std::size_t b = root(first, i);
      first[std::max(a, b)] = std::min(a, b);
    }
  }

  /// Whether a node equals the node one period before, and refers to the same nodes before that one, if to
  /// any.
  bool repeats(std::size_t before, std::size_t node) const {
    if (nodes_[before].function != nodes_[node].function) return false;
    const std::vector<std::int64_t>& then = nodes_[before].parents;
    const std::vector<std::int64_t>& now = nodes_[node].parents;
    for (std::size_t place = 0; place < now.size(); ++place) {
      const bool same = place < then.size() && now[place] == then[place];
      if (now[place] >= 0 && now[place] < static_cast<std::int64_t>(before) && !same) return false;
    }
    return true;
  }

  std::vector<LayerOf> numbered() {
    std::vector<LayerOf> result(nodes_.size());
    std::vector<std::int64_t> number(layers_.size(), -1);
    std::vector<std::int64_t> passes(layers_.size(), 0);
    std::int64_t next = 0;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (layer_[i] < 0) {
        result[i].layer = next++;
        continue;
      }
      const auto layer = static_cast<std::size_t>(layer_[i]);
      if (number[layer] < 0) number[layer] = next++;
      result[i] = {number[layer], ++passes[layer]};
    }
    return result;
  }

  const std::vector<LayerNode>& nodes_;
  std::vector<std::vector<Edge>> children_;
  std::vector<std::int64_t> layer_;  // of each node: which of `layers_`, or -1
  std::vector<Members> layers_;      // with at least two passes
};

}  // namespace

std::vector<LayerOf> same_layers(const std::vector<LayerNode>& nodes) {
  return Layers(nodes).find();
}

}  // namespace torchtap::views::trace::detail
