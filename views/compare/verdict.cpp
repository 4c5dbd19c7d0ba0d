// Finds the first difference of two runs.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <unordered_map>

#include <torchtap/base/error.hpp>
#include <torchtap/views/compare/verdict.hpp>

namespace torchtap::views::compare {

using frames::Kind;

namespace {

constexpr char kJudge[] = "views::compare::judge";
constexpr std::size_t kMostSuspects = 5;

/// The findings so far.
struct Reached {
  Extent extent;
  bool any = false;
  bool returned = false;  // whether a module has returned, compared or not

  void add(const Difference& difference) { extent.add(difference), any = true; }
};

std::string around(const std::string& path) {
  const auto dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}
/// Whether `name` is of a module or weight in the module `path`.
bool lies_in(const std::string& name, const std::string& path) {
  return path.empty() ||
         (name.size() > path.size() && name.compare(0, path.size(), path) == 0 && name[path.size()] == '.');
}

class Judge {
 public:
  Judge(const Run& a, const Run& b, const Pairs& pairs, const Thresholds& thresholds)
      : a_(a), b_(b), pairs_(pairs), thresholds_(thresholds) {
    index_calls(a_, ran_a_);
    index_calls(b_, ran_b_);
  }

  Verdict operator()() {
    judge_weights();
    for (const auto& sequence : a_.sequences()) judge_calls(sequence);
    const auto by_order = [](const Finding& x, const Finding& y) { return x.record_a < y.record_a; };
    std::stable_sort(result_.suspects.begin(), result_.suspects.end(), by_order);  // of all threads
    if (result_.suspects.size() > kMostSuspects) result_.suspects.resize(kMostSuspects);
    for (auto& suspect : result_.suspects) explain(suspect);
    if (result_.suspects.empty()) blame_a_weight();
    for (std::uint32_t i = 0; i < pairs_.of_a.size(); ++i) {
      if (pairs_.of_a[i] == kNone) result_.only_a.push_back(i);
    }
    for (std::uint32_t i = 0; i < pairs_.of_b.size(); ++i) {
      if (pairs_.of_b[i] == kNone) result_.only_b.push_back(i);
    }
    const bool weights_alone = a_.calls().empty() && b_.calls().empty() &&
                               std::any_of(result_.weights.begin(), result_.weights.end(),
                                           [](const WeightRow& row) { return row.compared; });
    TORCH_CHECK_VALUE(result_.compared > 0 || weights_alone, kJudge, ": nothing of \"", a_.file(), "\" (",
                      a_.calls().size(), " calls) and \"", b_.file(), "\" (", b_.calls().size(),
                      " calls) could be compared; ",
                      a_.calls().empty() || b_.calls().empty()
                          ? "did the model run where they were written?"
                          : "name modules that belong together by a map.");
    return std::move(result_);
  }

 private:
  static void index_calls(const Run& run, std::unordered_map<std::string, std::uint32_t>& ran) {
    for (std::uint32_t i = 0; i < run.calls().size(); ++i) ran.emplace(run.path(run.calls()[i]), i);
  }
  const std::string& path(const Run& run, std::uint32_t call) const { return run.path(run.calls()[call]); }

  void judge_weights() {
    for (const auto& pair : pairs_.weights) {
      WeightRow row{pair.a, pair.b, {}, false, false, {}};
      if (pair.a == kNone || pair.b == kNone) {
        const Run& has = pair.a == kNone ? b_ : a_;
        row.words = c10::str(pair.a == kNone ? "A" : "B", " has no ",
                             has.path(has.records()[std::min(pair.a, pair.b)]));
        row.difference.error = INFINITY;
        result_.weights.push_back(std::move(row));
        continue;
      }
      const Record &mine = a_.records()[pair.a], &other = b_.records()[pair.b];
      row.compared = mine.holds != Record::Holds::nothing && other.holds != Record::Holds::nothing;
      row.agrees = row.difference.same_bits = row.compared && mine.digest == other.digest;
      if (!row.compared) {
        skip(mine, other);
        row.agrees = true;
      } else if (!row.agrees) {
        const auto x = *a_.print(mine), y = *b_.print(other);
        row.difference = difference(x, y);
        row.agrees =
            x.dtype != y.dtype && x.shape() == y.shape() && row.difference.error <= 4 * row.difference.unit;
        if (!row.agrees) row.words = in_words(x, y);
      }
      result_.weights.push_back(std::move(row));
    }
  }

  void skip(const Record& mine, const Record& other) {
    ++result_.not_compared[mine.holds == Record::Holds::nothing ? a_.reason(mine) : b_.reason(other)];
  }

  void judge_calls(const Sequence& sequence) {
    Reached all;
    std::unordered_map<std::uint32_t, Reached> inputs;
    std::unordered_map<std::uint32_t, std::uint32_t> last;  // of a call, the last within that has returned
    std::unordered_map<std::uint32_t, std::size_t> rows;
    std::uint32_t ended = kNone;
    for (const auto& event : sequence.events) {
      if (ended != event.call) inputs.erase(ended), last.erase(ended), rows.erase(ended);
      const Call& call = a_.calls()[event.call];
      const Record& mine = a_.records()[event.record];
      const bool input = mine.kind == Kind::forward_input;
      const std::uint32_t partner = pairs_.of_a[event.call];
      if (partner != kNone) {
        const auto [row, fresh] = rows.emplace(event.call, result_.rows.size());
        if (fresh) result_.rows.push_back({event.call, partner});
        const Call& its = b_.calls()[partner];
        const auto& slots = input ? its.inputs : its.outputs;
        const auto other = std::find_if(slots.begin(), slots.end(),
                                        [&](std::uint32_t i) { return b_.records()[i].slot == mine.slot; });
        if (other == slots.end()) {
          ++result_.not_compared[input ? "B was given fewer tensors" : "B returned fewer tensors"];
        } else if (mine.holds == Record::Holds::nothing ||
                   b_.records()[*other].holds == Record::Holds::nothing) {
          skip(mine, b_.records()[*other]);
        } else {
          const auto before = last.find(input ? call.parent : event.call);
          compare(event, *other, all, inputs[event.call], before == last.end() ? kNone : before->second,
                  result_.rows[row->second]);
        }
      }
      ended = input ? kNone : event.call;
      if (!input && partner != kNone) last[call.parent] = event.call;  // which can be looked at in both
      if (!input) all.returned = true;
    }
  }

  void compare(const Sequence::Event& event, std::uint32_t other, Reached& all, Reached& own,
               std::uint32_t last, Row& row) {
    const Call &call = a_.calls()[event.call], &its = b_.calls()[row.b];
    const Record &mine = a_.records()[event.record], &theirs = b_.records()[other];
    const bool input = mine.kind == Kind::forward_input;
    const bool of_root = input && (all.returned ? call.parent == kNone && a_.path(call).empty() : !all.any);
    const bool by_inputs = !input && call.leaf && its.leaf && own.any;
    Difference measured;
    measured.same_bits = mine.digest == theirs.digest;
    if (!measured.same_bits) measured = difference(*a_.print(mine), *b_.print(theirs));
    ++result_.compared;
    Extent allowed = thresholds_.allowed(measured, (by_inputs ? own : all).extent);
    // Rounding of what was prepared in another way is no answer to a difference far behind it.
    if (of_root && !all.any) allowed = {4 * measured.unit, 4 * measured.unit};
    const bool differs = !measured.same_bits && (thresholds_.bits || !allowed.holds(measured));
    row.same_bits &= measured.same_bits;
    row.differs |= differs;
    double& largest = input ? row.error_in : row.error;
    if (!(measured.error < largest)) {
      largest = measured.error;
      if (!input) row.allowed = allowed.error, row.scale = std::exp(measured.scale);
    }
    if (measured.error > result_.largest_error || result_.largest_at.empty())
      result_.largest_error = measured.error, result_.largest_at = a_.path(call);
    if (input) own.add(measured);
    all.add(measured);
    if (measured.same_bits) return;
    const bool earlier = !result_.first_bits || event.record < result_.first_bits->record_a;
    if (!differs && !earlier) return;

    Finding finding;
    finding.kind = of_root ? Finding::Kind::input : input ? Finding::Kind::between : Finding::Kind::module;
    finding.call_a = input && !of_root ? call.parent : event.call;
    finding.call_b = input && !of_root ? its.parent : row.b;
    // Without a root that was seen, the name says what is around a module.
    finding.path = finding.call_a == kNone ? around(a_.path(call)) : path(a_, finding.call_a);
    finding.path_b = finding.call_b == kNone ? around(b_.path(its)) : path(b_, finding.call_b);
    if (finding.call_a != kNone) finding.type = a_.text(a_.calls()[finding.call_a].type);
    if (input && !of_root) finding.before = a_.path(call);
    if (last != kNone) finding.after = path(a_, last);
    finding.sample = sample(a_, finding.call_a), finding.sample_b = sample(b_, finding.call_b);
    finding.record_a = event.record, finding.record_b = other;
    finding.thread = mine.thread, finding.rank = mine.rank, finding.slot = mine.slot;
    finding.error = measured.error, finding.scale = std::exp(measured.scale);
    finding.allowed = allowed.error, finding.allowed_scale = allowed.scale;
    finding.cause = cause(finding);
    if (earlier) result_.first_bits = finding;
    const auto same = [&](const Finding& known) {  // in another forward perhaps
      return known.kind == finding.kind && known.path == finding.path && known.before == finding.before &&
             a_.records()[known.record_a].call == mine.call;
    };
    if (differs && of_thread(finding) < kMostSuspects &&
        std::none_of(result_.suspects.begin(), result_.suspects.end(), same))
      result_.suspects.push_back(std::move(finding));
  }

  std::size_t of_thread(const Finding& finding) const {
    return static_cast<std::size_t>(std::count_if(
        result_.suspects.begin(), result_.suspects.end(),
        [&](const Finding& known) { return known.thread == finding.thread && known.rank == finding.rank; }));
  }

  static std::uint32_t sample(const Run& run, std::uint32_t index) {
    if (index == kNone) return 0;
    const Call& call = run.calls()[index];
    return run.records()[(call.inputs.empty() ? call.outputs : call.inputs).front()].sample;
  }

  std::string cause(const Finding& finding) const {
    const auto x = *a_.print(a_.records()[finding.record_a]), y = *b_.print(b_.records()[finding.record_b]);
    std::string words = in_words(x, y);
    // Tensors that pass through modules are seldom transposed.
    if (x.shape() == y.shape()) words.resize(std::min(words.size(), words.find(", such as")));
    const auto sizes = x.shape();
    const bool image = std::find(sizes.begin(), sizes.end(), 3) != sizes.end();
    if (finding.kind == Finding::Kind::input && image &&
        words.rfind("the same values in another order", 0) == 0 && words.find("B = ") == std::string::npos)
      words = "the same values in another order (RGB and BGR, or channels last?)";
    if (words.empty() && finding.kind == Finding::Kind::module && finding.error < 1e-2 &&
        finding.type.find("Norm") != std::string::npos)
      words = "slightly another scale, as of another eps";
    return words;
  }

  /// A weight that differs; of modules that were not seen, the nearest around that was says whether it ran.
  struct Owner {
    std::string path;  // of the module of the weight
    std::uint32_t call = kNone;
  };
  Owner owner(const Run& run, const std::unordered_map<std::string, std::uint32_t>& ran,
              std::uint32_t weight) const {
    Owner result{around(run.path(run.records()[weight])), kNone};
    for (std::string at = result.path;; at = around(at)) {
      const auto found = ran.find(at);
      if (found != ran.end()) result.call = found->second;
      if (found != ran.end() || at.empty()) return result;
    }
  }
  /// Whether the weight may be what a finding at `call` of the module `path` is due to.
  bool belongs(const Run& run, const std::unordered_map<std::string, std::uint32_t>& ran,
               std::uint32_t weight, const std::string& path) const {
    const Owner of = owner(run, ran, weight);
    if (of.call != kNone && run.path(run.calls()[of.call]) == path) return true;
    // Of a module that was seen on both sides, the finding would be its own.
    const auto& partners = &run == &a_ ? pairs_.of_a : pairs_.of_b;
    if (of.call != kNone && (partners[of.call] != kNone || of.path != run.path(run.calls()[of.call])))
      return false;
    return of.path == path || lies_in(of.path, path);
  }
  /// Such as batch normalisation counts its batches in. No output of an evaluation depends on it.
  bool is_counter(const WeightRow& row) const {
    const auto print = row.a == kNone ? b_.print(b_.records()[row.b]) : a_.print(a_.records()[row.a]);
    return print && print->numel() == 1 && print->dtype <= 4;
  }

  Finding as_weight(const WeightRow& row, Finding finding) const {
    finding.kind = Finding::Kind::weight;
    finding.path = row.a == kNone ? "" : a_.path(a_.records()[row.a]);
    finding.path_b = row.b == kNone ? "" : b_.path(b_.records()[row.b]);
    const Record& record = row.a == kNone ? b_.records()[row.b] : a_.records()[row.a];
    finding.type = (row.a == kNone ? b_ : a_).text(record.type);
    finding.record_a = row.a, finding.record_b = row.b, finding.slot = 0;
    finding.error = row.difference.error, finding.scale = std::exp(row.difference.scale);
    finding.allowed = finding.allowed_scale = 0;
    finding.after.clear(), finding.before.clear();
    finding.cause = row.words;
    return finding;
  }

  /// A finding is due to a weight of its module if one differs; the one that differs most is named.
  void explain(Finding& finding) const {
    if (finding.kind == Finding::Kind::input) return;
    const WeightRow* worst = nullptr;
    for (const auto& row : result_.weights) {
      if (row.agrees || (worst != nullptr && !(row.difference.error > worst->difference.error))) continue;
      const bool own = row.a != kNone ? belongs(a_, ran_a_, row.a, finding.path)
                                      : belongs(b_, ran_b_, row.b, finding.path_b);
      if (own && !is_counter(row)) worst = &row;
    }
    if (worst != nullptr) finding = as_weight(*worst, std::move(finding));
  }

  /// Nothing differs by more than rounding, but a weight of what ran does, and is no rounding.
  void blame_a_weight() {
    const WeightRow* first = nullptr;
    std::uint32_t at = kNone;
    for (const auto& row : result_.weights) {
      if (row.agrees || row.a == kNone || row.b == kNone || is_counter(row)) continue;
      const Owner of = owner(a_, ran_a_, row.a);
      const std::uint32_t call = of.call;
      if (call == kNone ? !a_.calls().empty() : of.path != path(a_, call) && !a_.calls()[call].leaf) continue;
      const auto known =
          std::find_if(result_.rows.begin(), result_.rows.end(), [&](const Row& r) { return r.a == call; });
      const bool matters = a_.calls().empty() || (known != result_.rows.end() && !known->same_bits);
      if (matters && (first == nullptr || call < at)) first = &row, at = call;
    }
    if (first == nullptr) return;
    Finding finding;
    finding.call_a = at, finding.call_b = at == kNone ? kNone : pairs_.of_a[at];
    finding.sample = sample(a_, at), finding.sample_b = sample(b_, finding.call_b);
    result_.suspects.push_back(as_weight(*first, std::move(finding)));
  }

  const Run &a_, &b_;
  const Pairs& pairs_;
  const Thresholds thresholds_;
  std::unordered_map<std::string, std::uint32_t> ran_a_, ran_b_;  // the first call of each path
  Verdict result_;
};

}  // namespace

Thresholds Thresholds::parse(const std::string& text) {
  Thresholds result;
  const char* at = text.c_str();
  char* end = nullptr;
  result.tolerance = std::strtod(at, &end);
  bool good = end != at && *end == ',';
  if (good) {
    at = end + 1;
    result.gain = std::strtod(at, &end);
    good = end != at && *end == '\0' && result.tolerance >= 0 && result.gain >= 0 &&
           std::isfinite(result.tolerance) && std::isfinite(result.gain);
  }
  TORCH_CHECK_VALUE(
      good, "views::compare::Thresholds: \"", text,
      "\" is not two numbers, 0 or greater: units of rounding, and how often the error of the inputs is "
      "allowed; write 16,4.");
  return result;
}

Extent Thresholds::allowed(const Difference& made, const Extent& given) const {
  // Incoherent errors add up to little in a sum of squares.
  return {tolerance * made.unit + gain * given.error,
          gain * (made.unit + given.scale) + 8 * made.error / std::sqrt(made.elements)};
}

std::string name_of(Finding::Kind kind) {
  constexpr const char* kNames[] = {"weight", "input", "module", "between"};
  return kNames[static_cast<int>(kind)];
}

Verdict judge(const Run& a, const Run& b, const Pairs& pairs, const Thresholds& thresholds) {
  return Judge(a, b, pairs, thresholds)();
}

}  // namespace torchtap::views::compare
