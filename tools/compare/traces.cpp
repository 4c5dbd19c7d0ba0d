#include "traces.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <vector>

#include <torchtap/storage/dtype.hpp>
#include <torchtap/views/trace/history.hpp>

#include "terminal/message_text.hpp"
#include "terminal/progress.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

using views::trace::History;
using views::trace::Node;

/// A node of each trace, or of only one.
struct NodePair {
  std::optional<Node> a, b;
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

/// The nodes of both in order: the common beginning, the different middle, and the common end.
std::vector<NodePair> pair_up(const History& a, const History& b) {
  const std::int64_t both = std::min(a.size(), b.size());
  std::int64_t front = 0;
  while (front < both && same_place(a[front], b[front])) ++front;
  std::int64_t back = 0;
  while (back < both - front && same_place(a[a.size() - 1 - back], b[b.size() - 1 - back])) ++back;
  const std::int64_t only_a = a.size() - front - back, only_b = b.size() - front - back;
  std::vector<NodePair> rows;
  const auto node = [](const History& of, std::int64_t i) {
    return i < 0 ? std::nullopt : std::optional(of[i]);
  };
  const auto add = [&](std::int64_t i, std::int64_t j) { rows.push_back({node(a, i), node(b, j)}); };
  for (std::int64_t i = 0; i < front; ++i) add(i, i);
  for (std::int64_t i = front; i < front + only_a; ++i) add(i, only_a == only_b ? i : -1);
  for (std::int64_t i = front; i < front + only_b && only_a != only_b; ++i) add(-1, i);
  for (std::int64_t i = back; i > 0; --i) add(a.size() - i, b.size() - i);
  return rows;
}

/// "conv2d_3_7 in features.6".
std::string place_of(const Node& node) {
  return node.label() + (module_of(node).empty() ? "" : " in " + module_of(node));
}

void compare(const Node& a, const Node& b, const Tolerance& tolerance, Comparison& comparison) {
  if (!same_place(a, b)) {
    comparison.fail("another operation", place_of(a) + " and " + place_of(b));
  } else if (a.shape() != b.shape()) {
    comparison.fail("shapes differ", shape_to_text(a.shape()) + " and " + shape_to_text(b.shape()));
  } else if (a.saved() && b.saved()) {
    comparison.samples = 1;
    compare(a.tensor(), b.tensor(), "", 0, tolerance, comparison);
  } else if (a.dtype() != b.dtype()) {
    comparison.fail("dtypes differ",
                    storage::dtype_name(a.dtype()) + " and " + storage::dtype_name(b.dtype()));
  } else {
    comparison.status = kNotKept;
  }
}

Compared compare(const NodePair& pair, const Tolerance& tolerance) {
  const auto& [a, b] = pair;
  const Node& node = a ? *a : *b;
  const auto label = [](const std::optional<Node>& of) { return of ? Json(of->label()) : Json(nullptr); };
  Compared row{node.label(),
               module_of(node),
               place_of(node),
               {{"label", label(a)},
                {"label_b", label(b)},
                {"function", node.function()},
                {"module", module_of(node)}},
               {}};
  if (a && b) {
    compare(*a, *b, tolerance, row.comparison);
  } else {
    row.comparison.fail(a ? "missing in B" : "missing in A", "");
  }
  return row;
}

}  // namespace

bool is_trace(const Layers& layers) {
  return !layers.all.empty() && layers.all.back().entry.kind() == "TraceGraph";
}

int compare_traces(const CompareOptions& options) {
  const History a = History::load(options.a), b = History::load(options.b);
  std::vector<Compared> rows;
  const auto pairs = pair_up(a, b);
  Progress progress("comparing", static_cast<std::int64_t>(pairs.size()));
  for (const NodePair& pair : pairs) {
    rows.push_back(compare(pair, options.tolerance));
    progress.advance();
  }
  const auto first =
      std::find_if(rows.begin(), rows.end(), [](const Compared& row) { return row.comparison.differs(); });
  const auto kept =
      std::count_if(rows.begin(), rows.end(), [](const Compared& row) { return row.comparison.compared; });
  const auto total = static_cast<std::int64_t>(rows.size());
  using Align = Table::Align;
  return print_compared(
      rows, first == rows.end() ? nullptr : &*first, options,
      {{"operation", Align::left, Table::kAlways, 16}, {"module", Align::left, 60, 12, true}}, "tensor",
      kept == total ? ""
                    : c10::str(counted(total, "tensor"), " have the same shapes; the ", kept,
                               " that both traces kept agree"));
}

}  // namespace torchtap::tools
