// Finds the first difference of two runs.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <torchtap/base/dtypes.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/numbers.hpp>
#include <torchtap/views/compare/verdict.hpp>

namespace torchtap::views::compare {

using frames::Kind;

namespace {

constexpr char kJudge[] = "views::compare::judge";
constexpr std::size_t kMostSuspects = 5, kMostUnjudged = 32;
using Digest = std::array<std::uint64_t, 2>;

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
/// The path of the innermost module around both.
std::string common(const std::string& one, const std::string& other) {
  std::string path = around(one);
  while (!path.empty() && other.compare(0, path.size() + 1, path + ".") != 0) path = around(path);
  return path;
}
/// Whether `name` is of a module or weight in the module `path`.
bool lies_in(const std::string& name, const std::string& path) {
  return path.empty() ||
         (name.size() > path.size() && name.compare(0, path.size(), path) == 0 && name[path.size()] == '.');
}

class Judge {
 public:
  Judge(const Run& a, const Run& b, const Pairs& pairs, const Thresholds& thresholds)
      : a_(a),
        b_(b),
        pairs_(pairs),
        thresholds_(thresholds),
        of_a_{a, pairs.of_a, "A", first_calls(a), {}, std::vector<bool>(a.records().size())},
        of_b_{b, pairs.of_b, "B", first_calls(b), {}, std::vector<bool>(b.records().size())} {}

  Verdict operator()() {
    judge_weights();
    for (const auto& sequence : a_.sequences()) judge_calls(sequence);
    for (auto* const findings : {&result_.suspects, &result_.unjudged}) {
      const auto by_order = [](const Divergence& x, const Divergence& y) { return x.record_a < y.record_a; };
      std::stable_sort(findings->begin(), findings->end(), by_order);  // of all threads
      const std::size_t most = findings == &result_.suspects ? kMostSuspects : kMostUnjudged;
      if (findings->size() > most) findings->resize(most);
    }
    for (auto& suspect : result_.suspects) explain(suspect);
    blame_a_weight();
    for (const Side* const side : {&of_a_, &of_b_}) {
      auto& only = side == &of_a_ ? result_.only_a : result_.only_b;
      for (std::uint32_t i = 0; i < side->partners.size(); ++i) {
        if (side->partners[i] == kNone) only.push_back(i);
      }
    }
    find_gaps();
    const bool weights_alone = a_.calls().empty() && b_.calls().empty() &&
                               std::any_of(result_.weights.begin(), result_.weights.end(),
                                           [](const WeightRow& row) { return row.compared; });
    TORCH_CHECK_VALUE(result_.compared > 0 || weights_alone || !result_.suspects.empty(), kJudge,
                      ": nothing of \"", a_.file(), "\" (", a_.calls().size(), " calls) and \"", b_.file(),
                      "\" (", b_.calls().size(), " calls) could be compared; ",
                      a_.cut_off() || b_.cut_off()
                          ? c10::str(a_.cut_off() ? "the first" : "the second", " file is cut off.")
                      : a_.calls().empty() || b_.calls().empty()
                          ? "did the model run where they were written?"
                          : "name modules that belong together by a map.");
    return std::move(result_);
  }

 private:
  using Calls = std::unordered_map<std::string, std::uint32_t>;
  /// One of the two runs.
  struct Side {
    const Run& run;
    const std::vector<std::uint32_t>& partners;  // of its calls, in the other run
    const char* name;
    Calls ran;                  // the first call of each path
    std::set<Digest> compared;  // of tensors
    /// Of each record, whether it was compared in full and, where no finding says otherwise, agrees. What is
    /// not entered here was not compared.
    std::vector<bool> settled;

    void settle(std::uint32_t record) {
      settled[record] = true;
      const Record& one = run.records()[record];
      if (has_print(one)) compared.insert(one.digest);
    }
  };

  static Calls first_calls(const Run& run) {
    Calls ran;
    for (std::uint32_t i = 0; i < run.calls().size(); ++i) ran.emplace(run.path(run.calls()[i]), i);
    return ran;
  }
  const std::string& path(const Run& run, std::uint32_t call) const { return run.path(run.calls()[call]); }

  void judge_weights() {
    for (const auto& pair : pairs_.weights) {
      WeightRow row{pair.a, pair.b, {}, false, false, {}};
      if (row.a == kNone || row.b == kNone) {
        const Side& has = holder(row);
        row.words = c10::str(&has == &of_a_ ? "B" : "A", " has no ", has.run.path(weight_of(row, has)));
        row.difference.error = INFINITY;
        result_.weights.push_back(std::move(row));
        continue;
      }
      const Record &mine = a_.records()[pair.a], &other = b_.records()[pair.b];
      row.compared = has_print(mine) && has_print(other);
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

  /// The side that has a weight: A, if both have.
  const Side& holder(const WeightRow& row) const { return row.a != kNone ? of_a_ : of_b_; }
  const Record& weight_of(const WeightRow& row, const Side& side) const {
    return side.run.records()[&side == &of_a_ ? row.a : row.b];
  }

  static bool has_print(const Record& record) {
    return record.holds == Record::Holds::fingerprint || record.holds == Record::Holds::tensor;
  }

  void skip(const Record& mine, const Record& other) {
    const std::string reason = has_print(mine) ? b_.reason(other) : a_.reason(mine);
    ++result_.not_compared[reason.empty() ? "only one of the two is a tensor" : reason];
  }

  /// Whether a name is of nothing but places, "[1]" or "": in a tuple, or from where names are not known.
  static bool is_unnamed(const std::string& name) {
    return name.empty() ||
           (name.front() == '[' && name.find_first_not_of("[]0123456789") == std::string::npos);
  }

  /// The pairs of A's and B's records of a call: equal names first, then the others in their order. Names
  /// that both sides give and that differ are of different things. None has its place if both sides have as
  /// many results, and is nothing otherwise.
  using Slots = c10::SmallVector<std::uint32_t, 2>;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> matched(const Slots& of_a, const Slots& of_b,
                                                               bool inputs) const {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> result;
    std::vector<std::uint32_t> rest(of_b.begin(), of_b.end());
    const auto is_text = [](const Run& run, const Record& record) {
      return record.holds == Record::Holds::value && run.is_there(record);
    };
    for (const auto i : of_a) result.emplace_back(i, kNone);
    const auto match = [&](const auto& fits) {
      for (auto& [i, other] : result) {
        if (other != kNone) continue;
        const Record& mine = a_.records()[i];
        const auto found = std::find_if(rest.begin(), rest.end(),
                                        [&](std::uint32_t j) { return fits(mine, b_.records()[j]); });
        if (found == rest.end()) continue;
        other = *found;
        rest.erase(found);
      }
    };
    match([&](const Record& mine, const Record& its) {
      return !a_.name(mine).empty() && a_.name(mine) == b_.name(its);
    });
    const auto unmatched = [](const auto& pair) { return pair.second == kNone; };
    const auto drop_nothing = [&] {
      const auto nothing = [](const Run& run, std::uint32_t i) { return !run.is_there(run.records()[i]); };
      const auto of_mine = [&](const auto& pair) { return unmatched(pair) && nothing(a_, pair.first); };
      result.erase(std::remove_if(result.begin(), result.end(), of_mine), result.end());
      rest.erase(std::remove_if(rest.begin(), rest.end(), [&](auto j) { return nothing(b_, j); }),
                 rest.end());
    };
    const auto left = std::count_if(result.begin(), result.end(), unmatched);
    if (inputs || left != static_cast<std::ptrdiff_t>(rest.size())) drop_nothing();
    match([&](const Record& mine, const Record& its) {
      return (is_unnamed(a_.name(mine)) || is_unnamed(b_.name(its))) && is_text(a_, mine) == is_text(b_, its);
    });
    drop_nothing();
    for (const auto j : rest) result.emplace_back(kNone, j);
    return result;
  }

  /// The state of a sequence while its events are gone through.
  struct State {
    Reached all;
    std::uint32_t first = kNone;  // the first call that was compared
    std::unordered_map<std::uint32_t, Reached> inputs;
    std::unordered_map<std::uint32_t, std::uint32_t> last;  // of a call, the last within that has returned
    std::unordered_map<std::uint32_t, std::size_t> rows;
    std::unordered_map<std::uint32_t, std::vector<std::pair<std::uint32_t, std::uint32_t>>>
        slots;                             // of events
    std::vector<std::uint32_t> unseen;     // calls that B lacks and that returned since the last paired call
    std::map<Digest, std::uint32_t> of_b;  // B's records, by the digests of A's
    std::size_t settled = 0;               // the last event that agrees, in its shape, too
    std::vector<std::pair<std::size_t, Divergence>> reshaped;  // by event
  };

  /// The nearest call around a call that both have.
  std::uint32_t around_in_both(std::uint32_t call) const {
    do {
      call = a_.calls()[call].parent;
    } while (call != kNone && pairs_.of_a[call] == kNone);
    return call;
  }

  void judge_calls(const Sequence& sequence) {
    State state;
    std::uint32_t ended = kNone;
    for (std::size_t at = 0; at < sequence.events.size(); ++at) {
      const auto& event = sequence.events[at];
      if (ended != kNone && ended != event.call)
        state.inputs.erase(ended), state.last.erase(ended), state.rows.erase(ended);
      const Record& mine = a_.records()[event.record];
      const bool input = mine.kind == Kind::forward_input;
      const std::uint32_t partner = pairs_.of_a[event.call];
      if (partner != kNone) {
        const Call &call = a_.calls()[event.call], &its = b_.calls()[partner];
        const auto [row, fresh] = state.rows.emplace(event.call, result_.rows.size());
        if (fresh) result_.rows.push_back({event.call, partner});
        const Slots &slots = input ? call.inputs : call.outputs, &others = input ? its.inputs : its.outputs;
        if (event.record == slots.front()) {
          state.slots[event.call] = matched(slots, others, input);
        }
        const auto& pairs = state.slots[event.call];
        for (const auto& [i, j] : pairs) {
          if (i == event.record && j != kNone) judge_record(at, event, j, state, result_.rows[row->second]);
        }
        if (event.record == slots.back()) {
          judge_number(event, pairs, state, result_.rows[row->second]);
          state.slots.erase(event.call);
        }
      }
      ended = input ? kNone : event.call;
      if (input) continue;
      state.all.returned = true;
      if (partner == kNone) {
        state.unseen.push_back(event.call);
      } else {
        state.last[around_in_both(event.call)] = event.call;  // which can be looked at in both
        state.unseen.clear();
      }
    }
    // Another layout inside of a program is a difference only if nothing behind it agrees.
    for (auto& [at, finding] : state.reshaped) {
      if (at >= state.settled) suspect(std::move(finding));
    }
  }

  /// A call from outside of all others that is the model itself, as far as was seen.
  bool is_model(std::uint32_t call, std::uint32_t other) const {
    const Call &mine = a_.calls()[call], &its = b_.calls()[other];
    return (mine.parent == kNone && a_.path(mine).empty()) || (its.parent == kNone && b_.path(its).empty());
  }
  bool is_outermost(std::uint32_t call, std::uint32_t other) const {
    return a_.calls()[call].parent == kNone && b_.calls()[other].parent == kNone;
  }
  /// Whether either program was given what it returned.
  bool is_returned(std::uint32_t call, std::uint32_t other) const {
    return a_.calls()[call].parent == kNone || b_.calls()[other].parent == kNone;
  }

  /// Compares two records that belong together.
  void judge_record(std::size_t at, const Sequence::Event& event, std::uint32_t other, State& state,
                    Row& row) {
    const Record &mine = a_.records()[event.record], &theirs = b_.records()[other];
    if (has_print(mine) && has_print(theirs)) return compare(at, event, other, state, row);
    const auto threw = [](const Record& record) { return record.holds == Record::Holds::exception; };
    const auto words = [](const Run& run, const Record& record) { return run.text(record.text); };
    const auto settle = [&] { of_a_.settle(event.record), of_b_.settle(other); };
    const auto type = [](const std::string& text) { return text.substr(0, text.find(':')); };
    if (threw(mine) || threw(theirs)) {
      const bool both = threw(mine) && threw(theirs);
      settle();
      if (both && type(words(a_, mine)) == type(words(b_, theirs))) return;
      return fail(event, other, state, row,
                  both ? c10::str("A throws ", words(a_, mine), ", B throws ", words(b_, theirs))
                       : c10::str(threw(mine) ? "A" : "B", " throws ",
                                  threw(mine) ? words(a_, mine) : words(b_, theirs)));
    }
    const auto known = [](const Record& record) { return record.holds != Record::Holds::nothing; };
    if (!known(mine) || !known(theirs)) return skip(mine, theirs);
    const bool values = mine.holds == Record::Holds::value && theirs.holds == Record::Holds::value;
    if (values) ++result_.compared;
    if (values && words(a_, mine) == words(b_, theirs)) return settle();
    const auto what = [&](const Run& run, const Record& record) {
      return has_print(record) ? std::string("a tensor") : words(run, record);
    };
    if (mine.kind != Kind::forward_output || !is_outermost(event.call, row.b)) return;
    settle();
    const auto [of_a, of_b] = excerpts(what(a_, mine), what(b_, theirs));
    fail(event, other, state, row, c10::str("it returns ", of_b, " in B, ", of_a, " in A"));
  }

  /// Judges the number of inputs or outputs, and their names.
  void judge_number(const Sequence::Event& event,
                    const std::vector<std::pair<std::uint32_t, std::uint32_t>>& pairs, State& state,
                    Row& row) {
    const bool input = a_.records()[event.record].kind == Kind::forward_input;
    std::int64_t of_a = 0, of_b = 0;
    std::vector<std::string> only[2];
    for (const auto& [i, j] : pairs) {
      const bool threw = (i != kNone && a_.records()[i].holds == Record::Holds::exception) ||
                         (j != kNone && b_.records()[j].holds == Record::Holds::exception);
      if (threw) return;
      of_a += i != kNone ? 1 : 0, of_b += j != kNone ? 1 : 0;
      if (j == kNone) only[0].push_back(a_.name(a_.records()[i]));
      if (i == kNone) only[1].push_back(b_.name(b_.records()[j]));
    }
    if (only[0].empty() && only[1].empty()) return;
    const auto named = [](const std::vector<std::string>& names) {
      std::string text;
      for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
      return text;
    };
    const char* const verb = input ? " was given " : " returns ";
    std::string words = c10::str("A", verb, of_a, of_a == 1 ? " value" : " values", ", B ", of_b);
    for (const std::size_t side : {0U, 1U}) {
      const std::string names = named(only[side]);
      if (names.find_first_not_of(", ") != std::string::npos)
        words += c10::str("; ", side == 0 ? "A" : "B", " alone has ", names);
    }
    if (!input && b_.calls()[row.b].outputs.empty()) return;  // what it returned was not recorded
    if (!is_outermost(event.call, row.b)) {
      result_.not_compared[words] += static_cast<std::int64_t>(only[0].size() + only[1].size());
      return;
    }
    for (const auto& [i, j] : pairs) {
      if (j == kNone) of_a_.settle(i);
      if (i == kNone) of_b_.settle(j);
    }
    if (!input) return fail(event, kNone, state, row, words);
    result_.gaps.push_back(c10::str("what only one of the two was given: ", words));
  }

  /// Reports a difference that no numbers measure, in words.
  void fail(const Sequence::Event& event, std::uint32_t other, State& state, Row& row,
            const std::string& words) {
    Difference difference;
    difference.error = INFINITY;
    state.all.add(difference);
    row.same_bits = false, row.differs = true, row.error = INFINITY;
    Divergence finding = found(event, other, row, difference, {}, state);
    finding.certain = true;
    finding.cause = words;
    suspect(std::move(finding));
  }

  /// Adds a finding of one thread, unless it is known or there are enough.
  void suspect(Divergence finding) {
    const auto same = [&](const Divergence& known) {  // in another forward perhaps
      return known.kind == finding.kind && known.path == finding.path && known.before == finding.before &&
             known.exact >= finding.exact && known.certain >= finding.certain &&
             a_.records()[known.record_a].call == a_.records()[finding.record_a].call;
    };
    const auto known = std::find_if(result_.suspects.begin(), result_.suspects.end(), same);
    if (known != result_.suspects.end()) {
      const Record &one = a_.records()[known->record_a], &other = a_.records()[finding.record_a];
      if (std::tie(one.sample, one.thread, one.rank) != std::tie(other.sample, other.thread, other.rank))
        ++result_.repeated;
    } else if (of_thread(finding) < kMostSuspects) {
      result_.suspects.push_back(std::move(finding));
    }
  }

  void compare(std::size_t at, const Sequence::Event& event, std::uint32_t other, State& state, Row& row) {
    const Call &call = a_.calls()[event.call], &its = b_.calls()[row.b];
    const Record &mine = a_.records()[event.record], &theirs = b_.records()[other];
    const bool input = mine.kind == Kind::forward_input;
    if (state.first == kNone) state.first = event.call;
    const bool of_root = is_given(event, state);
    Reached& own = state.inputs[event.call];
    const bool alone = !input && call.leaf && its.leaf && own.any;  // nothing else made it
    const Reached& given = alone ? own : state.all;
    Difference measured;
    measured.same_bits = mine.digest == theirs.digest;
    std::optional<Fingerprint> x, y;
    if (!measured.same_bits) {
      x = a_.print(mine), y = b_.print(theirs);
      measured = difference(*x, *y);
    }
    ++result_.compared;
    of_a_.settle(event.record), of_b_.settle(other);
    state.of_b.emplace(mine.digest, other);
    Extent allowed = thresholds_.allowed(measured, given.extent);
    const bool whole = x && is_whole(*x) && x->dtype == y->dtype;
    if (whole) allowed = {};  // these are not rounded
    // Rounding of inputs that were prepared in another way does not explain a difference far behind it.
    if (of_root && event.call == state.first) allowed = {4 * measured.unit, 4 * measured.unit, false};
    bool differs = !measured.same_bits && (thresholds_.bits || !allowed.holds(measured));
    // An error that large is allowed to any call, so it does not accuse the call that computed it.
    const bool meaningless = measured.error > std::max(0.1, 64 * measured.unit);
    const bool unjudged =
        !thresholds_.bits && (given.extent.broken ? differs : !differs && !measured.same_bits && meaningless);
    if (unjudged) differs = false;
    row.same_bits &= measured.same_bits;
    row.differs |= differs;
    double& largest = input ? row.error_in : row.error;
    if (!(measured.error < largest)) {
      largest = measured.error;
      if (!input) row.allowed = allowed.error, row.scale = std::exp(measured.scale);
    }
    if (measured.error > result_.largest_error || result_.largest_at.empty())
      result_.largest_error = measured.error, result_.largest_at = a_.path(call);
    const bool model = !input && (is_model(event.call, row.b) || is_outermost(event.call, row.b));
    const bool of_other_dtype = x && x->dtype != y->dtype;
    if (model && of_other_dtype && !differs && !unjudged) {
      const std::string words = c10::str(base::dtype_text(x->scalar_type()), " in A, ",
                                         base::dtype_text(y->scalar_type()), " in B");
      if (is_whole(*x) || is_whole(*y)) return fail(event, other, state, row, "the same values, " + words);
      result_.dtypes.push_back(
          c10::str(a_.path(call).empty() ? "(root)" : a_.path(call), " returns ", words));
    }
    if (input) own.add(measured);
    state.all.add(measured);
    const bool other_shape = !input && !differs && !unjudged && measured.reshaped;
    const bool agrees = !differs && !unjudged && !other_shape;
    if (agrees) state.settled = at + 1;
    const bool earlier =
        !measured.same_bits && (!result_.first_bits || event.record < result_.first_bits->record_a);
    if (agrees && !earlier) return;

    Divergence finding = found(event, other, row, measured, allowed, state);
    finding.cause = cause(finding);
    finding.exact = whole && !input && is_returned(event.call, row.b);
    if (earlier) result_.first_bits = finding;
    if (unjudged) {
      if (result_.unjudged_tensors++ == 0) result_.unjudged_from = a_.path(call);
      finding.unjudged = true;
      if (alone && result_.unjudged.size() < kMostUnjudged) result_.unjudged.push_back(std::move(finding));
    } else if (other_shape) {
      const std::string shapes = c10::str(x->shape(), " in A, ", y->shape(), " in B");
      if (finding.cause.find(shapes) == std::string::npos)
        finding.cause = c10::str(in_words(*x, *y), " (", shapes, ")");
      finding.error = INFINITY, finding.certain = true;
      if (model) {
        row.differs = true;
        suspect(std::move(finding));
      } else {
        state.reshaped.emplace_back(at, std::move(finding));
      }
    } else if (differs) {
      suspect(std::move(finding));
    }
  }

  /// Whether the program gave this to the model.
  bool is_given(const Sequence::Event& event, const State& state) const {
    const Call& call = a_.calls()[event.call];
    return a_.records()[event.record].kind == Kind::forward_input &&
           ((!state.all.returned && event.call == state.first) ||
            (call.parent == kNone && a_.path(call).empty()));
  }

  /// The finding at an event, without its cause.
  Divergence found(const Sequence::Event& event, std::uint32_t other, const Row& row,
                   const Difference& measured, const Extent& allowed, const State& state) const {
    const Call &call = a_.calls()[event.call], &its = b_.calls()[row.b];
    const Record& mine = a_.records()[event.record];
    const bool input = mine.kind == Kind::forward_input, of_root = is_given(event, state);
    const auto before = state.last.find(input ? around_in_both(event.call) : event.call);
    const std::uint32_t last = before == state.last.end() ? kNone : before->second;
    Divergence finding;
    finding.kind = of_root ? Divergence::Kind::input
                   : input ? Divergence::Kind::between
                           : Divergence::Kind::module;
    const bool between = input && !of_root;
    finding.call_a = between ? call.parent : event.call;
    finding.call_b = between ? its.parent : row.b;
    if (between) {
      see(event, state, finding);
      finding.call_a = code_around(event.call, last, finding);
      finding.before = a_.path(call), finding.before_call = call.ordinal;
    }
    // Without a root that was seen, names say what is around modules.
    const auto name = [&](const Run& run, std::uint32_t of, std::uint32_t next, std::uint32_t previous) {
      if (of != kNone) return path(run, of);
      return previous == kNone ? around(path(run, next)) : common(path(run, previous), path(run, next));
    };
    const std::uint32_t other_last = last == kNone ? kNone : pairs_.of_a[last];
    finding.path = name(a_, finding.call_a, event.call, last);
    const bool named_by_a = finding.call_a != kNone && finding.call_b == kNone;
    finding.path_b = named_by_a ? finding.path : name(b_, finding.call_b, row.b, other_last);
    if (finding.call_a != kNone) finding.type = a_.text(a_.calls()[finding.call_a].type);
    if (last != kNone) finding.after = path(a_, last), finding.after_call = a_.calls()[last].ordinal;
    finding.sample = sample(a_, finding.call_a), finding.sample_b = sample(b_, finding.call_b);
    finding.record_a = event.record, finding.record_b = other;
    finding.thread = mine.thread, finding.rank = mine.rank, finding.slot = mine.slot;
    finding.error = measured.error, finding.scale = std::exp(measured.scale);
    finding.allowed = allowed.error, finding.allowed_scale = allowed.scale;
    return finding;
  }

  /// Finds the call of A alone that made the differing tensor, if B's records of its inputs are known.
  void see(const Sequence::Event& event, const State& state, Divergence& finding) const {
    const Record& made = a_.records()[event.record];
    for (const auto index : state.unseen) {
      const Call& call = a_.calls()[index];
      const std::uint32_t first = a_.first_tensor(call.outputs);
      if (first == kNone || a_.records()[first].digest != made.digest) continue;
      std::vector<std::uint32_t> inputs;
      for (const auto i : call.inputs) {
        const auto known = state.of_b.find(a_.records()[i].digest);
        if (known != state.of_b.end()) inputs.push_back(known->second);
      }
      if (inputs.empty() || inputs.size() != call.inputs.size()) continue;
      finding.unseen = index, finding.unseen_inputs = std::move(inputs);
      return;
    }
  }

  /// The call whose code made the differing tensor: the call around both, or a call of A that B lacks.
  std::uint32_t code_around(std::uint32_t next, std::uint32_t last, const Divergence& finding) const {
    const std::uint32_t parent = a_.calls()[next].parent;
    if (parent == kNone || pairs_.of_a[parent] != kNone) return parent;
    if (finding.unseen != kNone && !a_.calls()[finding.unseen].leaf) return finding.unseen;
    std::unordered_set<std::uint32_t> of_last;
    for (std::uint32_t at = last; at != kNone; at = a_.calls()[at].parent) of_last.insert(at);
    std::uint32_t at = parent;
    while (last != kNone && at != kNone && of_last.count(at) == 0) at = a_.calls()[at].parent;
    return at;
  }

  std::size_t of_thread(const Divergence& finding) const {
    return static_cast<std::size_t>(
        std::count_if(result_.suspects.begin(), result_.suspects.end(), [&](const Divergence& known) {
          return known.thread == finding.thread && known.rank == finding.rank;
        }));
  }

  static std::uint32_t sample(const Run& run, std::uint32_t index) {
    if (index == kNone) return 0;
    const Call& call = run.calls()[index];
    return run.records()[(call.inputs.empty() ? call.outputs : call.inputs).front()].sample;
  }

  std::string cause(const Divergence& finding) const {
    const auto x = *a_.print(a_.records()[finding.record_a]), y = *b_.print(b_.records()[finding.record_b]);
    std::string words = in_words(x, y);
    // Tensors that pass through modules are seldom transposed.
    if (x.shape() == y.shape()) words.resize(std::min(words.size(), words.find(", such as")));
    const auto sizes = x.shape();
    const bool image = std::find(sizes.begin(), sizes.end(), 3) != sizes.end();
    if (finding.kind == Divergence::Kind::input && image &&
        words.rfind("the same values in another order", 0) == 0 && words.find("B = ") == std::string::npos)
      words = "the same values in another order (RGB and BGR, or channels last?)";
    if (words.empty() && finding.kind == Divergence::Kind::module && finding.error < 1e-2 &&
        finding.type.find("Norm") != std::string::npos)
      words = "slightly another scale, as of another eps";
    return words;
  }

  /// A weight that differs; of modules that were not seen, the nearest around that was says whether it ran.
  struct Owner {
    std::string path;  // of the module of the weight
    std::uint32_t call = kNone;
  };
  Owner owner(const Side& side, const Record& weight) const {
    Owner result{around(side.run.path(weight)), kNone};
    for (std::string at = result.path;; at = around(at)) {
      const auto found = side.ran.find(at);
      if (found != side.ran.end()) result.call = found->second;
      if (found != side.ran.end() || at.empty()) return result;
    }
  }
  /// Whether the weight may be what a finding at a call of the module `path` is due to.
  bool belongs(const Side& side, const Record& weight, const std::string& path) const {
    const Owner of = owner(side, weight);
    const std::string ran = of.call == kNone ? "" : this->path(side.run, of.call);
    if (of.call != kNone && ran == path) return true;
    // A module that was seen on both sides has findings of its own.
    if (of.call != kNone && (side.partners[of.call] != kNone || of.path != ran)) return false;
    return of.path == path || lies_in(of.path, path);
  }
  /// Batch normalisation counts its batches in such a tensor. No output of an evaluation depends on it.
  bool is_counter(const WeightRow& row) const {
    const Side& has = holder(row);
    const auto print = has.run.print(weight_of(row, has));
    return print && print->numel() == 1 && print->dtype <= 4;
  }

  Divergence as_weight(const WeightRow& row, Divergence finding) const {
    finding.kind = Divergence::Kind::weight;
    finding.path = row.a == kNone ? "" : a_.path(a_.records()[row.a]);
    finding.path_b = row.b == kNone ? "" : b_.path(b_.records()[row.b]);
    finding.type = holder(row).run.text(weight_of(row, holder(row)).type);
    finding.record_a = row.a, finding.record_b = row.b, finding.slot = 0;
    finding.error = row.difference.error, finding.scale = std::exp(row.difference.scale);
    finding.allowed = finding.allowed_scale = 0;
    finding.after.clear(), finding.before.clear();
    finding.cause = row.words;
    return finding;
  }

  /// A finding is due to a weight of its module if one differs; the worst one is named.
  void explain(Divergence& finding) const {
    if (finding.kind == Divergence::Kind::input || finding.certain) return;
    const WeightRow* worst = nullptr;
    for (const auto& row : result_.weights) {
      if (row.agrees || (worst != nullptr && !(row.difference.error > worst->difference.error))) continue;
      // A module without such a weight is another one; a side without any weights (TorchScript that was
      // frozen) says nothing about it.
      const bool lacking = row.a == kNone || row.b == kNone;
      const Side& has = holder(row);
      const Record& weight = weight_of(row, has);
      const std::string& path = &has == &of_a_ ? finding.path : finding.path_b;
      if (lacking && (a_.weights().empty() || b_.weights().empty() || owner(has, weight).path != path))
        continue;
      if (belongs(has, weight, path) && !is_counter(row)) worst = &row;
    }
    if (worst != nullptr) finding = as_weight(*worst, std::move(finding));
  }

  /// Whether both weights are of one module, by names or because their modules ran in each other's place.
  bool belong_together(const WeightRow& row) const {
    const Record &mine = weight_of(row, of_a_), &its = weight_of(row, of_b_);
    if (a_.path(mine) == b_.path(its)) return true;
    const std::uint32_t call = owner(of_a_, mine).call;
    return call != kNone && pairs_.of_a[call] != kNone && pairs_.of_a[call] == owner(of_b_, its).call;
  }

  /// The first weight that differs, preferably of a module that ran and gave other bits. It is the answer if
  /// no computed tensor differs.
  void blame_a_weight() {
    const WeightRow *first = nullptr, *unused = nullptr;
    std::uint32_t at = kNone;
    for (const auto& row : result_.weights) {
      if (row.agrees || row.a == kNone || row.b == kNone || is_counter(row) || !belong_together(row))
        continue;
      if (unused == nullptr) unused = &row;
      const Owner of = owner(of_a_, weight_of(row, of_a_));
      const std::uint32_t call = of.call;
      if (call == kNone ? !a_.calls().empty() : of.path != path(a_, call) && !a_.calls()[call].leaf) continue;
      const auto known =
          std::find_if(result_.rows.begin(), result_.rows.end(), [&](const Row& r) { return r.a == call; });
      const bool matters = a_.calls().empty() || (known != result_.rows.end() && !known->same_bits);
      if (matters && (first == nullptr || call < at)) first = &row, at = call;
    }
    if (first == nullptr) first = unused, at = kNone;
    if (first == nullptr) return;
    Divergence finding;
    finding.call_a = at, finding.call_b = at == kNone ? kNone : pairs_.of_a[at];
    finding.sample = sample(a_, at), finding.sample_b = sample(b_, finding.call_b);
    result_.weight = as_weight(*first, std::move(finding));
    if (result_.suspects.empty()) result_.suspects.push_back(*result_.weight);
  }

  /// Whether all outputs of a call were compared, there or elsewhere. One that was not seen to return
  /// anything (None is something) returned what was not recorded.
  bool stands(const Side& side, std::uint32_t call) const {
    const auto& outputs = side.run.calls()[call].outputs;
    return !outputs.empty() && std::all_of(outputs.begin(), outputs.end(), [&](auto i) {
      const Record& record = side.run.records()[i];
      return side.settled[i] || !side.run.is_there(record) ||
             (has_print(record) && side.compared.count(record.digest) != 0);
    });
  }

  /// Finds outputs that have to be compared before "nothing differs" is true: all outputs, except inside of a
  /// call whose own were compared.
  void find_gaps() {
    constexpr std::size_t kSome = 4;
    std::vector<char> open_in_a;
    for (const Side* const side : {&of_a_, &of_b_}) {
      const Run& run = side->run;
      const bool of_a = side == &of_a_;
      if (run.model_is_unseen())
        result_.gaps.push_back(
            c10::str("what ", side->name, "'s model returned, whose own call was not seen"));
      std::vector<char> open(run.calls().size());  // neither compared, nor anything around it
      std::vector<std::string> names;
      for (std::uint32_t i = 0; i < run.calls().size(); ++i) {
        const Call& call = run.calls()[i];
        const bool in_open = call.parent != kNone && open[call.parent] != 0;
        open[i] = (call.parent == kNone || in_open) && !stands(*side, i) ? 1 : 0;
        const std::uint32_t other = side->partners[i];
        const bool said = (!of_a && other != kNone && open_in_a[other] != 0) ||
                          (other == kNone && run.path(call).empty() && (of_a ? b_ : a_).model_is_unseen());
        if (open[i] == 0 || in_open || said) continue;
        names.push_back(
            c10::str(run.path(call).empty() ? "(root)" : run.path(call), " (", run.text(call.type), ")"));
      }
      if (of_a) open_in_a = std::move(open);
      std::string list;
      for (std::size_t i = 0; i < std::min(names.size(), kSome); ++i) list += (i == 0 ? "" : ", ") + names[i];
      if (names.size() > kSome) list += c10::str(" and ", names.size() - kSome, " others");
      if (!names.empty()) result_.gaps.push_back(c10::str("what ", list, " returned in ", side->name));
      if (const auto later = run.later_forwards(); later != 0)
        result_.gaps.push_back(
            c10::str(later, later == 1 ? " later forward of " : " later forwards of ", side->name));
      if (const std::string why = run.not_recorded(); !why.empty())
        result_.gaps.push_back(c10::str("what could not be recorded in ", side->name, " (", why, ")"));
      if (run.cut_off())
        result_.gaps.push_back(c10::str("what ", side->name, "'s file lacks, which is cut off"));
    }
  }

  const Run &a_, &b_;
  const Pairs& pairs_;
  const Thresholds thresholds_;
  Side of_a_, of_b_;
  Verdict result_;
};

}  // namespace

Thresholds Thresholds::parse(const std::string& text) {
  Thresholds result;
  const std::size_t comma = text.find(',');
  const auto tolerance = base::number_of(text.substr(0, comma));
  const auto gain = comma == std::string::npos ? std::nullopt : base::number_of(text.substr(comma + 1));
  const bool good =
      tolerance && gain && *tolerance >= 0 && *gain >= 0 && std::isfinite(*tolerance) && std::isfinite(*gain);
  if (good) {
    result.tolerance = *tolerance;
    result.gain = *gain;
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

std::string name_of(Divergence::Kind kind) {
  constexpr const char* kNames[] = {"weight", "input", "module", "between"};
  return kNames[static_cast<int>(kind)];
}

Verdict judge(const Run& a, const Run& b, const Pairs& pairs, const Thresholds& thresholds) {
  return Judge(a, b, pairs, thresholds)();
}

}  // namespace torchtap::views::compare
