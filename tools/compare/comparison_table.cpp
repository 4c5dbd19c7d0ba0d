#include "comparison_table.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <iostream>

#include "files/csv.hpp"
#include "terminal/message_text.hpp"
#include "terminal/outcome.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

void print_table(const std::vector<Compared>& rows, const std::vector<Table::Column>& columns) {
  using Align = Table::Align;
  Table table({columns[0],
               columns[1],
               {"max abs", Align::right, 90},
               {"max rel", Align::right, 85},
               {"cosine", Align::right, 80},
               {"status"}});
  table.folds_constant_columns();
  for (const auto& [name, context, place, head, comparison] : rows) {
    if (comparison.status == kNotRun) continue;
    const auto text = [&, compared = comparison.compared](double value) {
      return compared ? to_text(value) : std::string("-");
    };
    table.add({shown_path(name), context, text(comparison.max_abs), text(comparison.max_rel),
               text(comparison.cosine()), comparison.status});
  }
  table.print(std::cout);
  std::cout << '\n';
}

Json compared_to_json(const std::vector<Compared>& rows) {
  Json list = Json::array();
  for (const Compared& row : rows) {
    Json entry = row.head;
    row.comparison.describe(entry);
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace

int print_compared(const std::vector<Compared>& rows, const Compared* first, const CompareOptions& options,
                   const std::vector<Table::Column>& columns, const std::string& thing,
                   const std::string& agree) {
  const auto& [a, b, tolerance, format] = options;
  Outcome outcome;
  if (first != nullptr) outcome.differ();
  const auto count = [&](const auto& which) { return std::count_if(rows.begin(), rows.end(), which); };
  for (const Compared& row : rows) {
    const std::string& detail = row.comparison.detail;
    if (row.comparison.status == kNotCompared)
      outcome.leave_out(shown_path(row.place) + (detail.empty() ? "" : " (" + detail + ")"));
  }
  const auto kept_by_one = count([](const Compared& row) { return row.comparison.status == kNotKept; });
  if (kept_by_one != 0)
    outcome.leave_out(c10::str("the values of ", counted(kept_by_one, thing), " that a side did not keep"));
  if (format == Format::csv) {
    print_csv(compared_to_json(rows));
    return outcome.status();
  }
  if (format == Format::json) {
    print(Json{{"a", a},
               {"b", b},
               {"rtol", tolerance.rtol},
               {"atol", tolerance.atol},
               {"agree", outcome.agree()},
               {"gaps", outcome.gaps()},
               {"first", first == nullptr ? Json(nullptr) : Json(first->name)},
               {"entries", compared_to_json(rows)}});
    return outcome.status();
  }
  print_table(rows, columns);
  constexpr std::size_t kSome = 8;
  if (first == nullptr && outcome.status() != 0)
    print_wrapped(std::cout, printable(outcome.gaps_text("compared", kSome)));
  const auto idle = count([](const Compared& row) { return row.comparison.status == kNotRun; });
  const auto ran = static_cast<std::int64_t>(rows.size()) - idle;
  const std::string rest = idle == 0 ? "." : c10::str("; ", counted(idle, thing), " ran on neither side.");
  if (first == nullptr) {
    const auto agreeing = count([](const Compared& row) { return row.comparison.agrees(); }) - idle;
    if (agreeing == 0 && ran != 0 && agree.empty()) return outcome.status();
    const std::string all = !agree.empty() ? agree
                            : outcome.status() != 0
                                ? c10::str("Nothing that was compared differs: ", counted(agreeing, thing),
                                           agreeing == 1 ? " agrees" : " agree")
                            : ran == 1 ? "The " + thing + " agrees"
                                       : c10::str("All ", counted(ran, thing), " agree");
    print_wrapped(std::cout, c10::str(all, " within rtol ", to_text(tolerance.rtol), " and atol ",
                                      to_text(tolerance.atol), rest));
    return outcome.status();
  }
  const auto& [status, detail] = std::tie(first->comparison.status, first->comparison.detail);
  const auto different = count([](const Compared& row) { return row.comparison.differs(); });
  print_wrapped(std::cout, c10::str(ran == 1 ? "The " + thing + " does not agree: it is "
                                             : c10::str(different, " of ", counted(ran, thing),
                                                        " do not agree; the first is "),
                                    shown_path(first->place), ": ", status,
                                    detail.empty() ? "" : " (" + printable(detail) + ")", rest));
  if (!outcome.gaps().empty()) print_wrapped(std::cout, printable(outcome.gaps_text("compared", kSome)));
  return outcome.status();
}

}  // namespace torchtap::tools
