// A history as a table.
#include <functional>
#include <locale>
#include <sstream>

#include <torchtap/base/dtypes.hpp>
#include <torchtap/json/json.hpp>
#include <torchtap/views/text/units.hpp>
#include <torchtap/views/trace/detail/graph.hpp>
#include <torchtap/views/trace/history.hpp>

namespace torchtap::views::trace {
namespace {

using json::Json;
using text::csv_text;

/// One cell, in a table and in JSON.
struct Cell {
  std::string text;
  Json json;

  Cell(const std::string& plain) : text(plain), json(plain) {}
  Cell(std::string in_table, Json in_json) : text(std::move(in_table)), json(std::move(in_json)) {}
};

Cell number(std::int64_t value) {
  return {std::to_string(value), value};
}

Cell flag(bool value) {
  return {value ? "true" : "false", value};
}

Cell seconds(double value) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << value;
  return {text.str(), value};
}

/// A list: `cell_of` of each element, with `between` in a table.
template <class Range, class Function>
Cell list(const Range& range, const char* between, Function&& cell_of) {
  Cell all("", Json::array());
  for (const auto& element : range) {
    Cell cell = cell_of(element);
    all.text += (all.json.empty() ? "" : between) + cell.text;
    all.json.push_back(std::move(cell.json));
  }
  return all;
}

std::string kind_name(NodeKind kind) {
  switch (kind) {
    case NodeKind::input:
      return "input";
    case NodeKind::operation:
      return "operation";
    case NodeKind::outside:
      return "outside";
    case NodeKind::output:
      return "output";
  }
  return "";
}

/// "features.6:1".
Cell call_cell(const ModuleCall& call) {
  return {call.path + ":" + std::to_string(call.call + 1),
          {{"path", call.path}, {"type", call.type}, {"call", call.call + 1}}};
}

Cell argument_cell(const Argument& argument) {
  return {argument.name + "=" + argument.text,
          {{"name", argument.name}, {"value", argument.text}, {"nodes", argument.nodes}}};
}

struct Column {
  const char* name;
  std::function<Cell(const Node&)> cell;
};

const std::vector<Column>& columns() {
  static const auto label = [](const Node& node) { return Cell(node.label()); };
  static const std::vector<Column> all{
      {"position", [](const Node& node) { return number(node.position()); }},
      {"label", [](const Node& node) { return Cell(node.label()); }},
      {"kind", [](const Node& node) { return Cell(kind_name(node.kind())); }},
      {"type", [](const Node& node) { return Cell(node.type()); }},
      {"function", [](const Node& node) { return Cell(node.function()); }},
      {"layer", [](const Node& node) { return number(node.layer()); }},
      {"pass", [](const Node& node) { return number(node.pass()); }},
      {"passes", [](const Node& node) { return number(node.passes()); }},
      {"shape", [](const Node& node) { return list(node.shape(), "x", number); }},
      {"dtype", [](const Node& node) { return Cell(base::dtype_text(node.dtype())); }},
      {"device", [](const Node& node) { return Cell(node.device().str()); }},
      {"bytes", [](const Node& node) { return number(node.bytes()); }},
      {"saved", [](const Node& node) { return flag(node.saved()); }},
      {"parents", [](const Node& node) { return list(node.parents(), " ", label); }},
      {"children", [](const Node& node) { return list(node.children(), " ", label); }},
      {"parameters",
       [](const Node& node) {
         return list(node.parameters(), " ", [](const ParameterUse& use) { return Cell(use.path); });
       }},
      {"arguments", [](const Node& node) { return list(node.arguments(), "; ", argument_cell); }},
      {"modules", [](const Node& node) { return list(node.modules(), " ", call_cell); }},
      {"output_of", [](const Node& node) { return list(node.output_of(), " ", call_cell); }},
      {"in_place", [](const Node& node) { return flag(node.in_place()); }},
      {"view", [](const Node& node) { return flag(node.view()); }},
      {"random", [](const Node& node) { return flag(node.random()); }},
      {"created_inside", [](const Node& node) { return flag(node.created_inside()); }},
      {"read_by_program", [](const Node& node) { return flag(node.read_by_program()); }},
      {"requires_grad", [](const Node& node) { return flag(node.requires_grad()); }},
      {"result", [](const Node& node) { return number(node.result()); }},
      {"results", [](const Node& node) { return number(node.results()); }},
      {"min_from_input", [](const Node& node) { return number(node.distance_from_input().first); }},
      {"max_from_input", [](const Node& node) { return number(node.distance_from_input().second); }},
      {"min_to_output", [](const Node& node) { return number(node.distance_to_output().first); }},
      {"max_to_output", [](const Node& node) { return number(node.distance_to_output().second); }},
      {"seconds", [](const Node& node) { return seconds(node.seconds()); }},
      {"source", [](const Node& node) { return Cell(node.source()); }},
  };
  return all;
}

}  // namespace

std::string History::csv() const {
  std::string text;
  for (const Column& column : columns()) text += (text.empty() ? "" : ",") + std::string(column.name);
  text += "\r\n";
  for (const Node& node : *this) {
    bool first = true;
    for (const Column& column : columns()) {
      text += (first ? "" : ",") + csv_text(column.cell(node).text);
      first = false;
    }
    text += "\r\n";
  }
  return text;
}

std::string History::json() const {
  std::string text = "[";
  for (const Node& node : *this) {
    Json object;
    for (const Column& column : columns()) object[column.name] = column.cell(node).json;
    text += (node.position() == 0 ? "\n" : ",\n") + json::text(object);
  }
  return text + "\n]\n";
}

}  // namespace torchtap::views::trace
