// Compares two runs, and prints what differs first.
#include "compare_prints.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <optional>

#include <torchtap/views/compare/verdict.hpp>

#include "compared_program.hpp"
#include "dtypes.hpp"
#include "json.hpp"
#include "message_text.hpp"
#include "recordings.hpp"
#include "second_pass.hpp"
#include "table.hpp"
#include "temporary_folder.hpp"
#include "terminal.hpp"

namespace torchtap::tools {
namespace {

namespace prints = views::compare;

std::string short_text(double value) {
  return to_text(value, 2);
}

std::string path_of(const prints::Run& run, std::uint32_t call) {
  return run.path(run.calls()[call]);
}

/// What is said in the end.
struct Answer {
  std::optional<prints::Finding> first;
  std::optional<SecondPass::Tried> tried;  // the first, if it is a module
  std::size_t innocent = 0;                // suspects before it that amplified rounding
  bool exhausted = false;                  // all suspects did, and there may be more
  std::string input_cause;
  bool own_is_a = true;

  bool proved() const {
    return first && (first->kind == prints::Finding::Kind::weight ||
                     first->kind == prints::Finding::Kind::input || (tried && tried->proved == true));
  }
  std::string cause() const {
    if (!first) return {};
    // A trial speaks of what the module around returns, fingerprints of what differs inside of it.
    if (first->kind == prints::Finding::Kind::between && !first->cause.empty()) return first->cause;
    if (tried && !tried->cause.empty()) return tried->cause;
    return input_cause.empty() ? first->cause : input_cause;
  }
};

Answer answer_of(const prints::Verdict& verdict, const SecondPass* pass) {
  Answer answer;
  std::size_t next = 0;
  if (pass != nullptr) answer.own_is_a = pass->own_is_a;
  for (const prints::Finding& finding : verdict.suspects) {
    const bool module =
        finding.kind == prints::Finding::Kind::module || finding.kind == prints::Finding::Kind::between;
    std::optional<SecondPass::Tried> tried;
    if (pass != nullptr && module) tried = pass->tried.at(next++);
    // What is made inside of a module may differ without its output, of which the trial speaks.
    constexpr double kFar = 16;
    const bool inside =
        finding.kind == prints::Finding::Kind::between && !(finding.error <= kFar * finding.allowed);
    if (tried && tried->proved == false && inside) {
      tried->proved.reset();
      tried->reason = "the output of the module around agrees";
    }
    if (tried && tried->proved == false) {
      ++answer.innocent;
      continue;
    }
    answer.first = finding;
    answer.tried = tried;
    if (pass != nullptr && finding.kind == prints::Finding::Kind::input)
      answer.input_cause = pass->input_cause;
    return answer;
  }
  constexpr std::size_t kMost = 5;  // suspects of a thread
  answer.exhausted = answer.innocent >= kMost;
  return answer;
}

class Printed {
 public:
  Printed(const prints::Run& a, const prints::Run& b, const prints::Pairs& pairs,
          const prints::Verdict& verdict, const Answer& answer, const PrintsOptions& options)
      : a_(a), b_(b), pairs_(pairs), verdict_(verdict), answer_(answer), options_(options) {}

  void text() const {
    heads();
    if (options_.all || shows_rows()) rows();
    for (const std::string& sentence : sentences()) print_wrapped(std::cout, printable(sentence));
  }

  void json() const {
    Json first(nullptr);
    if (answer_.first) {
      const prints::Finding& finding = *answer_.first;
      first = Json{{"kind", name_of(finding.kind)},
                   {"path", finding.path},
                   {"path_b", finding.path_b},
                   {"type", finding.type},
                   {"call", finding.sample},
                   {"slot", finding.slot},
                   {"rank", finding.rank},
                   {"thread", finding.thread},
                   {"after", finding.after},
                   {"before", finding.before},
                   {"error", to_json(finding.error)},
                   {"scale", to_json(finding.scale)},
                   {"allowed", to_json(finding.allowed)},
                   {"proved", answer_.proved() ? Json(true) : Json(nullptr)},
                   {"cause", answer_.cause().empty() ? Json(nullptr) : Json(answer_.cause())},
                   {"operation", nullptr}};
      if (answer_.tried) {
        first["own_error"] = to_json(answer_.tried->own_error);
        first["other_error"] = to_json(answer_.tried->other_error);
        first["where"] = answer_.tried->where.empty() ? Json(nullptr) : Json(answer_.tried->where);
        first["operation"] =
            answer_.tried->operation.empty() ? Json(nullptr) : Json(answer_.tried->operation);
        first["reason"] = answer_.tried->reason.empty() ? Json(nullptr) : Json(answer_.tried->reason);
      }
    }
    Json suspects = Json::array(), pairs = Json::array(), weights = Json::array(), missing = Json::array();
    for (const prints::Finding& finding : verdict_.suspects) {
      suspects.push_back({{"kind", name_of(finding.kind)},
                          {"path", finding.path},
                          {"path_b", finding.path_b},
                          {"call", finding.sample},
                          {"call_b", finding.sample_b},
                          {"error", to_json(finding.error)},
                          {"scale", to_json(finding.scale)},
                          {"allowed", to_json(finding.allowed)}});
    }
    for (const prints::Row& row : verdict_.rows) {
      const prints::Call& call = a_.calls()[row.a];
      pairs.push_back({{"path", a_.path(call)},
                       {"path_b", path_of(b_, row.b)},
                       {"type", a_.text(call.type)},
                       {"call", call.ordinal},
                       {"call_b", b_.calls()[row.b].ordinal},
                       {"error_in", to_json(row.error_in)},
                       {"error", to_json(row.error)},
                       {"allowed", to_json(row.allowed)},
                       {"scale", to_json(row.scale)},
                       {"same_bits", row.same_bits},
                       {"differs", row.differs}});
    }
    for (const prints::WeightRow& row : verdict_.weights) {
      weights.push_back(
          {{"path", row.a == prints::kNone ? Json(nullptr) : Json(a_.path(a_.records()[row.a]))},
           {"path_b", row.b == prints::kNone ? Json(nullptr) : Json(b_.path(b_.records()[row.b]))},
           {"agrees", row.agrees},
           {"same_bits", row.difference.same_bits},
           {"error", to_json(row.difference.error)},
           {"words", row.words}});
    }
    for (const auto& [reason, count] : verdict_.not_compared) {
      missing.push_back({{"reason", reason}, {"count", count}});
    }
    print(Json{{"a", head_of(a_, 0)},
               {"b", head_of(b_, 1)},
               {"agree", !answer_.first},
               {"first", first},
               {"suspects", suspects},
               {"innocent", answer_.innocent},
               {"compared", verdict_.compared},
               {"not_compared", missing},
               {"largest_error", to_json(verdict_.largest_error)},
               {"first_bits", verdict_.first_bits ? Json(verdict_.first_bits->path) : Json(nullptr)},
               {"map", pairs_.map},
               {"weights", weights},
               {"pairs", pairs},
               {"only_a", only(a_, verdict_.only_a)},
               {"only_b", only(b_, verdict_.only_b)}});
  }

 private:
  static std::string root_type(const prints::Run& run) {
    for (const auto& sequence : run.sequences()) {
      for (const auto call : sequence.calls) return run.text(run.calls()[call].type);
    }
    return "-";
  }

  std::string name_of_run(const prints::Run& run, std::size_t side) const {
    return options_.runs.empty() ? run.file() : options_.runs[side];
  }

  Json head_of(const prints::Run& run, std::size_t side) const {
    Json head{{"name", name_of_run(run, side)},
              {"calls", run.calls().size()},
              {"weights", run.weights().size()},
              {"cut_off", run.cut_off()}};
    for (const auto& [key, value] : run.header()) head[key] = value;
    return head;
  }

  static Json only(const prints::Run& run, const std::vector<std::uint32_t>& calls) {
    Json list = Json::array();
    for (const auto call : calls) list.push_back(path_of(run, call));
    return list;
  }

  void heads() const {
    for (std::size_t side = 0; side < 2; ++side) {
      const prints::Run& run = side == 0 ? a_ : b_;
      const auto known = run.header().find("torch");
      print_wrapped(std::cout,
                    c10::str(side == 0 ? "A  " : "B  ", printable(name_of_run(run, side)), ": ",
                             printable(root_type(run)), ", ",
                             counted(static_cast<std::int64_t>(run.weights().size()), "weight"), ", ",
                             counted(static_cast<std::int64_t>(run.calls().size()), "call"),
                             known == run.header().end() ? "" : ", PyTorch " + printable(known->second),
                             run.cut_off() ? "; the file is cut off" : ""));
    }
    const auto all = verdict_.weights.size();
    const auto of_weights = [&](auto member) {
      return std::count_if(verdict_.weights.begin(), verdict_.weights.end(), member);
    };
    const auto same = of_weights([](const auto& row) { return row.difference.same_bits; });
    const auto differ = of_weights([](const auto& row) { return !row.agrees; });
    if (all != 0) {
      std::cout << "weights  " << same << " of " << all << " have the same bits";
      if (differ != 0) std::cout << ", " << differ << " differ";
      std::cout << '\n';
    }
    std::size_t paired = 0;
    for (const auto other : pairs_.of_a) paired += other != prints::kNone ? 1 : 0;
    std::cout << "paired   " << paired << " of " << a_.calls().size() << " calls of A and "
              << b_.calls().size() << " of B";
    const std::pair<prints::How, const char*> ways[] = {{prints::How::map, " by --map"},
                                                        {prints::How::path, " by path"},
                                                        {prints::How::values, " by values and order"},
                                                        {prints::How::parent, " by what is inside"}};
    const char* separator = ": ";
    for (const auto& [how, words] : ways) {
      if (const auto count = pairs_.count(how); count != 0) {
        std::cout << separator << count << words;
        separator = ", ";
      }
    }
    std::cout << '\n';
    constexpr std::size_t kMostShown = 4;
    for (std::size_t i = 0; i < std::min(pairs_.map.size(), kMostShown); ++i) {
      std::cout << (i == 0 ? "         as with " : "                 ") << "--map '"
                << printable(pairs_.map[i]) << "'\n";
    }
    if (pairs_.map.size() > kMostShown)
      std::cout << "                 and " << pairs_.map.size() - kMostShown << " others\n";
    std::cout << '\n';
  }

  /// Whether a row is the answer.
  bool shows_rows() const {
    return std::any_of(verdict_.rows.begin(), verdict_.rows.end(),
                       [&](const auto& row) { return is_first(row); });
  }

  /// The first row that differs, and the one before it.
  void rows() const {
    using Align = Table::Align;
    Table table({{"module", Align::left, Table::kAlways, 16, true},
                 {"type", Align::left, 60, 8},
                 {"error", Align::right},
                 {"rounding", Align::right},
                 {"scale", Align::right, 90},
                 {""}});
    std::size_t agree = 0, after = 0;
    double largest = 0, largest_after = 0;
    const auto first = std::find_if(verdict_.rows.begin(), verdict_.rows.end(),
                                    [&](const auto& row) { return is_first(row); });
    const auto fold = [&](std::size_t calls, double error, const char* where) {
      if (calls == 0) return;
      table.add({c10::str("… ", counted(static_cast<std::int64_t>(calls), "call"), where), "",
                 short_text(error), "", "", ""});
    };
    for (auto row = verdict_.rows.begin(); row != verdict_.rows.end(); ++row) {
      const bool shown = row == first || row + 1 == first;
      if (!options_.all && !shown) {
        const bool behind = row > first || is_around(*row);
        ++(behind ? after : agree);
        double& most = behind ? largest_after : largest;
        most = std::max(most, row->error);
        continue;
      }
      fold(std::exchange(agree, 0), largest, " before it, at most");
      add(table, *row, row == first);
    }
    fold(agree, largest, " before it, at most");
    fold(after, largest_after, " that return after it, at most");
    table.print(std::cout);
    std::cout << '\n';
  }

  bool is_first(const prints::Row& row) const {
    if (!answer_.first || answer_.first->call_a != row.a) return false;
    const auto kind = answer_.first->kind;
    return kind == prints::Finding::Kind::module || kind == prints::Finding::Kind::between;
  }

  /// Whether the answer lies within a call, which therefore returns after it.
  bool is_around(const prints::Row& row) const {
    std::uint32_t call = answer_.first ? answer_.first->call_a : prints::kNone;
    while (call != prints::kNone && call != row.a) call = a_.calls()[call].parent;
    return call == row.a;
  }

  void add(Table& table, const prints::Row& row, bool first) const {
    const prints::Call& call = a_.calls()[row.a];
    const std::string other = path_of(b_, row.b);
    std::string name = shown_path(a_.path(call));
    if (other != a_.path(call)) name += " = " + shown_path(other);
    if (call.ordinal != 0) name += c10::str(" (call ", call.ordinal, ")");
    table.add({name, a_.text(call.type), row.same_bits ? "same bits" : short_text(row.error),
               short_text(row.allowed), short_text(row.scale),
               first         ? "first"
               : row.differs ? "differs"
                             : ""});
  }

  static std::string error_text(double error) {
    return std::isinf(error) ? std::string("shape, NaN or infinities") : short_text(error);
  }

  std::string where() const {
    const prints::Finding& finding = *answer_.first;
    std::string text = shown_path(finding.path);
    if (finding.path_b != finding.path) text += " (in B " + shown_path(finding.path_b) + ")";
    text += c10::str(", call ", finding.sample);
    if (finding.slot != 0) text += c10::str(", tensor ", finding.slot);
    if (finding.rank != 0) text += c10::str(", rank ", finding.rank);
    if (finding.thread != 0) text += c10::str(", thread ", finding.thread);
    return text;
  }

  std::vector<std::string> sentences() const {
    std::vector<std::string> lines;
    if (answer_.first) {
      lines = differing();
    } else {
      lines.push_back(agreeing());
      if (verdict_.first_bits) {
        lines.push_back(
            c10::str("The first different bits are in ", shown_path(verdict_.first_bits->path), "."));
      }
    }
    for (const auto& [reason, count] : verdict_.not_compared) {
      lines.push_back(c10::str("Not compared: ", counted(count, "tensor"), " (", reason, ")."));
    }
    const auto only = [&](const std::vector<std::uint32_t>& calls, const char* side, const prints::Run& run) {
      if (calls.empty()) return;
      std::string list;
      constexpr std::size_t kSome = 4;
      for (std::size_t i = 0; i < std::min(calls.size(), kSome); ++i) {
        list += (i == 0 ? "" : ", ") + shown_path(path_of(run, calls[i])) + " (" +
                run.text(run.calls()[calls[i]].type) + ")";
      }
      if (calls.size() > kSome) list += c10::str(" and ", calls.size() - kSome, " others");
      lines.push_back(c10::str("Only ", side, " called ", list, "."));
    };
    only(verdict_.only_a, "A", a_);
    only(verdict_.only_b, "B", b_);
    return lines;
  }

  std::string agreeing() const {
    const auto weights = std::count_if(verdict_.weights.begin(), verdict_.weights.end(),
                                       [](const auto& row) { return row.compared; });
    std::string text = c10::str(
        "Nothing differs by more than rounding: ", counted(verdict_.compared, "tensor"), " of ",
        counted(static_cast<std::int64_t>(verdict_.rows.size()), "call"), " and ", counted(weights, "weight"),
        " were compared; the largest error is ", short_text(verdict_.largest_error));
    if (verdict_.largest_error > 0) text += ", of " + shown_path(verdict_.largest_at);
    text += ".";
    if (answer_.innocent != 0) {
      text += c10::str(" ", counted(static_cast<std::int64_t>(answer_.innocent), "module"),
                       " differed by more, and computed the same from the same inputs in float64: rounding "
                       "was amplified.");
    }
    if (answer_.exhausted) text += " Later calls were not tried.";
    return text;
  }

  std::vector<std::string> differing() const {
    const prints::Finding& finding = *answer_.first;
    std::vector<std::string> lines;
    const std::string cause = answer_.cause();
    const std::string error = error_text(finding.error);
    switch (finding.kind) {
      case prints::Finding::Kind::weight:
        lines.push_back(
            c10::str("The weights differ: ", shown_path(finding.path.empty() ? finding.path_b : finding.path),
                     ": ", cause.empty() ? "the relative error is " + error : cause, "."));
        return lines;
      case prints::Finding::Kind::input:
        lines.push_back(c10::str(
            "The inputs differ already: ", cause.empty() ? "the relative error is " + error : cause, "."));
        if (cause.empty() && answer_.input_cause.empty() && options_.runs.empty())
          lines.push_back(how_to_prove());
        return lines;
      case prints::Finding::Kind::between: {
        std::string place;
        if (!finding.after.empty()) place = " behind " + finding.after;
        if (!finding.before.empty())
          place += (place.empty() ? " in front of " : " and in front of ") + finding.before;
        lines.push_back(c10::str("The first difference is made by the code of ", where(), place,
                                 ": all before agrees, and what it computes there has the error ", error,
                                 "."));
        break;
      }
      case prints::Finding::Kind::module: {
        const auto row = std::find_if(verdict_.rows.begin(), verdict_.rows.end(),
                                      [&](const auto& r) { return is_first(r); });
        const double given = row == verdict_.rows.end() ? 0 : row->error_in;
        lines.push_back(c10::str("The first difference is ", where(), ": its input agrees (",
                                 given == 0 ? "same bits" : short_text(given), "), its output does not (",
                                 error,
                                 std::abs(finding.scale - 1) > 1e-6 && std::isfinite(finding.error)
                                     ? c10::str(", scale × ", finding.scale)
                                     : "",
                                 ")."));
        break;
      }
    }
    if (answer_.innocent != 0) {
      lines.push_back(
          c10::str("Before it, ", counted(static_cast<std::int64_t>(answer_.innocent), "module"),
                   " amplified rounding: in float64 they compute the same from the same inputs."));
    }
    const char* own = answer_.own_is_a ? "A" : "B";
    const char* other = answer_.own_is_a ? "B" : "A";
    if (answer_.tried && !answer_.tried->operation.empty()) {
      lines.push_back(
          c10::str("Inside, the first operation that differs is ", answer_.tried->operation, "."));
    }
    if (answer_.tried && answer_.tried->proved.has_value()) {
      lines.push_back(c10::str("With all values: what ", own, "'s module computes in float64 from ", other,
                               "'s input is ", error_text(answer_.tried->other_error), " from ", other,
                               "'s output; from its own input it is ", error_text(answer_.tried->own_error),
                               " from its own."));
      if (!answer_.tried->cause.empty()) {
        lines.push_back(c10::str("Cause: ", answer_.tried->cause, " (with that, the error is ",
                                 short_text(answer_.tried->cause_error), ")."));
      } else if (!answer_.tried->where.empty()) {
        lines.push_back(c10::str("The difference lies in ", answer_.tried->where, "."));
      }
      return lines;
    }
    if (!finding.cause.empty()) lines.push_back(c10::str("The fingerprints say: ", finding.cause, "."));
    lines.push_back(how_to_prove());
    return lines;
  }

  std::string how_to_prove() const {
    if (options_.runs.empty()) {
      return "To prove it with all values, and to look for the cause: torchtap compare --run 'PROGRAM A' "
             "--run 'PROGRAM B'.";
    }
    if (answer_.tried && !answer_.tried->reason.empty())
      return "It is not proved: " + answer_.tried->reason + ".";
    return "It is not proved: neither program is Python's, whose modules can be tried with other inputs.";
  }

  const prints::Run &a_, &b_;
  const prints::Pairs& pairs_;
  const prints::Verdict& verdict_;
  const Answer& answer_;
  const PrintsOptions& options_;
};

}  // namespace

int compare_prints(const PrintsOptions& options) {
  const auto thresholds = [&] {
    auto parsed =
        options.tolerance.empty() ? prints::Thresholds() : prints::Thresholds::parse(options.tolerance);
    parsed.bits = options.bits;
    return parsed;
  }();
  std::optional<TemporaryFolder> folder;
  std::vector<std::string> files = options.sides;
  std::optional<std::array<ComparedProgram, 2>> programs;
  if (!options.runs.empty()) {
    folder.emplace();
    programs.emplace(
        std::array<ComparedProgram, 2>{ComparedProgram(options.runs[0]), ComparedProgram(options.runs[1])});
    files = {folder->path() + "/a.prints", folder->path() + "/b.prints"};
    for (std::size_t side = 0; side < 2; ++side) (*programs)[side].run(files[side], {});
  }
  const prints::Run a = prints::Run::read(files[0]), b = prints::Run::read(files[1]);
  const prints::Pairs pairs = prints::pair_up(a, b, options.map);
  const prints::Verdict verdict = prints::judge(a, b, pairs, thresholds);
  std::optional<SecondPass> pass;
  const bool tried = std::any_of(
      verdict.suspects.begin(), verdict.suspects.end(),
      [](const prints::Finding& finding) { return finding.kind != prints::Finding::Kind::weight; });
  if (programs && tried && ((*programs)[0].python() || (*programs)[1].python())) {
    pass = second_pass(*programs, folder->path(), a, verdict, thresholds);
  }
  const Answer answer = answer_of(verdict, pass ? &*pass : nullptr);
  const Printed printed(a, b, pairs, verdict, answer, options);
  options.json ? printed.json() : printed.text();
  return answer.first ? 1 : 0;
}

}  // namespace torchtap::tools
