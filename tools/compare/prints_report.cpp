// The output of `torchtap compare` for two runs.
#include "prints_report.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "files/json.hpp"
#include "recordings/recordings.hpp"
#include "terminal/message_text.hpp"
#include "terminal/table.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

namespace prints = views::compare;
using Kind = prints::Divergence::Kind;

std::string short_text(double value) {
  return to_text(value, 2);
}

std::string path_of(const prints::Run& run, std::uint32_t call) {
  return run.path(run.calls()[call]);
}

std::string count(std::size_t number, const char* word) {
  return counted(static_cast<std::int64_t>(number), word);
}

Json or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

class Printed {
 public:
  explicit Printed(const PrintsReport& r)
      : a_(r.a), b_(r.b), pairs_(r.pairs), verdict_(r.verdict), answer_(r.answer), options_(r.options) {}

  void text() const {
    heads();
    if (options_.all || first_row() != verdict_.rows.end()) rows();
    sentences();
  }

  void json() const {
    Json first(nullptr);
    if (answer_.first) {
      first = of_finding(*answer_.first);
      first["proved"] = proved() ? Json(true) : Json(nullptr);
      first["cause"] = or_null(cause());
      first["operation"] = nullptr;
      if (answer_.tried) {
        first["own_error"] = answer_.tried->own_error;
        first["other_error"] = answer_.tried->other_error;
        first["where"] = or_null(answer_.tried->where);
        first["operation"] = or_null(answer_.tried->operation);
        first["reason"] = or_null(answer_.tried->reason);
        first["search"] = or_null(answer_.tried->search);
        first["unseen"] = or_null(answer_.tried->unseen);
      } else if (!answer_.input_search.empty()) {
        first["search"] = answer_.input_search;
      }
    }
    Json suspects = Json::array(), pairs = Json::array(), weights = Json::array(), missing = Json::array();
    for (const prints::Divergence& finding : verdict_.suspects) suspects.push_back(of_finding(finding));
    for (const prints::Row& row : verdict_.rows) {
      const prints::Call& call = a_.calls()[row.a];
      pairs.push_back({{"path", a_.path(call)},
                       {"path_b", path_of(b_, row.b)},
                       {"type", a_.text(call.type)},
                       {"call", call.ordinal},
                       {"call_b", b_.calls()[row.b].ordinal},
                       {"error_in", row.error_in},
                       {"error", row.error},
                       {"allowed", row.allowed},
                       {"scale", row.scale},
                       {"same_bits", row.same_bits},
                       {"differs", row.differs}});
    }
    for (const prints::WeightRow& row : verdict_.weights) {
      weights.push_back(
          {{"path", row.a == prints::kNone ? Json(nullptr) : Json(a_.path(a_.records()[row.a]))},
           {"path_b", row.b == prints::kNone ? Json(nullptr) : Json(b_.path(b_.records()[row.b]))},
           {"agrees", row.agrees},
           {"same_bits", row.difference.same_bits},
           {"error", row.difference.error},
           {"words", row.words}});
    }
    for (const auto& [reason, tensors] : verdict_.not_compared)
      missing.push_back({{"reason", reason}, {"count", tensors}});
    print(Json{{"a", head_of(a_, 0)},
               {"b", head_of(b_, 1)},
               {"agree", answer_.outcome.agree()},
               {"gaps", answer_.outcome.gaps()},
               {"first", first},
               {"suspects", suspects},
               {"innocent", answer_.innocent},
               {"compared", verdict_.compared},
               {"not_compared", missing},
               {"largest_error", verdict_.largest_error},
               {"first_bits", verdict_.first_bits ? Json(verdict_.first_bits->path) : Json(nullptr)},
               {"map", pairs_.map},
               {"weights", weights},
               {"pairs", pairs},
               {"only_a", only(a_, verdict_.only_a)},
               {"only_b", only(b_, verdict_.only_b)}});
  }

 private:
  template <class... Parts>
  static void say(const Parts&... parts) {
    print_wrapped(std::cout, printable(c10::str(parts...)));
  }

  static Json of_finding(const prints::Divergence& finding) {
    return {{"kind", name_of(finding.kind)},
            {"path", finding.path},
            {"path_b", finding.path_b},
            {"type", finding.type},
            {"call", finding.sample},
            {"call_b", finding.sample_b},
            {"slot", finding.slot},
            {"rank", finding.rank},
            {"thread", finding.thread},
            {"after", finding.after},
            {"after_call", finding.after_call},
            {"before", finding.before},
            {"before_call", finding.before_call},
            {"error", finding.error},
            {"scale", finding.scale},
            {"allowed", finding.allowed}};
  }

  bool proved() const {
    return answer_.first && (answer_.first->kind == Kind::weight || answer_.first->kind == Kind::input ||
                             answer_.first->certain || (answer_.tried && answer_.tried->proved == true));
  }

  std::string cause() const {
    const prints::Divergence& first = *answer_.first;
    // A trial of the module around explains that module's outputs, and fingerprints explain the difference
    // inside of it.
    const bool around = answer_.tried && answer_.tried->unseen.empty();
    if (first.kind == Kind::between && around && !first.cause.empty()) return first.cause;
    if (answer_.tried && !answer_.tried->cause.empty()) return answer_.tried->cause;
    return answer_.input_cause.empty() ? first.cause : answer_.input_cause;
  }

  static std::string root_type(const prints::Run& run) {
    return run.calls().empty() ? "-" : run.text(run.calls()[run.sequences()[0].calls[0]].type);
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
                             printable(root_type(run)), ", ", count(run.weights().size(), "weight"), ", ",
                             count(run.calls().size(), "call"),
                             known == run.header().end() ? "" : ", PyTorch " + printable(known->second),
                             run.cut_off() ? "; the file is cut off" : ""));
    }
    std::size_t same = 0, differ = 0, paired = 0, only_a = 0, only_b = 0;
    for (const auto& row : verdict_.weights) {
      only_a += row.b == prints::kNone ? 1 : 0, only_b += row.a == prints::kNone ? 1 : 0;
      same += row.difference.same_bits ? 1 : 0;
      differ += row.agrees || row.a == prints::kNone || row.b == prints::kNone ? 0 : 1;
    }
    if (!verdict_.weights.empty())
      std::cout << "weights  " << same << " of " << verdict_.weights.size() << " have the same bits"
                << (differ == 0 ? "" : c10::str(", ", differ, " differ"))
                << (only_a == 0 ? "" : c10::str(", ", only_a, " only in A"))
                << (only_b == 0 ? "" : c10::str(", ", only_b, " only in B")) << '\n';
    for (const auto other : pairs_.of_a) paired += other != prints::kNone ? 1 : 0;
    std::cout << "paired   " << paired << " of " << a_.calls().size() << " calls of A and "
              << b_.calls().size() << " of B";
    const std::pair<prints::How, const char*> ways[] = {{prints::How::map, " by --map"},
                                                        {prints::How::path, " by path"},
                                                        {prints::How::values, " by values and order"},
                                                        {prints::How::parent, " by what is inside"}};
    const char* separator = ": ";
    for (const auto& [how, words] : ways) {
      if (const auto calls = pairs_.count(how); calls != 0) {
        std::cout << separator << calls << words;
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

  /// The first row that differs, and the one before it.
  void rows() const {
    using Align = Table::Align;
    Table table({{"module", Align::left, Table::kAlways, 16, true},
                 {"type", Align::left, 60, 8},
                 {"error", Align::right},
                 {"rounding", Align::right},
                 {"scale", Align::right, 90},
                 {""}});
    struct Folded {
      std::size_t calls = 0;
      double error = 0;
    } agree, after;
    const auto fold = [&](const Folded& rows, const char* where) {
      if (rows.calls != 0)
        table.add({c10::str("… ", count(rows.calls, "call"), where), "", short_text(rows.error), "", "", ""});
    };
    const auto first = first_row();
    for (auto row = verdict_.rows.begin(); row != verdict_.rows.end(); ++row) {
      if (options_.all || row == first || row + 1 == first) {
        fold(std::exchange(agree, {}), " before, up to");
        add(table, *row, row == first);
        continue;
      }
      Folded& rows = row > first || is_around(*row) ? after : agree;
      ++rows.calls, rows.error = std::max(rows.error, row->error);
    }
    fold(agree, " before, up to");
    fold(after, " after, up to");
    table.print(std::cout);
    std::cout << '\n';
  }

  /// The row that is the answer.
  std::vector<prints::Row>::const_iterator first_row() const {
    return std::find_if(verdict_.rows.begin(), verdict_.rows.end(), [&](const auto& row) {
      return answer_.first && answer_.first->call_a == row.a &&
             (answer_.first->kind == Kind::module || answer_.first->kind == Kind::between);
    });
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
    const char* const mark = first ? "first" : row.differs ? "differs" : "";
    table.add({name, a_.text(call.type), row.same_bits ? "same bits" : short_text(row.error),
               short_text(row.allowed), short_text(row.scale), mark});
  }

  static std::string error_text(double error) {
    return std::isinf(error) ? std::string("shape, NaN or infinities") : short_text(error);
  }

  static std::string numbered(const std::string& path, std::uint32_t call) {
    return shown_path(path) + (call == 0 ? "" : c10::str(" (call ", call, ")"));
  }

  std::string where() const {
    const prints::Divergence& finding = *answer_.first;
    std::string text = shown_path(finding.path);
    if (finding.path_b != finding.path) text += " (in B " + shown_path(finding.path_b) + ")";
    text += c10::str(", call ", finding.sample);
    if (finding.slot != 0) text += c10::str(", tensor ", finding.slot);
    if (finding.rank != 0) text += c10::str(", rank ", finding.rank);
    if (finding.thread != 0) text += c10::str(", thread ", finding.thread);
    return text;
  }

  void sentences() const {
    if (answer_.first) {
      differing();
    } else {
      agreeing();
    }
    other_weights();
    for (const std::string& words : verdict_.dtypes) say("Mind the dtypes: ", words, ".");
    for (const auto& [reason, tensors] : verdict_.not_compared)
      say("Not compared: ", counted(tensors, "tensor"), " (", reason, ").");
    const auto only = [&](const std::vector<std::uint32_t>& calls, const char* side, const prints::Run& run) {
      std::string list;
      constexpr std::size_t kSome = 4;
      for (std::size_t i = 0; i < std::min(calls.size(), kSome); ++i) {
        list += (i == 0 ? "" : ", ") + shown_path(path_of(run, calls[i])) + " (" +
                run.text(run.calls()[calls[i]].type) + ")";
      }
      if (calls.size() > kSome) list += c10::str(" and ", calls.size() - kSome, " others");
      if (!calls.empty()) say("Only ", side, " called ", list, ".");
    };
    only(verdict_.only_a, "A", a_);
    only(verdict_.only_b, "B", b_);
  }

  void agreeing() const {
    const auto weights = std::count_if(verdict_.weights.begin(), verdict_.weights.end(),
                                       [](const auto& row) { return row.compared; });
    const bool all = answer_.outcome.gaps().empty();
    if (!all) say(answer_.outcome.gaps_text());
    std::string more = verdict_.largest_error > 0 ? ", of " + shown_path(verdict_.largest_at) + "." : ".";
    if (answer_.innocent != 0) {
      more +=
          " " + count(answer_.innocent, "module") +
          " differed by more, and computed the same from the same inputs in float64: rounding was amplified.";
    }
    say(all ? "Nothing differs by more than rounding: "
            : "Nothing that was compared differs by more than rounding: ",
        counted(verdict_.compared, "tensor"), " of ", count(verdict_.rows.size(), "call"), " and ",
        counted(weights, "weight"), " were compared; the largest error is ",
        short_text(verdict_.largest_error), more);
    if (verdict_.first_bits)
      say("The first different bits are in ", shown_path(verdict_.first_bits->path), ".");
    if (const bool later = a_.later_forwards() + b_.later_forwards() > 0; later)
      say("--forwards 0 compares all forwards.");
  }

  /// Names the weights that differ beside the answer.
  void other_weights() const {
    std::string list;
    std::size_t count = 0;
    for (const auto& row : verdict_.weights) {
      if (row.agrees || row.a == prints::kNone || row.b == prints::kNone) continue;
      const std::string name = a_.path(a_.records()[row.a]);
      if (answer_.first && answer_.first->kind == Kind::weight && answer_.first->path == name) continue;
      constexpr std::size_t kSome = 4;
      if (++count <= kSome) list += (list.empty() ? "" : ", ") + shown_path(name);
      if (count == kSome + 1) list += ", …";
    }
    if (count != 0)
      say(counted(static_cast<std::int64_t>(count), "weight"),
          answer_.first && answer_.first->kind == Kind::weight ? " more differ: " : " differ: ", list, ".");
  }

  void differing() const {
    const prints::Divergence& finding = *answer_.first;
    const std::string error = error_text(finding.error), why = cause();
    const std::string how = why.empty() ? "the relative error is " + error : why;
    switch (finding.kind) {
      case Kind::weight:
        say("The weights differ: ", shown_path(finding.path.empty() ? finding.path_b : finding.path), ": ",
            how, ".");
        if (finding.call_a == prints::kNone && !verdict_.rows.empty())
          say("Nothing that was computed differs by more than rounding: no call that was compared depends on "
              "it.");
        return;
      case Kind::input:
        say("The inputs differ already", finding.slot == 0 ? "" : c10::str(", in tensor ", finding.slot),
            ": ", how, ".");
        if (why.empty() && options_.runs.empty()) say(how_to_prove());
        if (why.empty() && !answer_.input_search.empty())
          say("No cause is known: ", answer_.input_search, ".");
        return;
      case Kind::between: {
        std::string place;
        if (!finding.after.empty()) place = " behind " + numbered(finding.after, finding.after_call);
        if (!finding.before.empty())
          place += (place.empty() ? " in front of " : " and in front of ") +
                   numbered(finding.before, finding.before_call);
        // The caller of models is no module.
        const auto language = a_.header().find("language");
        const bool program =
            finding.call_a == prints::kNone && language != a_.header().end() && language->second == "python";
        say("The first difference is made by the code of ", program ? std::string("the program") : where(),
            place, ": all before agrees, and what it computes there has the error ", error, ".");
        break;
      }
      case Kind::module: {
        if (finding.certain) {
          say("The first difference is ", where(), ": ", how, ".");
          return;
        }
        const auto row = first_row();
        if (finding.unjudged) {
          say("The first difference is ", where(),
              ": rounding was amplified before it, so that its input has the "
              "error ",
              row == verdict_.rows.end() ? std::string("-") : error_text(row->error_in),
              ", but it computes something else from the same input, too.");
          break;
        }
        const double given = row == verdict_.rows.end() ? 0 : row->error_in;
        const bool scaled = std::abs(finding.scale - 1) > 1e-6 && std::isfinite(finding.error);
        say("The first difference is ", where(), ": its input agrees (",
            given == 0 ? "same bits" : short_text(given), "), its output does not (", error,
            scaled ? c10::str(", scale × ", finding.scale) : "", ").");
      }
    }
    if (answer_.innocent != 0)
      say("Before it, ", count(answer_.innocent, "module"),
          " amplified rounding: in float64 they compute the same from the same inputs.");
    const auto tried = answer_.tried.value_or(SecondPass::Tried());
    if (!tried.operation.empty()) say("Inside, the first operation that differs is ", tried.operation, ".");
    if (!tried.proved.has_value()) {
      if (!finding.cause.empty()) say("The fingerprints say: ", finding.cause, ".");
      return say(how_to_prove());
    }
    const char* const own = answer_.own_is_a ? "A" : "B";
    const char* const other = answer_.own_is_a ? "B" : "A";
    if (!tried.unseen.empty())
      say(own, " calls ", shown_path(tried.unseen), " there, which ", other, " was not seen to call.");
    say("With all values: what ", own, "'s module computes in float64 from ", other, "'s input is ",
        error_text(tried.other_error), " from ", other, "'s output; from its own input it is ",
        error_text(tried.own_error), " from its own.");
    if (!tried.cause.empty()) {
      say("Cause: ", tried.cause, " (with that, the error is ", short_text(tried.cause_error), ").");
    } else if (!tried.where.empty()) {
      say("The difference lies in ", tried.where, ".");
    }
    if (!tried.search.empty()) say("No cause is known: ", tried.search, ".");
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
  const PrintsAnswer& answer_;
  const PrintsOptions& options_;
};

}  // namespace

void print_text(const PrintsReport& report) {
  Printed(report).text();
}

void print_json(const PrintsReport& report) {
  Printed(report).json();
}

}  // namespace torchtap::tools
