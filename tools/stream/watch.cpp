#include <CLI/CLI.hpp>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>

#include <torchtap/base/error.hpp>

#include "commands.hpp"
#include "options/option_checks.hpp"
#include "subscribe.hpp"
#include "terminal/drawing.hpp"
#include "terminal/interrupt.hpp"
#include "terminal/message_text.hpp"
#include "terminal/table.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools::stream {
namespace {

using Clock = std::chrono::steady_clock;
using tools::Table;
using views::stream::Frame;
using views::stream::Reader;
using views::stream::WhenFull;

constexpr char kWatchExamples[] = R"(
Shows what a program publishes, as it runs: a line of statistics for each module, and the histogram of its values. Modules
are in the order in which their tensors came first. The program is never waited for.

Into a file or a pipe the tables are written one after the other. Ends when the program ends, after
--count tables, or by Ctrl-C. If the program was killed, or the connection to it was lost, it says so and ends with
status 2.

Examples:
  torchtap watch resnet --names 'layer*' --hz 5
  torchtap watch train --what output,grad-output
  ssh host torchtap tail resnet --frames | torchtap watch -

Exit status: 0; 1 if no frame came; 2 on errors.)";

struct WatchOptions {
  Asked asked;
  std::int64_t count = 0;
};

/// The last frame of a module.
struct Row {
  std::string title, kind, form;
  std::string why;  // it has no data
  std::uint64_t sample = 0;
  Statistics statistics;
};

struct Size {
  std::size_t columns = 0, rows = 0;
};

Size terminal_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_col, size.ws_row};
}

/// A separate screen while the object lives, where stdout is a terminal.
class Screen {
 public:
  Screen() : is_terminal_(::isatty(STDOUT_FILENO) != 0) {
    if (is_terminal_) std::cout << "\033[?1049h\033[?25l" << std::flush;
  }
  ~Screen() {
    if (is_terminal_) std::cout << "\033[?25h\033[?1049l" << std::flush;
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  bool is_terminal() const noexcept { return is_terminal_; }
  void show(const std::vector<std::string>& lines) const {
    if (!is_terminal_) {
      for (const auto& line : lines) std::cout << line << '\n';
      std::cout << std::endl;
      return;
    }
    const std::size_t rows = std::max<std::size_t>(terminal_size().rows, 1);
    std::string text = "\033[?2026h\033[H";  // drawn at once, where the terminal can
    for (std::size_t i = 0; i < std::min(lines.size(), rows); ++i)
      text += (i == 0 ? "" : "\r\n") + lines[i] + "\033[K";
    text += "\033[J";
    std::cout << text << "\033[?2026l" << std::flush;
  }

 private:
  bool is_terminal_;
};

class Watched {
 public:
  explicit Watched(const WatchOptions& options) : options_(options) {}

  void add(const Frame& frame) {
    const std::string title = shown_title_of(frame);
    const std::size_t place = places_.try_emplace(title, places_.size()).first->second;
    Row& row = rows_[{place, frame.kind}];
    row.title = title;
    row.kind = word_of(frame);
    row.form = form_of(frame);
    row.why = frame.without_data ? frame.text : "";
    row.sample = frame.sample;
    if (!frame.without_data) text_ = frame.text;
    row.statistics = statistics_of(frame, 64);
  }
  bool empty() const { return rows_.empty(); }

  /// The lines of the screen.
  std::vector<std::string> shown(const Reader& reader, const Size& size) const {
    const std::size_t width = size.columns == 0 ? tools::line_width() : size.columns;
    std::ostringstream text;
    print_table(text, width);
    std::vector<std::string> lines = split(text.str());
    // The titles, a line for each module, and the notes below.
    const auto rows = lines.begin() + 1;
    std::vector<std::string> below(rows + static_cast<std::ptrdiff_t>(rows_.size()), lines.end());
    for (auto& line : reasons(width)) below.push_back(std::move(line));
    lines.resize(1 + rows_.size());
    lines.insert(lines.begin(), heading(reader));
    const std::size_t most = size.rows > 1 ? size.rows - 1 : 1;
    if (size.rows != 0 && lines.size() + below.size() > most) {
      below.erase(std::remove(below.begin(), below.end(), ""), below.end());
      const std::size_t room = std::max<std::size_t>(most - std::min(most, below.size() + 1), 3);
      if (lines.size() > room) {
        const auto hidden = static_cast<std::int64_t>(lines.size() - room);
        lines.resize(room);
        lines.push_back("… " + std::to_string(hidden) + " more; choose with --names");
      }
    }
    lines.insert(lines.end(), below.begin(), below.end());
    return lines;
  }

 private:
  static std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }

  std::string heading(const Reader& reader) const {
    return c10::str(tools::printable(options_.asked.name), ": process ", reader.publisher(), ", ",
                    tools::counted(reader.received(), "frame"), ", missed ", reader.missed(),
                    text_.empty() ? "" : ", " + tools::printable(text_));
  }

  void print_table(std::ostream& stream, std::size_t width) const {
    Table table({{"module", Table::Align::left, Table::kAlways, 8, true},
                 {"kind", Table::Align::left, 10},  // distinguishes rows of one module
                 {"sample", Table::Align::right, 3},
                 {"tensor", Table::Align::left, 5},
                 {"mean", Table::Align::right, 9},
                 {"std", Table::Align::right, 8},
                 {"min", Table::Align::right, 7},
                 {"max", Table::Align::right, 7},
                 {"NaN+Inf", Table::Align::right, 6},
                 {"values", Table::Align::left, 4}});
    for (const auto& [key, row] : rows_) {
      const Statistics& found = row.statistics;
      std::vector<std::string> cells{row.title, row.kind,
                                     tools::count_text(static_cast<std::int64_t>(row.sample)), row.form};
      if (row.why.empty()) {
        for (const double value : {found.mean, found.deviation, found.least, found.most})
          cells.push_back(tools::to_text(value, 4));
        cells.push_back(tools::count_text(found.nan + found.infinite));
        cells.push_back(tools::sparkline(found.bins, 16));
      }
      cells.resize(10);
      table.add(std::move(cells));
    }
    table.folds_constant_columns();
    table.print(stream, width);
  }

  /// The modules without data, with the reasons, in lines.
  std::vector<std::string> reasons(std::size_t width) const {
    std::map<std::string, std::string> modules;
    for (const auto& [key, row] : rows_) {
      if (row.why.empty()) continue;
      std::string& names = modules[row.why];
      names += (names.empty() ? "" : ", ") + row.title;
    }
    std::ostringstream text;
    for (const auto& [why, names] : modules)
      tools::print_wrapped(text, "no data of " + names + ": " + why, width);
    return split(text.str());
  }

  const WatchOptions& options_;
  std::map<std::string, std::size_t> places_;  // of modules, in the order in which they came
  std::map<std::pair<std::size_t, views::stream::Kind>, Row> rows_;
  std::string text_;  // what the program said last
};

/// Returns the signal that ended it; 0 if there was none.
int watch(WatchOptions& options) {
  if (options.asked.hz == 0) options.asked.hz = 5;
  Reader reader = open(options.asked, "torchtap watch", WhenFull::skip);
  const tools::Interrupt interrupt;
  Watched watched(options);
  {
    const Screen screen;
    const auto pause =
        std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 / std::min(options.asked.hz, 30.0)));
    std::int64_t tables = 0;
    auto due = Clock::now();
    while (interrupt.signal() == 0 && (options.count == 0 || tables < options.count)) {
      due += pause;
      bool any = false;
      while (Clock::now() < due && interrupt.signal() == 0 && !reader.ended()) {
        const auto frame = reader.next(
            std::min<std::chrono::nanoseconds>(due - Clock::now(), std::chrono::milliseconds(100)));
        if (frame.has_value()) watched.add(*frame);
        any = any || frame.has_value();
      }
      due = std::max(due, Clock::now() - pause);
      if (any || screen.is_terminal()) {
        screen.show(watched.shown(reader, screen.is_terminal() ? terminal_size() : Size{}));
        ++tables;
      }
      if (reader.ended()) break;
    }
  }
  if (reader.ended()) {
    for (const auto& line : watched.empty() ? std::vector<std::string>{} : watched.shown(reader, {})) {
      if (::isatty(STDOUT_FILENO) != 0) std::cout << line << '\n';  // what was last is left on the screen
    }
    check_end(reader);
    std::cerr << "torchtap: the program ended.\n";
  }
  if (interrupt.signal() == 0 && watched.empty()) throw CLI::RuntimeError(1);
  return interrupt.signal();
}

}  // namespace

void add_watch(CLI::App& app) {
  auto options = std::make_shared<WatchOptions>();
  CLI::App* command = app.add_subcommand("watch", "Show what a program publishes, live");
  command->footer(kWatchExamples);
  add_subscription(*command, options->asked);
  command->add_option("--count", options->count, "End after this many tables")
      ->transform(tools::whole_number(1));
  command->callback([options] {
    if (const int signal = watch(*options)) {
      std::cout << std::flush;
      tools::end_by(signal);
    }
  });
}

}  // namespace torchtap::tools::stream
