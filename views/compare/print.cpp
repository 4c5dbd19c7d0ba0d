#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include <torchtap/base/numbers.hpp>
#include <torchtap/views/compare/answer.hpp>
#include <torchtap/views/text/characters.hpp>
#include <torchtap/views/text/table.hpp>
#include <torchtap/views/text/units.hpp>

namespace torchtap::views::compare {
namespace {

using text::counted;
using text::printable;
using text::Table;

std::string shown_path(const std::string& path) {
  return path.empty() ? "(root)" : printable(path);
}

std::string short_text(double value) {
  return base::number_text(value, 2);
}

std::string path_of(const Run& run, std::uint32_t call) {
  return run.path(run.calls()[call]);
}

std::string count(std::size_t number, const char* word) {
  return counted(static_cast<std::int64_t>(number), word);
}

class Printed {
 public:
  Printed(std::ostream& out, const Run& a, const Run& b, const Pairs& pairs, const Verdict& verdict,
          const Answer& answer, const AnswerOptions& options)
      : out_(out), a_(a), b_(b), pairs_(pairs), verdict_(verdict), answer_(answer), options_(options) {}

  void all() const {
    heads();
    if (options_.all || first_row() != verdict_.rows.end()) rows();
    sentences();
  }

 private:
  template <class... Parts>
  void say(const Parts&... parts) const {
    text::print_wrapped(out_, printable(c10::str(parts...)), options_.width);
  }

  static std::string root_type(const Run& run) {
    return run.calls().empty() ? "-" : run.text(run.calls()[run.sequences()[0].calls[0]].type);
  }

  void heads() const {
    for (std::size_t side = 0; side < 2; ++side) {
      const Run& run = side == 0 ? a_ : b_;
      const auto known = run.header().find("torch");
      text::print_wrapped(
          out_,
          c10::str(side == 0 ? "A  " : "B  ", printable(side == 0 ? options_.name_a : options_.name_b), ": ",
                   printable(root_type(run)), ", ", count(run.weights().size(), "weight"), ", ",
                   count(run.calls().size(), "call"),
                   known == run.header().end() ? "" : ", PyTorch " + printable(known->second),
                   run.cut_off() ? "; the file is cut off" : ""),
          options_.width);
    }
    std::size_t same = 0, differ = 0, paired = 0, only_a = 0, only_b = 0;
    for (const auto& row : verdict_.weights) {
      only_a += row.b == kNone ? 1 : 0, only_b += row.a == kNone ? 1 : 0;
      same += row.difference.same_bits ? 1 : 0;
      differ += row.agrees || row.a == kNone || row.b == kNone ? 0 : 1;
    }
    if (!verdict_.weights.empty())
      out_ << "weights  " << same << " of " << verdict_.weights.size() << " have the same bits"
           << (differ == 0 ? "" : c10::str(", ", differ, " differ"))
           << (only_a == 0 ? "" : c10::str(", ", only_a, " only in A"))
           << (only_b == 0 ? "" : c10::str(", ", only_b, " only in B")) << '\n';
    for (const auto other : pairs_.of_a) paired += other != kNone ? 1 : 0;
    out_ << "paired   " << paired << " of " << a_.calls().size() << " calls of A and " << b_.calls().size()
         << " of B";
    const std::pair<How, const char*> ways[] = {{How::map, " by --map"},
                                                {How::path, " by path"},
                                                {How::values, " by values and order"},
                                                {How::parent, " by what is inside"}};
    const char* separator = ": ";
    for (const auto& [how, words] : ways) {
      if (const auto calls = pairs_.count(how); calls != 0) {
        out_ << separator << calls << words;
        separator = ", ";
      }
    }
    out_ << '\n';
    constexpr std::size_t kMostShown = 4;
    for (std::size_t i = 0; i < std::min(pairs_.map.size(), kMostShown); ++i) {
      out_ << (i == 0 ? "         as with " : "                 ") << "--map '" << printable(pairs_.map[i])
           << "'\n";
    }
    if (pairs_.map.size() > kMostShown)
      out_ << "                 and " << pairs_.map.size() - kMostShown << " others\n";
    out_ << '\n';
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
    table.ascii(options_.ascii).print(out_, options_.width);
    out_ << '\n';
  }

  /// The row that is the answer.
  std::vector<Row>::const_iterator first_row() const {
    return std::find_if(verdict_.rows.begin(), verdict_.rows.end(), [&](const auto& row) {
      return answer_.first && answer_.first->call_a == row.a &&
             (answer_.first->kind == Divergence::Kind::module ||
              answer_.first->kind == Divergence::Kind::between);
    });
  }

  /// Whether the answer lies within a call, which therefore returns after it.
  bool is_around(const Row& row) const {
    std::uint32_t call = answer_.first ? answer_.first->call_a : kNone;
    while (call != kNone && call != row.a) call = a_.calls()[call].parent;
    return call == row.a;
  }

  void add(Table& table, const Row& row, bool first) const {
    const Call& call = a_.calls()[row.a];
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
    const Divergence& finding = *answer_.first;
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
    const auto only = [&](const std::vector<std::uint32_t>& calls, const char* side, const Run& run) {
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
    const bool all = answer_.gaps.empty();
    if (!all) say(gaps());
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
    if (a_.later_forwards() + b_.later_forwards() > 0 && !options_.more_forwards.empty())
      say(options_.more_forwards);
  }

  /// Names the weights that differ beside the answer.
  void other_weights() const {
    std::string list;
    std::size_t count = 0;
    for (const auto& row : verdict_.weights) {
      if (row.agrees || row.a == kNone || row.b == kNone) continue;
      const std::string name = a_.path(a_.records()[row.a]);
      if (answer_.first && answer_.first->kind == Divergence::Kind::weight && answer_.first->path == name)
        continue;
      constexpr std::size_t kSome = 4;
      if (++count <= kSome) list += (list.empty() ? "" : ", ") + shown_path(name);
      if (count == kSome + 1) list += ", …";
    }
    if (count != 0)
      say(counted(static_cast<std::int64_t>(count), "weight"),
          answer_.first && answer_.first->kind == Divergence::Kind::weight ? " more differ: " : " differ: ",
          list, ".");
  }

  void differing() const {
    const Divergence& finding = *answer_.first;
    const std::string error = error_text(finding.error), why = answer_.cause();
    const std::string how = why.empty() ? "the relative error is " + error : why;
    switch (finding.kind) {
      case Divergence::Kind::weight:
        say("The weights differ: ", shown_path(finding.path.empty() ? finding.path_b : finding.path), ": ",
            how, ".");
        if (finding.call_a == kNone && !verdict_.rows.empty())
          say("Nothing that was computed differs by more than rounding: no call that was compared depends on "
              "it.");
        return;
      case Divergence::Kind::input:
        say("The inputs differ already", finding.slot == 0 ? "" : c10::str(", in tensor ", finding.slot),
            ": ", how, ".");
        if (why.empty()) prove();
        if (why.empty() && !answer_.input_search.empty())
          say("No cause is known: ", answer_.input_search, ".");
        return;
      case Divergence::Kind::between: {
        std::string place;
        if (!finding.after.empty()) place = " behind " + numbered(finding.after, finding.after_call);
        if (!finding.before.empty())
          place += (place.empty() ? " in front of " : " and in front of ") +
                   numbered(finding.before, finding.before_call);
        // The caller of models is no module.
        const auto language = a_.header().find("language");
        const bool program =
            finding.call_a == kNone && language != a_.header().end() && language->second == "python";
        say("The first difference is made by the code of ", program ? std::string("the program") : where(),
            place, ": all before agrees, and what it computes there has the error ", error, ".");
        break;
      }
      case Divergence::Kind::module: {
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
    const auto tried = answer_.tried.value_or(Tried());
    if (!tried.operation.empty()) say("Inside, the first operation that differs is ", tried.operation, ".");
    if (!tried.proved.has_value()) {
      if (!finding.cause.empty()) say("The fingerprints say: ", finding.cause, ".");
      return prove();
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

  /// What was not compared.
  std::string gaps() const {
    std::string list;
    for (const std::string& gap : answer_.gaps) list += (list.empty() ? "" : "; ") + gap;
    return "Not all was compared: " + list + ".";
  }

  void prove() const {
    if (!options_.how_to_prove.empty()) say(options_.how_to_prove);
  }

  std::ostream& out_;
  const Run &a_, &b_;
  const Pairs& pairs_;
  const Verdict& verdict_;
  const Answer& answer_;
  const AnswerOptions& options_;
};

}  // namespace

void print(std::ostream& out, const Run& a, const Run& b, const Pairs& pairs, const Verdict& verdict,
           const Answer& answer, const AnswerOptions& options) {
  Printed(out, a, b, pairs, verdict, answer, options).all();
}

}  // namespace torchtap::views::compare
