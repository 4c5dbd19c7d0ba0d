// Measurements as a table.

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/views/report/detail/table_notes.hpp>
#include <torchtap/views/report/detail/table_rows.hpp>
#include <torchtap/views/report/print.hpp>
#include <torchtap/views/text/characters.hpp>
#include <torchtap/views/text/table.hpp>
#include <torchtap/views/text/units.hpp>

namespace torchtap::views::report {
namespace {

using detail::Line;
using text::Table;

constexpr std::size_t kNarrowest = 40;
// From this width on, types and marks have separate columns, with two blanks between columns.
constexpr std::size_t kWide = 100;

/// One column of the table.
struct Column {
  Table::Column title;
  std::function<std::string(const Line&)> cell;
  const char* colour = nullptr;  // an escape sequence of terminals
};

constexpr char kBold[] = "\033[1m";
constexpr char kDim[] = "\033[2m";
constexpr char kRed[] = "\033[31m";
constexpr char kYellow[] = "\033[33m";
constexpr char kCyan[] = "\033[36m";
constexpr char kPlain[] = "\033[0m";

std::string name_cell(const Line& line) {
  const ModuleRow& module = *line.module;
  return line.lines + (module.path.empty() && module.name.empty() ? "(root)" : module.name) +
         (line.left_out > 0 ? " +" + std::to_string(line.left_out) : "");
}

std::string name_and_type_cell(const Line& line) {
  return name_cell(line) + " " + line.module->type;
}

std::string shapes_cell(const std::vector<TensorInfo>& tensors) {
  if (tensors.empty()) return "-";
  const std::string first = text::shape_text(tensors.front().shape, "scalar");
  return tensors.size() == 1 ? first : first + " +" + std::to_string(tensors.size() - 1);
}

std::string marks_cell(const Line& line) {
  std::string text;
  const auto add = [&](const std::string& mark) { text += (text.empty() ? "" : ", ") + mark; };
  for (const std::string& mark : line.module->marks) add(mark);
  if (line.left_out == 0) return text;
  std::int64_t below = 0;
  detail::each_module(*line.module, [&](const ModuleRow& module) { below += module.marks.empty() ? 0 : 1; });
  below -= line.module->marks.empty() ? 0 : 1;
  if (below > 0) add(std::to_string(below) + " inside");
  return text;
}

bool ran(const Line& line) {
  const ModuleRow& module = *line.module;
  return detail::has_times(module, module.forward.inclusive) ||
         detail::has_times(module, module.backward.inclusive);
}

/// The columns for which there are numbers, and how they look.
class Columns {
 public:
  Columns(const Measurements& results, const PrintOptions& options) : results_(results), options_(options) {
    detail::each_module(results.root, [&](const ModuleRow& module) {
      forward_ = forward_ || module.forward.inclusive.calls > 0;
      backward_ = backward_ || module.backward.inclusive.calls > 0;
      memory_ = memory_ || detail::peak_of(module) != 0;
      work_ = work_ || module.forward.work.macs != 0;
      several_ = several_ || module.forward.inclusive.calls > results.repeats;
      marks_ = marks_ || !module.marks.empty();
      parameters_ = parameters_ || module.parameters != 0;
    });
  }

  std::vector<Column> get(bool exact) const {
    const bool wide = options_.width() >= kWide;
    const auto& chosen = options_.columns();
    const auto is_chosen = [&](const char* title) {
      return std::find(chosen.begin(), chosen.end(), title) != chosen.end();
    };
    const bool types = chosen.empty() ? wide : is_chosen("type");
    std::vector<Column> columns;
    if (marks_ && !wide && chosen.empty()) {
      columns.push_back(
          {{"!"}, [](const Line& line) { return marks_cell(line).empty() ? "" : "!"; }, kYellow});
    }
    columns.push_back(
        {{"module", Table::Align::left, Table::kAlways, 16}, types ? name_cell : name_and_type_cell});
    std::vector<Column> others = further(exact, wide);
    if (chosen.empty()) {
      columns.insert(columns.end(), others.begin(), others.end());
      return columns;
    }
    for (const std::string& title : chosen) {
      const auto found = std::find_if(others.begin(), others.end(),
                                      [&](const Column& one) { return one.title.title == title; });
      if (found != others.end()) columns.push_back(*found);
    }
    return columns;
  }

 private:
  /// Those beside the module's: of the ones that were chosen all, else those for which there are numbers.
  std::vector<Column> further(bool exact, bool wide) const {
    const bool all = !options_.columns().empty();
    std::vector<Column> columns;
    if (wide || all) {
      columns.push_back(
          {{"type", Table::Align::left, 70, 8}, [](const Line& line) { return line.module->type; }, kDim});
    }
    if (all) {
      columns.push_back({{"input", Table::Align::left, 84, 12},
                         [](const Line& line) { return shapes_cell(line.module->inputs); }});
    }
    columns.push_back({{"output", Table::Align::left, 85, 12},
                       [](const Line& line) { return shapes_cell(line.module->outputs); }});
    const auto add = [&](bool any, const char* title, int importance, auto cell,
                         const char* colour = nullptr) {
      if (any || all) columns.push_back({{title, Table::Align::right, importance}, cell, colour});
    };
    const auto number = [exact](std::int64_t ModuleRow::*field) {
      return [exact, field](const Line& line) -> std::string {
        const std::int64_t elements = line.module->*field;
        return elements == 0 ? "-" : exact ? text::count_text(elements) : text::amount_text(elements);
      };
    };
    add(parameters_, "params", 92, number(&ModuleRow::parameters));
    add(false, "learnable", 91, number(&ModuleRow::learnable_parameters));
    add(work_, "MACs", 88, [](const Line& line) {
      const std::int64_t macs = line.module->forward.work.macs;
      return macs == 0 ? "-" : text::amount_text(macs);
    });
    add(forward_, "forward", 96, time(&ModuleRow::forward, &Direction::inclusive));
    add(backward_, "backward", 94, time(&ModuleRow::backward, &Direction::inclusive));
    if (forward_ || backward_ || all) columns.push_back(bar());
    add(memory_, "memory", 90, [](const Line& line) {
      const std::int64_t peak = detail::peak_of(*line.module);
      return peak == 0 && !ran(line) ? "-" : text::bytes_text(peak);
    });
    add(several_, "calls", 40, [](const Line& line) {
      const std::int64_t calls = line.module->forward.inclusive.calls;
      return calls == 0 && line.module->summed ? "-" : text::count_text(calls);
    });
    add(forward_, "own forward", 30, time(&ModuleRow::forward, &Direction::self));
    add(backward_, "own backward", 28, time(&ModuleRow::backward, &Direction::self));
    if ((marks_ && wide) || all)
      columns.push_back({{"mark", Table::Align::left, 98, 4}, marks_cell, kYellow});
    return columns;
  }
  std::function<std::string(const Line&)> time(Direction ModuleRow::*direction,
                                               Times Direction::*times) const {
    return [direction, times, ascii = options_.ascii()](const Line& line) -> std::string {
      const Times& found = (line.module->*direction).*times;
      return !detail::has_times(*line.module, found) ? "-" : text::duration_text(found.median, ascii);
    };
  }
  /// The share of the whole time, drawn and in percent.
  Column bar() const {
    const double whole = detail::seconds_of(results_.root);
    const std::size_t length = options_.width() < kWide ? 1 : 10;
    return {{"time", Table::Align::left, 95},
            [whole, length, ascii = options_.ascii()](const Line& line) {
              if (!ran(line)) return std::string(length + 4, ' ') + "-";
              double share = whole > 0 ? detail::seconds_of(*line.module) / whole : 0;
              if (!std::isfinite(share)) share = 0;
              const double part = std::clamp(share, 0.0, 1.0);
              const std::string bar = text::bar_text(part * static_cast<double>(length), ascii);
              const std::string percent = std::to_string(std::lround(100 * std::min(share, 9.99))) + "%";
              const std::size_t used = text::width_of(bar) + percent.size();
              return bar + std::string(length + 5 - std::min(used, length + 5), ' ') + percent;
            },
            kCyan};
  }

  const Measurements& results_;
  const PrintOptions& options_;
  bool forward_ = false, backward_ = false, memory_ = false, work_ = false, several_ = false, marks_ = false,
       parameters_ = false;
};

Table make_table(const std::vector<Column>& columns, const std::vector<Line>& lines,
                 const PrintOptions& options) {
  std::vector<Table::Column> titles;
  titles.reserve(columns.size());
  for (const Column& column : columns) titles.push_back(column.title);
  Table table(std::move(titles));
  table.ascii(options.ascii()).gap(options.width() < kWide ? 1 : 2);
  for (const Line& line : lines) {
    std::vector<std::string> cells;
    cells.reserve(columns.size());
    for (const Column& column : columns) cells.push_back(column.cell(line));
    table.add(std::move(cells));
  }
  return table;
}

/// Paints cells: titles bold, modules that never ran dim, marks of NaN and Inf red.
Table::Paint paint_of(const std::vector<Column>& columns, const std::vector<Line>& lines) {
  return [&](std::ptrdiff_t row, std::size_t column, const std::string& text) {
    const auto in = [&](const char* colour) { return colour + text + kPlain; };
    if (row < 0) return in(kBold);
    const auto& marks = lines[static_cast<std::size_t>(row)].module->marks;
    const auto has = [&](const char* mark) {
      return std::find(marks.begin(), marks.end(), mark) != marks.end();
    };
    if (columns[column].colour == kYellow && has("nonfinite")) return in(kRed);
    if (columns[column].colour != nullptr) return in(columns[column].colour);
    return has("never_ran") ? in(kDim) : text;
  };
}

void check_columns(const std::vector<std::string>& chosen) {
  static const auto& titles = *new const std::vector<std::string>{
      "type",     "input", "output", "params", "learnable", "MACs",        "forward",
      "backward", "time",  "memory", "calls",  "mark",      "own forward", "own backward",
  };
  for (const std::string& title : chosen) {
    TORCH_CHECK_VALUE(std::find(titles.begin(), titles.end(), title) != titles.end(),
                      "views::report::print: there is no column \"", title,
                      "\"; there are: ", base::quoted(titles), ".");
  }
}

}  // namespace

void print(std::ostream& out, const Measurements& results, const PrintOptions& options) {
  TORCH_CHECK_VALUE(options.width() >= kNarrowest, "views::report::print: width is ", options.width(),
                    "; it should be at least ", kNarrowest, ".");
  TORCH_CHECK_VALUE(options.depth().value_or(0) >= 0, "views::report::print: depth is ",
                    options.depth().value_or(0), "; it should be 0 or more.");
  check_columns(options.columns());
  const bool chosen = options.depth().has_value();
  const std::int64_t depth =
      chosen ? options.depth().value() : detail::depth_for(results.root, options.max_rows());
  const auto lines = detail::lines_of(results.root, depth, options.ascii());
  const Columns shown(results, options);
  std::vector<Column> columns = shown.get(/*exact=*/true);
  if (make_table(columns, lines, options).width() > options.width()) columns = shown.get(/*exact=*/false);
  Table table = make_table(columns, lines, options);
  if (options.colour()) table.paints(paint_of(columns, lines));
  const auto say = [&](const std::string& text) { text::print_wrapped(out, text, options.width()); };
  say(detail::title_of(results));
  if (const std::string alarm = detail::alarm_of(results); !alarm.empty()) {
    if (options.colour()) out << kRed;
    say(alarm);
    if (options.colour()) out << kPlain;
  }
  out << '\n';
  table.print(out, options.width());
  if (!chosen && depth != detail::kWholeTree) {
    say("modules below depth " + std::to_string(depth) +
        " are left out (+ says how many); another depth shows more");
  }
  out << '\n';
  for (const std::string& sentence : detail::sentences_of(results, options.ascii())) say(sentence);
}

std::ostream& operator<<(std::ostream& out, const Measurements& results) {
  print(out, results);
  return out;
}

}  // namespace torchtap::views::report
