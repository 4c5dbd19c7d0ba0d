// Which operations are passes of one layer, on sequences as programs make them, and against the rules spelled
// out.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <torchtap/views/trace/detail/layers.hpp>
#include <torchtap/views/trace/detail/repetitions.hpp>

BOOST_AUTO_TEST_SUITE(layers_of_a_pass)

namespace internals = torchtap::views::trace::detail;
using internals::LayerNode;
using internals::LayerOf;
using internals::Repetition;

namespace {

/// A pass, written operation by operation.
class Pass {
 public:
  /// Adds an operation and returns its index.
  std::int64_t operator()(const std::string& function, std::vector<std::int64_t> parents,
                          std::vector<std::int64_t> parameters = {}) {
    const auto number = numbers_.emplace(function, static_cast<std::int64_t>(numbers_.size())).first->second;
    nodes.push_back({number, std::move(parameters), std::move(parents)});
    return static_cast<std::int64_t>(nodes.size()) - 1;
  }

  std::vector<LayerNode> nodes;

 private:
  std::map<std::string, std::int64_t> numbers_;
};

/// Layer and pass of each node as text: "0 1 2 0:2".
std::string layers(const std::vector<LayerNode>& nodes) {
  std::string text;
  for (const LayerOf& of : internals::same_layers(nodes)) {
    text += (text.empty() ? "" : " ") + std::to_string(of.layer);
    if (of.pass > 1) text += ":" + std::to_string(of.pass);
  }
  return text;
}

std::int64_t number_of_layers(const std::vector<LayerOf>& layers) {
  std::int64_t largest = -1;
  for (const LayerOf& of : layers) largest = std::max(largest, of.layer);
  return largest + 1;
}

/// `letters` are functions, each of which reads the result of the one before.
std::vector<LayerNode> chain(const std::string& letters) {
  Pass pass;
  for (const char letter : letters) {
    const auto before = static_cast<std::int64_t>(pass.nodes.size()) - 1;
    pass(std::string(1, letter), {before});
  }
  return pass.nodes;
}

std::vector<LayerNode> recurrent(int steps) {
  Pass pass;
  const auto x = pass("input", {});
  auto hidden = pass("zeros", {});
  for (int step = 0; step < steps; ++step) {
    const auto from_input = pass("linear", {pass("select", {x})}, {1, 2});
    const auto from_hidden = pass("linear", {hidden}, {3, 4});
    hidden = pass("tanh", {pass("add", {from_input, from_hidden})});
  }
  return pass.nodes;
}

/// Runs by their definition.
std::set<std::vector<std::size_t>> runs_by_definition(const std::vector<std::int64_t>& sequence) {
  std::set<std::vector<std::size_t>> found;
  std::set<std::pair<std::size_t, std::size_t>> seen;  // with the shortest period, which comes first
  for (std::size_t period = 1; 2 * period <= sequence.size(); ++period) {
    std::size_t begin = period;
    for (std::size_t i = period; i <= sequence.size(); ++i) {
      if (i < sequence.size() && sequence[i] == sequence[i - period]) continue;
      if (i - begin >= period && seen.insert({begin - period, i}).second) {
        found.insert({begin - period, i, period});
      }
      begin = i + 1;
    }
  }
  return found;
}

/// The rules, without regard to time. Layers are sets of nodes.
class Slowly {
 public:
  explicit Slowly(const std::vector<LayerNode>& nodes) : nodes_(nodes), free_(nodes.size(), true) {
    by_parameters();
    by_edges();
    repeats();
  }

  std::vector<LayerOf> layers() const {
    std::vector<LayerOf> result(nodes_.size(), LayerOf{-1, 1});
    std::int64_t next = 0;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (result[i].layer >= 0) continue;
      result[i].layer = next;
      for (const auto& layer : layers_) {
        std::int64_t pass = 0;
        for (const std::size_t member : layer) {
          if (layer.count(i) != 0) result[member] = {next, ++pass};
        }
      }
      ++next;
    }
    return result;
  }

 private:
  using Layer = std::set<std::size_t>;

  void add(const Layer& layer) {
    for (const std::size_t i : layer) {
      if (!free_[i]) return;
    }
    if (layer.size() < 2) return;
    for (const std::size_t i : layer) free_[i] = false;
    layers_.push_back(layer);
  }

  void by_parameters() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      Layer layer;
      for (std::size_t j = 0; j < nodes_.size(); ++j) {
        if (!nodes_[i].parameters.empty() && nodes_[i].function == nodes_[j].function &&
            nodes_[i].parameters == nodes_[j].parameters) {
          layer.insert(j);
        }
      }
      add(layer);
    }
  }

  /// The nodes at the other ends of the edges of `node` with this place and function, in order.
  std::vector<std::size_t> neighbours(std::size_t node, bool children, std::size_t place,
                                      std::int64_t function) const {
    std::vector<std::size_t> found;
    for (std::size_t other = 0; other < nodes_.size(); ++other) {
      const auto& from = nodes_[children ? other : node].parents;
      const auto to = static_cast<std::int64_t>(children ? node : other);
      if (place < from.size() && from[place] == to && free_[other] && nodes_[other].parameters.empty() &&
          nodes_[other].function == function) {
        found.push_back(other);
      }
    }
    return found;
  }

  void follow(std::size_t layer, bool children) {
    // What is free is looked up once for a layer, as all of its edges are followed at the same time.
    std::vector<Layer> found;
    for (std::size_t place = 0; place < 4; ++place) {
      for (std::int64_t function = 0; function < 30; ++function) {
        for (std::size_t k = 0;; ++k) {
          Layer members;
          bool all = true;
          for (const std::size_t pass : layers_[layer]) {
            const auto others = neighbours(pass, children, place, function);
            if (k < others.size()) {
              members.insert(others[k]);
            } else {
              all = false;
            }
          }
          if (!all) break;
          found.push_back(members);
        }
      }
    }
    for (const Layer& members : found) add(members);
  }

  void by_edges() {
    std::vector<bool> down;
    std::vector<std::size_t> up;
    std::size_t next_up = 0;
    for (std::size_t next_down = 0;;) {
      if (next_down < layers_.size()) {
        up.push_back(next_down);
        follow(next_down++, true);
      } else if (next_up < up.size()) {
        follow(up[next_up++], false);
      } else {
        return;
      }
    }
  }

  void repeats() {
    std::vector<std::size_t> left;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (free_[i]) left.push_back(i);
    }
    std::vector<Layer> joined;
    for (const std::size_t i : left) joined.push_back({i});
    const auto repeats_at = [&](std::size_t k, std::size_t period) {
      const LayerNode& now = nodes_[left[k]];
      const LayerNode& then = nodes_[left[k - period]];
      if (!now.parameters.empty() || !then.parameters.empty() || now.function != then.function) return false;
      for (std::size_t place = 0; place < now.parents.size(); ++place) {
        const auto parent = now.parents[place];
        const bool same = place < then.parents.size() && then.parents[place] == parent;
        if (!same && parent >= 0 && parent < static_cast<std::int64_t>(left[k - period])) return false;
      }
      return true;
    };
    // Whether stretches that begin at `second`, a period later, and so on, are told by none of their
    // references.
    const auto strangers = [&](std::size_t begin, std::size_t end, std::size_t period, std::size_t second) {
      for (std::size_t k = begin; k < end; ++k) {
        for (const std::int64_t parent : nodes_[left[k]].parents) {
          if (parent < 0) continue;
          if (parent < static_cast<std::int64_t>(left[k - period])) return false;
          for (std::size_t cut = second % period; cut <= k; cut += period) {
            if (parent < static_cast<std::int64_t>(left[cut])) return false;
          }
        }
      }
      return true;
    };
    std::vector<std::pair<std::size_t, std::size_t>> loops;  // of shorter periods
    for (std::size_t period = 1; 2 * period <= left.size(); ++period) {
      std::size_t begin = period;
      for (std::size_t k = period; k <= left.size(); ++k) {
        if (k < left.size() && repeats_at(k, period)) continue;
        bool loop = k - begin >= period;
        const bool many = k - begin >= 2 * period;
        for (std::size_t second = begin; loop && !many && second < begin + period; ++second) {
          loop = !strangers(begin, k, period, second);
        }
        loop = loop && std::none_of(loops.begin(), loops.end(), [&](const auto& other) {
                 return other.first <= begin - period && other.second >= k;
               });
        if (loop) loops.push_back({begin - period, k});
        for (std::size_t i = begin; loop && i < k; ++i) unite(joined, left[i - period], left[i]);
        begin = k + 1;
      }
    }
    for (const Layer& layer : joined) add(layer);
  }

  static void unite(std::vector<Layer>& layers, std::size_t a, std::size_t b) {
    const auto of = [&](std::size_t i) {
      return std::find_if(layers.begin(), layers.end(),
                          [&](const Layer& layer) { return layer.count(i) != 0; });
    };
    const auto first = of(a);
    const auto second = of(b);
    if (first == second) return;
    first->insert(second->begin(), second->end());
    layers.erase(second);
  }

  const std::vector<LayerNode>& nodes_;
  std::vector<bool> free_;
  std::vector<Layer> layers_;
};

std::string text(const std::vector<LayerOf>& layers) {
  std::string text;
  for (const LayerOf& of : layers) text += std::to_string(of.layer) + ":" + std::to_string(of.pass) + " ";
  return text;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_recurrent_network_has_five_layers_however_long_it_runs) {
  BOOST_TEST(layers(recurrent(3)) == "0 1 2 3 4 5 6 2:2 3:2 4:2 5:2 6:2 2:3 3:3 4:3 5:3 6:3");
  const auto long_one = internals::same_layers(recurrent(20000));
  BOOST_TEST(number_of_layers(long_one) == 2 + 5);  // input, zeros
  BOOST_TEST(long_one.back().layer == 6);
  BOOST_TEST(long_one.back().pass == 20000);
}

BOOST_AUTO_TEST_CASE(a_loop_without_parameters_is_found_by_its_repeats) {
  BOOST_TEST(layers(chain("abcabcabc")) == "0 1 2 0:2 1:2 2:2 0:3 1:3 2:3");
  std::string letters;
  for (int round = 0; round < 20000; ++round) letters += "abc";
  const auto of = internals::same_layers(chain(letters));
  BOOST_TEST(number_of_layers(of) == 3);
  BOOST_TEST(of.back().pass == 20000);
}

BOOST_AUTO_TEST_CASE(what_comes_again_later_is_another_layer) {
  BOOST_TEST(layers(chain("abcabcdabc")) == "0 1 2 0:2 1:2 2:2 3 4 5 6");
}

BOOST_AUTO_TEST_CASE(loops_in_loops_are_joined_at_both_levels) {
  // twice: three rounds of ab, then c
  BOOST_TEST(layers(chain("abababcabababc")) == "0 1 0:2 1:2 0:3 1:3 2 0:4 1:4 0:5 1:5 0:6 1:6 2:2");
}

BOOST_AUTO_TEST_CASE(a_loop_that_is_left_in_its_middle_keeps_what_ran) {
  BOOST_TEST(layers(chain("abcabcab")) == "0 1 2 0:2 1:2 2:2 0:3 1:3");
}

BOOST_AUTO_TEST_CASE(a_body_may_call_every_function_twice) {
  BOOST_TEST(layers(chain("aabbcaabbc")) == "0 0:2 1 1:2 2 0:3 0:4 1:3 1:4 2:2");
}

BOOST_AUTO_TEST_CASE(the_same_function_in_a_row_on_unrelated_tensors_is_no_loop) {
  Pass pass;
  std::vector<std::int64_t> convolved;
  for (std::int64_t level = 0; level < 4; ++level) convolved.push_back(pass("conv", {-1}, {level}));
  for (const auto level : convolved) pass("relu", {level});
  BOOST_TEST(layers(pass.nodes) == "0 1 2 3 4 5 6 7");
}

BOOST_AUTO_TEST_CASE(what_only_looks_alike_side_by_side_is_no_loop) {
  // The first states of an LSTM.
  Pass states;
  const auto h = states("zeros", {});
  const auto c = states("zeros", {});
  states("lstm", {h, c}, {1});
  BOOST_TEST(layers(states.nodes) == "0 1 2");
  // The same steps on two things of their own, and on three.
  Pass apart;
  for (int i = 0; i < 2; ++i) apart("norm", {apart("relu", {apart("rand", {})})});
  BOOST_TEST(layers(apart.nodes) == "0 1 2 3 4 5");
  apart("norm", {apart("relu", {apart("rand", {})})});
  BOOST_TEST(layers(apart.nodes) == "0 1 2 0:2 1:2 2:2 0:3 1:3 2:3");
  // One that hands something on, and one that reads the same each time.
  Pass loop;
  auto x = loop("input", {});
  for (int i = 0; i < 2; ++i) x = loop("add", {x, loop("rand", {})});
  BOOST_TEST(layers(loop.nodes) == "0 1 2 1:2 2:2");
  Pass shared;
  const auto y = shared("input", {});
  for (int i = 0; i < 2; ++i) shared("norm", {shared("dropout", {y})});
  BOOST_TEST(layers(shared.nodes) == "0 1 2 1:2 2:2");
}

BOOST_AUTO_TEST_CASE(a_loop_over_two_things_has_two_layers) {
  Pass pass;
  auto x = pass("input x", {});
  auto y = pass("input y", {});
  for (int round = 0; round < 3; ++round) {
    x = pass("add", {x});
    y = pass("add", {y});
  }
  BOOST_TEST(layers(pass.nodes) == "0 1 2 3 2:2 3:2 2:3 3:3");
}

BOOST_AUTO_TEST_CASE(a_residual_network_has_no_passes) {
  Pass pass;
  auto x = pass("input", {});
  for (std::int64_t block = 0; block < 8; ++block) {
    const auto shortcut = x;
    for (std::int64_t half = 0; half < 2; ++half) {
      x = pass("conv2d", {x}, {100 + 2 * block + half});
      x = pass("batch_norm", {x}, {200 + 2 * block + half});
      if (half == 1) x = pass("iadd", {x, shortcut});
      x = pass("relu_", {x});
    }
  }
  const auto of = internals::same_layers(pass.nodes);
  BOOST_TEST(number_of_layers(of) == static_cast<std::int64_t>(pass.nodes.size()));
}

BOOST_AUTO_TEST_CASE(shared_parameters_join_what_is_around_them_in_all_passes_only) {
  Pass pass;
  for (const bool extra : {false, true}) {
    auto x = pass(extra ? "input a" : "input b", {});
    x = pass("normalize", {x});
    x = pass("linear", {x}, {7});
    x = pass("relu", {x});
    if (extra) x = pass("dropout", {x});
    pass(extra ? "output a" : "output b", {x});
  }
  BOOST_TEST(layers(pass.nodes) == "0 1 2 3 4 5 1:2 2:2 3:2 6 7");
}

BOOST_AUTO_TEST_CASE(other_parameters_are_another_layer) {
  Pass pass;
  auto x = pass("input", {});
  for (std::int64_t i = 0; i < 4; ++i) x = pass("relu", {pass("linear", {x}, {i % 2})});
  // relu is reached from both linears: each has its own
  BOOST_TEST(layers(pass.nodes) == "0 1 2 3 4 1:2 2:2 3:2 4:2");
}

BOOST_AUTO_TEST_CASE(children_of_one_function_are_matched_in_order) {
  Pass pass;
  for (int round = 0; round < 2; ++round) {
    const auto x = pass("linear", {-1}, {1});
    const auto a = pass("relu", {x});
    const auto b = pass("relu", {x});
    pass("add", {a, b});
  }
  BOOST_TEST(layers(pass.nodes) == "0 1 2 3 0:2 1:2 2:2 3:2");
}

BOOST_AUTO_TEST_CASE(nothing_and_one_node) {
  BOOST_TEST(layers({}) == "");
  BOOST_TEST(layers(chain("a")) == "0");
}

BOOST_AUTO_TEST_CASE(random_graphs_have_the_layers_of_the_rules) {
  std::mt19937 random(1);
  const auto upto = [&](int limit) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(limit + 1));
  };
  std::int64_t passes = 0;
  for (int graph = 0; graph < 3000; ++graph) {
    std::vector<LayerNode> nodes;
    const auto functions = 1 + upto(3);
    const auto size = upto(24);
    const auto with_parameters = upto(3);
    for (std::int64_t i = 0; i < size; ++i) {
      LayerNode node;
      if (nodes.size() > 4 && upto(2) == 0) {
        // repeat an earlier node, one of few periods ago, with its references moved along
        const std::int64_t period = 1 + upto(3);
        node = nodes[static_cast<std::size_t>(i - period)];
        for (auto& parent : node.parents) parent = parent < 0 || upto(3) == 0 ? parent : parent + period;
      } else {
        node.function = upto(static_cast<int>(functions));
        if (with_parameters > 0 && upto(3) == 0) node.parameters = {upto(1)};
        for (auto edges = upto(2); edges > 0; --edges) node.parents.push_back(upto(static_cast<int>(i)) - 1);
      }
      nodes.push_back(node);
    }
    const auto fast = internals::same_layers(nodes);
    const auto slow = Slowly(nodes).layers();
    BOOST_REQUIRE_MESSAGE(text(fast) == text(slow),
                          "graph " << graph << ": " << text(fast) << " is not " << text(slow));
    for (const LayerOf& of : fast) passes += of.pass > 1 ? 1 : 0;
  }
  BOOST_TEST(passes > 3000);  // or this compares nothing
}

BOOST_AUTO_TEST_CASE(runs_are_found_by_their_definition) {
  std::mt19937 random(2);
  std::size_t found = 0;
  for (int example = 0; example < 4000; ++example) {
    std::vector<std::int64_t> sequence(random() % 40);
    const unsigned letters = 1 + random() % 4;
    for (auto& letter : sequence) letter = static_cast<std::int64_t>(random() % letters) - 1;
    std::set<std::vector<std::size_t>> runs;
    for (const Repetition& run : internals::runs(sequence)) runs.insert({run.begin, run.end, run.period});
    BOOST_REQUIRE((runs == runs_by_definition(sequence)));
    found += runs.size();
  }
  BOOST_TEST(found > 10000);
}

BOOST_AUTO_TEST_SUITE_END()
