#include "traces.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <vector>

#include <torchtap/storage/dtype.hpp>
#include <torchtap/views/trace/history.hpp>

#include "csv.hpp"
#include "message_text.hpp"
#include "progress.hpp"
#include "table.hpp"
#include "terminal.hpp"

namespace torchtap::tools {
namespace {

using views::trace::History;
using views::trace::Node;

/// A node of A, or of B if A lacks it, with the one that it is compared with.
struct ComparedNode {
  std::optional<Node> a, b;
  Comparison comparison;

  const Node& either() const { return a ? *a : *b; }
};

/// The path of the innermost module that a node's operation ran in.
std::string module_of(const Node& node) {
  return node.modules().empty() ? "" : node.modules().back().path;
}

/// Whether two nodes are of the same place in the same program.
bool same_place(const Node& a, const Node& b) {
  return a.kind() == b.kind() && a.type() == b.type() && a.result() == b.result() &&
         module_of(a) == module_of(b);
}

/// The nodes of both in order: those that both begin with, what is between, and those that both end with.
std::vector<ComparedNode> pair_up(const History& a, const History& b) {
  const std::int64_t both = std::min(a.size(), b.size());
  std::int64_t front = 0;
  while (front < both && same_place(a[front], b[front])) ++front;
  std::int64_t back = 0;
  while (back < both - front && same_place(a[a.size() - 1 - back], b[b.size() - 1 - back])) ++back;
  const std::int64_t only_a = a.size() - front - back, only_b = b.size() - front - back;
  std::vector<ComparedNode> rows;
  const auto add = [&](std::int64_t in_a, std::int64_t in_b) {
    ComparedNode row;
    if (in_a >= 0) row.a = a[in_a];
    if (in_b >= 0) row.b = b[in_b];
    rows.push_back(std::move(row));
  };
  for (std::int64_t i = 0; i < front; ++i) add(i, i);
  if (only_a == only_b) {
    for (std::int64_t i = front; i < front + only_a; ++i) add(i, i);
  } else {
    for (std::int64_t i = front; i < front + only_a; ++i) add(i, -1);
    for (std::int64_t i = front; i < front + only_b; ++i) add(-1, i);
  }
  for (std::int64_t i = back; i > 0; --i) add(a.size() - i, b.size() - i);
  return rows;
}

/// "conv2d_3_7 in features.6".
std::string place_of(const Node& node) {
  return node.label() + (module_of(node).empty() ? "" : " in " + module_of(node));
}

void compare(ComparedNode& row, const Tolerance& tolerance) {
  Comparison& comparison = row.comparison;
  if (!row.a || !row.b) return comparison.fail(row.a ? "missing in B" : "missing in A", "");
  if (!same_place(*row.a, *row.b)) {
    return comparison.fail("another operation", place_of(*row.a) + " and " + place_of(*row.b));
  }
  if (row.a->shape() != row.b->shape()) {
    return comparison.fail("shapes differ",
                           shape_to_text(row.a->shape()) + " and " + shape_to_text(row.b->shape()));
  }
  if (row.a->saved() && row.b->saved()) {
    comparison.samples = 1;
    compare(row.a->tensor(), row.b->tensor(), "", 0, tolerance, comparison);
  } else if (row.a->dtype() != row.b->dtype()) {
    comparison.fail("dtypes differ",
                    storage::dtype_name(row.a->dtype()) + " and " + storage::dtype_name(row.b->dtype()));
  }
}

Json rows_to_json(const std::vector<ComparedNode>& rows) {
  Json list = Json::array();
  for (const ComparedNode& row : rows) {
    const Node& node = row.either();
    Json entry{{"label", row.a ? Json(row.a->label()) : Json(nullptr)},
               {"label_b", row.b ? Json(row.b->label()) : Json(nullptr)},
               {"function", node.function()},
               {"module", module_of(node)}};
    row.comparison.describe(entry);
    entry.erase("samples");
    list.push_back(std::move(entry));
  }
  return list;
}

void print_table(const std::vector<ComparedNode>& rows, const ComparedNode* first, const TraceDiff& how) {
  using Align = Table::Align;
  Table table({{"operation", Align::left, Table::kAlways, 16},
               {"module", Align::left, 60, 12, true},
               {"max abs", Align::right, 90},
               {"max rel", Align::right, 85},
               {"cosine", Align::right, 80},
               {"status"}});
  table.folds_constant_columns();
  std::int64_t different = 0, compared = 0;
  for (const ComparedNode& row : rows) {
    const Comparison& comparison = row.comparison;
    const auto text = [&](double value) { return comparison.compared ? to_text(value) : std::string("-"); };
    different += comparison.agrees() ? 0 : 1;
    compared += comparison.compared ? 1 : 0;
    const bool named = comparison.compared || !comparison.agrees();
    table.add({row.either().label(), module_of(row.either()), text(comparison.max_abs),
               text(comparison.max_rel), text(comparison.cosine()), named ? comparison.status : "not kept"});
  }
  table.print(std::cout);
  std::cout << '\n';
  const auto total = static_cast<std::int64_t>(rows.size());
  if (first == nullptr) {
    std::string text = compared == total ? "All " + counted(total, "tensor") + " agree"
                                         : c10::str(counted(total, "tensor"), " have the same shapes; the ",
                                                    compared, " that both traces kept agree");
    return print_wrapped(std::cout, c10::str(text, " within rtol ", to_text(how.tolerance.rtol), " and atol ",
                                             to_text(how.tolerance.atol), "."));
  }
  const std::string& detail = first->comparison.detail;
  print_wrapped(std::cout, c10::str(different, " of ", total, " tensors do not agree; the first is ",
                                    printable(place_of(first->either())), ": ", first->comparison.status,
                                    detail.empty() ? "" : " (" + printable(detail) + ")", "."));
}

}  // namespace

bool is_trace(const Layers& layers) {
  return !layers.all.empty() && layers.all.back().entry.kind() == "TraceGraph";
}

bool diff_traces(const TraceDiff& how) {
  const History a = History::load(how.a), b = History::load(how.b);
  std::vector<ComparedNode> rows = pair_up(a, b);
  const ComparedNode* first = nullptr;
  Progress progress("comparing", static_cast<std::int64_t>(rows.size()));
  for (ComparedNode& row : rows) {
    compare(row, how.tolerance);
    if (first == nullptr && !row.comparison.agrees()) first = &row;
    progress.advance();
  }
  switch (how.format) {
    case Format::table:
      print_table(rows, first, how);
      break;
    case Format::json:
      print(Json{{"a", how.a},
                 {"b", how.b},
                 {"rtol", how.tolerance.rtol},
                 {"atol", how.tolerance.atol},
                 {"agree", first == nullptr},
                 {"first", first == nullptr ? Json(nullptr) : Json(first->either().label())},
                 {"entries", rows_to_json(rows)}});
      break;
    case Format::csv:
      print_csv(rows_to_json(rows));
      break;
  }
  return first == nullptr;
}

}  // namespace torchtap::tools
