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

std::string path_of(const prints::Run& run, std::uint32_t call) {
  return run.path(run.calls()[call]);
}

Json or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

class Printed {
 public:
  explicit Printed(const PrintsReport& r)
      : a_(r.a), b_(r.b), pairs_(r.pairs), verdict_(r.verdict), answer_(r.answer), options_(r.options) {}

  void text() const {
    prints::AnswerOptions options;
    options.name_a = name_of_run(a_, 0), options.name_b = name_of_run(b_, 1);
    options.all = options_.all;
    options.width = line_width(), options.ascii = !utf8_locale();
    options.how_to_prove = how_to_prove();
    options.more_forwards = "--forwards 0 compares all forwards.";
    prints::print(std::cout, a_, b_, pairs_, verdict_, answer_, options);
  }

  void json() const {
    Json first(nullptr);
    if (answer_.first) {
      first = of_finding(*answer_.first);
      first["proved"] = answer_.is_proved() ? Json(true) : Json(nullptr);
      first["cause"] = or_null(answer_.cause());
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
