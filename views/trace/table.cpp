// A history as a table.
#include <functional>
#include <locale>
#include <sstream>

#include <torchtap/base/dtypes.hpp>
#include <torchtap/base/rapidjson.hpp>
#include <torchtap/views/text/characters.hpp>
#include <torchtap/views/text/units.hpp>
#include <torchtap/views/trace/detail/graph.hpp>
#include <torchtap/views/trace/history.hpp>

namespace torchtap::views::trace {
namespace {

namespace rapid = base::rapid;
using text::csv_text;

std::string json_text(const std::string& text) {
  const std::string plain = text::utf8_text(text);
  rapid::StringBuffer quoted;
  rapid::Writer<rapid::StringBuffer>(quoted).String(plain.data(), static_cast<rapid::SizeType>(plain.size()));
  return quoted.GetString();
}

/// One cell, in a table and in JSON.
struct Cell {
  std::string text, json;

  Cell(const std::string& plain) : text(plain), json(json_text(plain)) {}
  Cell(std::string in_table, std::string in_json) : text(std::move(in_table)), json(std::move(in_json)) {}
};

Cell plain(const std::string& text) {
  return {text, text};
}

Cell number(std::int64_t value) {
  return plain(std::to_string(value));
}

Cell flag(bool value) {
  return plain(value ? "true" : "false");
}

Cell seconds(double value) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << value;
  return plain(text.str());
}

/// A list: `cell_of` of each element, with `between` in a table.
template <class Range, class Function>
Cell list(const Range& range, const char* between, Function&& cell_of) {
  Cell all("", "[");
  bool first = true;
  for (const auto& element : range) {
    const Cell cell = cell_of(element);
    all.text += (first ? "" : between) + cell.text;
    all.json += (first ? "" : ", ") + cell.json;
    first = false;
  }
  all.json += "]";
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
  const std::string number = std::to_string(call.call + 1);
  return {call.path + ":" + number, "{\"path\": " + json_text(call.path) + ", \"type\": " +
                                        json_text(call.type) + ", \"call\": " + number + "}"};
}

Cell argument_cell(const Argument& argument) {
  return {argument.name + "=" + argument.text,
          "{\"name\": " + json_text(argument.name) + ", \"value\": " + json_text(argument.text) +
              ", \"nodes\": " + list(argument.nodes, " ", number).json + "}"};
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
    text += node.position() == 0 ? "\n{" : ",\n{";
    bool first = true;
    for (const Column& column : columns()) {
      const Cell cell = column.cell(node);
      text += (first ? "" : ", ") + json_text(column.name) + ": " + cell.json;
      first = false;
    }
    text += "}";
  }
  return text + "\n]\n";
}

}  // namespace torchtap::views::trace
