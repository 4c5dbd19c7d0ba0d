// Pairs calls and weights of two runs.
#include <c10/util/hash.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <deque>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/glob.hpp>
#include <torchtap/views/compare/detail/alignment.hpp>
#include <torchtap/views/compare/pairs.hpp>
#include <torchtap/views/text/units.hpp>

namespace torchtap::views::compare {

namespace {

using Indexes = std::vector<std::uint32_t>;

constexpr char kPair[] = "views::compare::pair_up";
constexpr std::size_t kMostAligned = std::size_t{4096} * 4096;

/// "layer1.0.conv1" in "layer1.0" and "conv1".
std::pair<std::string, std::string> split(const std::string& path) {
  const auto dot = path.rfind('.');
  return dot == std::string::npos ? std::make_pair(std::string(), path)
                                  : std::make_pair(path.substr(0, dot), path.substr(dot + 1));
}

/// Finds the text that each asterisk of `glob` stands for in `text`; false if it does not match.
bool capture(const std::string& glob, const std::string& text, std::vector<std::string>& parts) {
  const auto star = glob.find('*');
  if (star == std::string::npos) return base::matches_glob(glob, text);
  for (std::size_t from = 0; from <= text.size(); ++from) {
    if (!base::matches_glob(glob.substr(0, star), text.substr(0, from))) continue;
    for (std::size_t to = from; to <= text.size(); ++to) {
      const std::size_t before = parts.size();
      parts.push_back(text.substr(from, to - from));
      if (capture(glob.substr(star + 1), text.substr(to), parts)) return true;
      parts.resize(before);
    }
  }
  return false;
}

struct Mapping {
  std::string from, to;

  explicit Mapping(const std::string& text) {
    const auto equals = text.find('=');
    TORCH_CHECK_VALUE(equals != std::string::npos, kPair, ": \"", text,
                      "\" names no pair of modules; write A=B, such as layer1.*=stage1.*");
    from = text.substr(0, equals), to = text.substr(equals + 1);
    TORCH_CHECK_VALUE(std::count(from.begin(), from.end(), '*') == std::count(to.begin(), to.end(), '*'),
                      kPair, ": in \"", text,
                      "\" the two sides have not as many asterisks; each stands for the same on both.");
  }

  /// The path of B that `path` of A means; false if it is not meant.
  bool operator()(const std::string& path, std::string& meant) const {
    std::vector<std::string> parts;
    const bool itself = from.size() > 2 && from.compare(from.size() - 2, 2, ".*") == 0;
    if (!capture(from, path, parts)) {
      parts.clear();
      if (!itself || !capture(from.substr(0, from.size() - 2), path, parts)) return false;
      parts.emplace_back();
    }
    meant.clear();
    std::size_t part = 0;
    for (const char c : to) c == '*' ? meant += parts[part++] : meant += c;
    if (!meant.empty() && meant.back() == '.') meant.pop_back();
    return true;
  }
};

/// Positions in `values` of a longest increasing part.
Indexes increasing(const Indexes& values) {
  Indexes ends, before(values.size(), kNone);
  for (std::uint32_t i = 0; i < values.size(); ++i) {
    const auto at = std::lower_bound(ends.begin(), ends.end(), values[i],
                                     [&](std::uint32_t j, std::uint32_t value) { return values[j] < value; });
    if (at != ends.begin()) before[i] = *(at - 1);
    if (at == ends.end()) {
      ends.push_back(i);
    } else {
      *at = i;
    }
  }
  Indexes result;
  for (std::uint32_t i = ends.empty() ? kNone : ends.back(); i != kNone; i = before[i]) result.push_back(i);
  return {result.rbegin(), result.rend()};
}

/// The weights of a module, whatever they are called: sums of hashes of their values and of their shapes.
struct Weights {
  std::size_t values = 0, shapes = 0;
};
using WeightsOf = std::unordered_map<std::string, Weights>;

WeightsOf weights_of(const Run& run) {
  WeightsOf result;
  for (const auto i : run.weights()) {
    const Record& record = run.records()[i];
    const auto print = run.print(record);
    if (!print || print->numel() < 2) continue;
    Weights& weights = result[split(run.path(record)).first];
    auto sizes = print->shape().vec();
    std::sort(sizes.begin(), sizes.end());  // in any order: a matrix may be stored transposed
    weights.values += c10::get_hash(print->words, print->exclusive);
    weights.shapes += c10::get_hash(sizes);
  }
  return result;
}

/// Facts about a call that do not depend on names.
struct Seen {
  std::optional<Fingerprint> output, input;
  Weights weights;
  std::string type, name;
  std::vector<std::int64_t> sorted;

  Seen(const Run& run, const Call& call, const WeightsOf& weights_of)
      : type(text::type_text(run.text(call.type))), name(split(run.path(call)).second) {
    const auto first = [&](const auto& slots) {
      const std::uint32_t i = run.first_tensor(slots);
      return i == kNone ? std::nullopt : run.print(run.records()[i]);
    };
    output = first(call.outputs), input = first(call.inputs);
    const auto found = weights_of.find(run.path(call));
    if (found != weights_of.end()) weights = found->second;
    if (output) sorted.assign(output->shape().begin(), output->shape().end());
    std::sort(sorted.begin(), sorted.end());
  }
};

/// The score of two calls being of one module; below zero if they cannot be.
double score(const Seen& a, const Seen& b) {
  if (!a.output || !b.output || a.sorted != b.sorted) return detail::kNever;
  if (a.output->shape() != b.output->shape()) {
    return a.output->words == b.output->words && a.output->exclusive == b.output->exclusive ? 3 : 0.2;
  }
  double worth =
      detail::closeness(*a.output, *b.output) + (a.type == b.type ? 1.5 : 0) + (a.name == b.name ? 0.5 : 0);
  if (a.weights.shapes != 0 || b.weights.shapes != 0) {
    worth += a.weights.shapes != b.weights.shapes ? -1 : a.weights.values == b.weights.values ? 3 : 0.5;
  }
  // Inputs distinguish a layer from the inactive dropout behind it, which returns the same.
  if (a.input && b.input && a.input->shape() == b.input->shape())
    worth += detail::closeness(*a.input, *b.input) / 4;
  return worth;
}

class Pairing {
 public:
  Pairing(const Run& a, const Run& b, const std::vector<std::string>& map) : a_(a), b_(b) {
    pairs_.of_a.assign(a.calls().size(), kNone);
    pairs_.of_b.assign(b.calls().size(), kNone);
    pairs_.how.assign(a.calls().size(), How::none);
    for (const auto& text : map) {
      maps_.emplace_back(text);
      check(maps_.back(), text);
    }
    // "layer1.0.*" before "layer1.*".
    std::stable_sort(maps_.begin(), maps_.end(),
                     [](const Mapping& x, const Mapping& y) { return x.from.size() > y.from.size(); });
  }

  Pairs operator()() {
    find_shifted();
    // Threads are numbered in the order in which they reached a module: threads with the same first input
    // belong together.
    const auto given = [](const Run& run, const Sequence& sequence) {
      return std::make_pair(sequence.rank, run.records()[sequence.events.front().record].digest);
    };
    std::vector<const Sequence*> mine, others;
    for (const auto& sequence : a_.sequences()) mine.push_back(&sequence);
    for (const auto& sequence : b_.sequences()) others.push_back(&sequence);
    for (const bool same_input : {true, false}) {
      for (auto& sequence : mine) {
        const auto other = std::find_if(others.begin(), others.end(), [&](const Sequence* one) {
          return one != nullptr && sequence != nullptr && one->rank == sequence->rank &&
                 (!same_input || given(a_, *sequence) == given(b_, *one));
        });
        if (other == others.end()) continue;
        pair_calls(*std::exchange(sequence, nullptr), *std::exchange(*other, nullptr));
      }
    }
    learn();
    pair_weights();
    return std::move(pairs_);
  }

 private:
  void check(const Mapping& map, const std::string& text) const {
    std::set<std::string> of_a, of_b;
    for (const auto& call : a_.calls()) of_a.insert(a_.path(call));
    for (const auto& call : b_.calls()) of_b.insert(b_.path(call));
    std::string meant, lacking;
    for (const auto& path : of_a) {
      if (!map(path, meant)) continue;
      if (of_b.count(meant) != 0) return;
      lacking = meant;
    }
    const bool of_first = lacking.empty();
    const auto& known = of_first ? of_a : of_b;
    const auto near = base::nearest(of_first ? map.from : lacking, {known.begin(), known.end()}, 3);
    TORCH_CHECK_VALUE(false, kPair, ": \"", text, "\" pairs nothing: ", (of_first ? a_ : b_).file(),
                      " has no module ", of_first ? map.from : lacking, " that ran",
                      near.empty() ? "" : "; near it are ", near.empty() ? "" : base::quoted(near), ".");
  }

  void pair(std::uint32_t a, std::uint32_t b, How how) {
    pairs_.of_a[a] = b, pairs_.of_b[b] = a, pairs_.how[a] = how;
  }
  bool free_a(std::uint32_t call) const { return pairs_.of_a[call] == kNone; }
  bool free_b(std::uint32_t call) const { return pairs_.of_b[call] == kNone; }

  /// Modules whose numbered entries mean other entries on the other side: an entry without further entries
  /// differs in its type.
  void find_shifted() {
    const auto types = [](const Run& run) {
      std::unordered_map<std::string, std::string> result;
      for (const auto& call : run.calls()) {
        const std::string& path = run.path(call);
        const bool numbered = !path.empty() && std::isdigit(static_cast<unsigned char>(path.back())) != 0;
        if (call.leaf && numbered) result.emplace(path, text::type_text(run.text(call.type)));
      }
      return result;
    };
    const auto of_a = types(a_), of_b = types(b_);
    for (const auto& [path, type] : of_a) {
      const auto other = of_b.find(path);
      const auto [around, name] = split(path);
      if (other != of_b.end() && other->second != type && std::all_of(name.begin(), name.end(), ::isdigit))
        shifted_.insert(around);
    }
  }
  bool is_shifted(const std::string& path) const {
    for (std::string at = path; !shifted_.empty() && !at.empty();) {
      const auto [around, name] = split(at);
      if (shifted_.count(around) != 0 && std::all_of(name.begin(), name.end(), ::isdigit)) return true;
      at = around;
    }
    return false;
  }

  /// The path of B that names say; false if they say nothing.
  bool named(const std::string& path, std::string& meant, How& how) const {
    how = How::map;
    for (const auto& map : maps_) {
      if (map(path, meant)) return true;
    }
    how = How::path;
    meant = path;
    return !is_shifted(path);
  }

  /// Whether the first inputs have the same sizes, in any order.
  bool given_alike(const Call& mine, const Call& its) const {
    const auto sizes = [](const Run& run, const Call& call) {
      const auto print = call.inputs.empty() ? std::nullopt : run.print(run.records()[call.inputs.front()]);
      std::vector<std::int64_t> result = print ? print->shape().vec() : std::vector<std::int64_t>{-1};
      std::sort(result.begin(), result.end());
      return result;
    };
    return mine.parent == kNone && its.parent == kNone && sizes(a_, mine) == sizes(b_, its);
  }

  /// Pairs the only unpaired outermost call of each side: whatever a model is called (a frozen TorchScript
  /// model has no weights and is called by its type), it is the model.
  void pair_roots(const Sequence& a, const Sequence& b) {
    const auto only = [](const Run& run, const Sequence& sequence, const Indexes& taken) {
      std::uint32_t found = kNone;
      for (const auto call : sequence.calls) {
        if (run.calls()[call].parent != kNone || taken[call] != kNone) continue;
        if (found != kNone) return kNone;
        found = call;
      }
      return found;
    };
    const std::uint32_t mine = only(a_, a, pairs_.of_a), its = only(b_, b, pairs_.of_b);
    if (mine != kNone && its != kNone &&
        a_.path(a_.calls()[mine]).empty() != b_.path(b_.calls()[its]).empty() &&
        given_alike(a_.calls()[mine], b_.calls()[its]))
      pair(mine, its, How::parent);
  }

  void pair_calls(const Sequence& a, const Sequence& b) {
    std::unordered_map<std::uint32_t, Indexes> of_b;
    for (const auto call : b.calls) of_b[b_.calls()[call].path].push_back(call);
    std::unordered_map<std::uint32_t, std::pair<std::uint32_t, How>> names;  // names of A to names of B
    const auto pair_by = [&](std::uint32_t call, std::uint32_t name, How how) {
      const Call& mine = a_.calls()[call];
      const auto found = of_b.find(name);
      if (!free_a(call) || found == of_b.end() || mine.ordinal >= found->second.size()) return;
      const std::uint32_t other = found->second[mine.ordinal];
      // A program without a single root calls several, all with the name "". TorchScript shows no module
      // inside.
      const Call& its = b_.calls()[other];
      if (!free_b(other) || (a_.path(mine).empty() && mine.leaf != its.leaf && !given_alike(mine, its)))
        return;
      pair(call, other, how);
    };
    for (const auto call : a.calls) {
      const std::uint32_t path = a_.calls()[call].path;
      auto name = names.find(path);
      if (name == names.end()) {
        std::string meant;
        How how{};
        const bool known = named(a_.text(path), meant, how);
        name = names.emplace(path, std::make_pair(known ? b_.number_of(meant) : kNone, how)).first;
      }
      if (name->second.first != kNone) pair_by(call, name->second.first, name->second.second);
    }
    pair_roots(a, b);
    // The calls that are left between pairs, where pairs are in the same order on both sides.
    Indexes mine, others;
    for (const auto call : a.calls) {
      if (!free_a(call)) mine.push_back(call), others.push_back(pairs_.of_a[call]);
    }
    std::vector<std::pair<std::uint32_t, std::uint32_t>> anchors;
    for (const auto i : increasing(others)) anchors.emplace_back(mine[i], others[i]);
    anchors.emplace_back(kNone, kNone);
    std::unordered_map<std::uint32_t, std::uint32_t> learnt;
    auto at_a = a.calls.begin(), at_b = b.calls.begin();
    for (const auto& [end_a, end_b] : anchors) {
      Indexes left_a, left_b;
      for (; at_a != a.calls.end() && *at_a != end_a; ++at_a) {
        const auto known = learnt.find(a_.calls()[*at_a].path);
        if (known != learnt.end()) pair_by(*at_a, known->second, How::values);
        if (free_a(*at_a) && a_.calls()[*at_a].leaf) left_a.push_back(*at_a);
      }
      for (; at_b != b.calls.end() && *at_b != end_b; ++at_b) {
        if (free_b(*at_b) && b_.calls()[*at_b].leaf) left_b.push_back(*at_b);
      }
      align(left_a, left_b);
      for (const auto call : left_a) {
        if (!free_a(call)) learnt.emplace(a_.calls()[call].path, b_.calls()[pairs_.of_a[call]].path);
      }
    }
    pair_parents(a);
  }

  void align(const Indexes& a, const Indexes& b) {
    if (a.empty() || b.empty()) return;
    if (a.size() * b.size() <= kMostAligned) return align_all(a, b);
    // Digests that occur once on both sides divide what is too much at once (patience diff).
    const auto digests = [](const Run& run, const Indexes& calls) {
      std::map<std::array<std::uint64_t, 2>, Indexes> result;
      for (std::uint32_t i = 0; i < calls.size(); ++i) {
        const Call& call = run.calls()[calls[i]];
        const std::uint32_t first = run.first_tensor(call.outputs);
        if (first != kNone) result[run.records()[first].digest].push_back(i);
      }
      return result;
    };
    auto of_a = digests(a_, a), of_b = digests(b_, b);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> once;
    for (const auto& [digest, at] : of_a) {
      const auto other = of_b.find(digest);
      if (digest[0] != 0 && at.size() == 1 && other != of_b.end() && other->second.size() == 1)
        once.emplace_back(at[0], other->second[0]);
    }
    std::sort(once.begin(), once.end());
    Indexes others;
    for (const auto& pair : once) others.push_back(pair.second);
    std::size_t from_a = 0, from_b = 0;
    const auto until = [&](std::size_t end_a, std::size_t end_b) {
      for (; from_a < end_a && from_b < end_b; from_a += 4096, from_b += 4096) {
        align_all(part(a, from_a, std::min(end_a, from_a + 4096)),
                  part(b, from_b, std::min(end_b, from_b + 4096)));
      }
      from_a = end_a, from_b = end_b;
    };
    for (const auto i : increasing(others)) {
      until(once[i].first, once[i].second);
      pair(a[from_a++], b[from_b++], How::values);
    }
    until(a.size(), b.size());
  }
  static Indexes part(const Indexes& all, std::size_t from, std::size_t to) {
    return {all.begin() + static_cast<std::ptrdiff_t>(from), all.begin() + static_cast<std::ptrdiff_t>(to)};
  }

  void align_all(const Indexes& a, const Indexes& b) {
    if (weights_a_.empty()) weights_a_ = weights_of(a_), weights_b_ = weights_of(b_);
    std::vector<Seen> of_a, of_b;
    for (const auto call : a) of_a.emplace_back(a_, a_.calls()[call], weights_a_);
    for (const auto call : b) of_b.emplace_back(b_, b_.calls()[call], weights_b_);
    const auto worth = [&](std::size_t i, std::size_t j) { return score(of_a[i], of_b[j]); };
    for (const auto& [i, j] : detail::aligned(a.size(), b.size(), worth)) pair(a[i], b[j], How::values);
  }

  /// Pairs calls around paired ones: the two with the most pairs in common.
  void pair_parents(const Sequence& a) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> common;
    std::unordered_map<std::uint32_t, std::int64_t> within_a, within_b;
    const auto around = [](const Run& run, std::uint32_t call, const Indexes& taken) {
      Indexes result;
      while ((call = run.calls()[call].parent) != kNone) {
        if (taken[call] == kNone) result.push_back(call);
      }
      return result;
    };
    for (const auto call : a.calls) {
      if (free_a(call)) continue;
      const auto of_a = around(a_, call, pairs_.of_a), of_b = around(b_, pairs_.of_a[call], pairs_.of_b);
      for (const auto i : of_a) ++within_a[i];
      for (const auto j : of_b) ++within_b[j];
      for (const auto i : of_a) {
        for (const auto j : of_b) ++common[{i, j}];
      }
    }
    struct Candidate {
      double worth;
      std::uint32_t a, b;
    };
    std::vector<Candidate> candidates;
    for (const auto& [both, count] : common) {
      const double share = static_cast<double>(count) /
                           static_cast<double>(within_a[both.first] + within_b[both.second] - count);
      const bool same_type = text::type_text(a_.text(a_.calls()[both.first].type)) ==
                             text::type_text(b_.text(b_.calls()[both.second].type));
      if (share >= 0.5) candidates.push_back({share + (same_type ? 0.01 : 0), both.first, both.second});
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& x, const Candidate& y) { return x.worth > y.worth; });
    for (const auto& candidate : candidates) {
      if (free_a(candidate.a) && free_b(candidate.b)) pair(candidate.a, candidate.b, How::parent);
    }
  }

  /// Finds names of A that are always one name of B, and the other way round; different names become a
  /// rename.
  void learn() {
    std::map<std::uint32_t, std::set<std::uint32_t>> of_a, of_b;
    for (std::uint32_t i = 0; i < pairs_.of_a.size(); ++i) {
      if (free_a(i)) continue;
      const std::uint32_t mine = a_.calls()[i].path, other = b_.calls()[pairs_.of_a[i]].path;
      of_a[mine].insert(other), of_b[other].insert(mine);
    }
    std::vector<std::pair<std::string, std::string>> groups;  // of the names without the end that is the same
    std::map<std::pair<std::string, std::string>, std::pair<int, bool>> count;
    for (const auto& call : a_.calls()) {
      const auto other = of_a.find(call.path);
      if (other == of_a.end() || other->second.size() != 1) continue;
      const std::uint32_t of_other = *other->second.begin();
      const bool fresh = names_.emplace(a_.text(call.path), b_.text(of_other)).second;
      if (!fresh || of_b[of_other].size() != 1 || a_.text(call.path) == b_.text(of_other)) continue;
      std::string mine = a_.text(call.path), its = b_.text(of_other);
      bool shortened = false;
      while (!mine.empty() && !its.empty() && split(mine).second == split(its).second) {
        mine = split(mine).first, its = split(its).first, shortened = true;
      }
      auto& [modules, within] = count[{mine, its}];
      if (modules++ == 0) groups.emplace_back(mine, its);
      within |= shortened;
    }
    for (const auto& group : groups) {
      const auto star = [&](const std::string& path) {
        return count[group].second ? path.empty() ? "*" : path + ".*" : path;
      };
      pairs_.map.push_back(star(group.first) + "=" + star(group.second));
    }
  }

  /// The name that a weight of A has in B as far as the names of modules say.
  std::string weight_in_b(const std::string& name) const {
    std::string meant;
    How how{};
    for (std::string around = split(name).first;; around = split(around).first) {
      const auto found = names_.find(around);
      if (found != names_.end() || around.empty()) {
        if (found == names_.end() || found->second == around) break;
        const std::string rest = around.empty() ? name : name.substr(around.size() + 1);
        return found->second.empty() ? rest : found->second + "." + rest;
      }
    }
    return named(name, meant, how) ? meant : "";  // no weight is called so
  }

  void pair_weights() {
    std::vector<std::uint32_t> partner(a_.weights().size(), kNone);
    std::vector<bool> taken(b_.weights().size(), false);
    /// Pairs weights of equal keys, the i-th with the i-th.
    const auto by = [&](const auto& of_a, const auto& of_b) {
      std::map<decltype(of_b(0U)), std::deque<std::uint32_t>> known;
      for (std::uint32_t j = 0; j < taken.size(); ++j) {
        if (!taken[j]) known[of_b(b_.weights()[j])].push_back(j);
      }
      for (std::uint32_t i = 0; i < partner.size() && !known.empty(); ++i) {
        if (partner[i] != kNone) continue;
        const auto found = known.find(of_a(a_.weights()[i]));
        if (found == known.end() || found->second.empty()) continue;
        partner[i] = found->second.front();
        taken[partner[i]] = true;
        found->second.pop_front();
      }
    };
    const auto record = [](const Run& run, std::uint32_t i) -> const Record& { return run.records()[i]; };
    by([&](std::uint32_t i) { return weight_in_b(a_.path(record(a_, i))); },
       [&](std::uint32_t i) { return b_.path(record(b_, i)); });
    const auto like = [&](const auto& key) {
      by([&](std::uint32_t i) { return key(a_, record(a_, i)); },
         [&](std::uint32_t i) { return key(b_, record(b_, i)); });
    };
    like([](const Run& run, const Record& r) {
      return std::make_pair(r.digest, r.digest[0] == 0 ? run.path(r) : "");
    });
    like([](const Run& run, const Record& r) {
      const auto print = run.print(r);
      return print
                 ? c10::str(int{print->dtype}, ' ', print->numel(), ' ', print->words, ' ', print->exclusive)
                 : run.path(r);
    });
    like([](const Run& run, const Record& r) {
      const auto print = run.print(r);
      return print ? c10::str(print->shape(), static_cast<int>(r.kind)) : run.path(r);
    });
    for (std::uint32_t i = 0; i < partner.size(); ++i)
      pairs_.weights.push_back({a_.weights()[i], partner[i] == kNone ? kNone : b_.weights()[partner[i]]});
    for (std::uint32_t j = 0; j < taken.size(); ++j) {
      if (!taken[j]) pairs_.weights.push_back({kNone, b_.weights()[j]});
    }
  }

  const Run &a_, &b_;
  std::vector<Mapping> maps_;
  std::set<std::string> shifted_;
  WeightsOf weights_a_, weights_b_;
  std::map<std::string, std::string> names_;  // of modules: of A in B
  Pairs pairs_;
};

}  // namespace

std::int64_t Pairs::count(How by) const {
  return std::count(how.begin(), how.end(), by);
}

Pairs pair_up(const Run& a, const Run& b, const std::vector<std::string>& map) {
  return Pairing(a, b, map)();
}

}  // namespace torchtap::views::compare
