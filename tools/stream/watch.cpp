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
#include "graphics.hpp"
#include "options/option_checks.hpp"
#include "pictures/pictures.hpp"
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
Shows what a program publishes, as it runs: a line of statistics for each module, and the maps of one of them as a
picture, where the terminal has 24-bit colour and UTF-8. Modules are in the order in which their tensors came first. The
program is never waited for. Values of one sign are drawn in viridis, of both signs from blue over white at 0 to red; NaN
is magenta, an infinity orange. The picture is that of the first module that has maps; --picture MODULE chooses another, --picture none
leaves it out. Terminals that know kitty's graphics or sixels get pixels, others half blocks.

Into a file or a pipe the tables are written one after the other, without pictures. Ends when the program ends, after
--count tables, or by Ctrl-C. If the program was killed, or the connection to a relay was lost, it says so and ends with
status 2.

Examples:
  torchtap watch resnet --names 'layer*' --hz 5
  torchtap watch train --what output,grad-output --picture layer1.0

Exit status: 0; 1 if no frame came; 2 on errors.)";

struct WatchOptions {
  Asked asked;
  std::string picture;
  std::string graphics = "auto";
  std::int64_t count = 0;
};

/// The last frame of a module.
struct Row {
  std::string title, kind, form;
  std::string why;  // it has no data
  std::uint64_t sample = 0;
  std::size_t dims = 0;
  Statistics statistics;
  at::Tensor tensor;  // if it may be drawn
  pictures::Range range;
};

struct Size {
  std::size_t columns = 0, rows = 0;
};

Size terminal_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_col, size.ws_row};
}

/// The content of the screen: lines, and below them a picture in the terminal's own graphics, if it has any.
struct Shown {
  std::vector<std::string> lines;
  std::string graphics;
};

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
  void show(const Shown& shown) const {
    const auto& lines = shown.lines;
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
    if (!shown.graphics.empty() && lines.size() < rows) text += "\r\n" + shown.graphics;
    std::cout << text << "\033[?2026l" << std::flush;
  }

 private:
  bool is_terminal_;
};

class Watched {
 public:
  Watched(const WatchOptions& options, const Ability& ability) : options_(options), ability_(ability) {}

  void add(const Frame& frame, bool pictures) {
    const std::string title = shown_title_of(frame);
    const std::size_t place = places_.try_emplace(title, places_.size()).first->second;
    Row& row = rows_[{place, frame.kind}];
    row.title = title;
    row.kind = word_of(frame);
    row.form = form_of(frame);
    row.why = frame.without_data ? frame.text : "";
    row.sample = frame.sample;
    row.dims = frame.dims;
    if (!frame.without_data) text_ = frame.text;
    row.statistics = statistics_of(frame, 64);
    row.tensor.reset();
    if (!pictures || frame.without_data) return;
    const at::Tensor tensor = views::stream::to_tensor(frame);
    if (!pictures::has_maps(tensor)) return;
    row.tensor = pictures::maps_of(tensor);
    row.range.widen(row.tensor);
  }
  bool empty() const { return rows_.empty(); }

  Shown shown(const Reader& reader, const Size& size) const {
    Shown all;
    const std::size_t width = size.columns == 0 ? tools::line_width() : size.columns;
    std::ostringstream text;
    print_table(text, width);
    std::vector<std::string> lines = split(text.str());
    // The titles, a line for each module, and what is said below.
    const auto rows = lines.begin() + 1;
    std::vector<std::string> below(rows + static_cast<std::ptrdiff_t>(rows_.size()), lines.end());
    for (auto& line : reasons(width)) below.push_back(std::move(line));
    lines.resize(1 + rows_.size());
    lines.insert(lines.begin(), heading(reader));
    const Picture drawn = picture(size, lines.size() + below.size());
    const std::size_t most = size.rows > drawn.rows + 1 ? size.rows - drawn.rows - 1 : 1;
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
    lines.insert(lines.end(), drawn.lines.begin(), drawn.lines.end());
    all.lines = std::move(lines);
    all.graphics = drawn.graphics;
    return all;
  }

 private:
  struct Picture : Shown {
    std::size_t rows = 0;  // of the screen
  };

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
                 {"kind", Table::Align::left, 10},  // tells rows of one module apart
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

  /// Which modules have no data, and why, in lines.
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

  /// The one that was asked for, or the first that has maps: a matrix is rather a batch of vectors.
  const Row* drawn_row() const {
    const Row* found = nullptr;
    for (const auto& [key, row] : rows_) {
      const bool asked = options_.picture.empty() || options_.picture == row.title;
      if (!asked || !row.tensor.defined()) continue;
      if (row.dims > 2) return &row;
      if (found == nullptr) found = &row;
    }
    return found;
  }

  Picture picture(const Size& size, std::size_t above) const {
    constexpr std::size_t kLeast = 8;
    const Row* const drawn = drawn_row();
    if (drawn == nullptr || size.rows < kLeast + 4) return {};
    const std::size_t rows = std::max(kLeast, size.rows > above + 2 ? size.rows - above - 2 : kLeast);
    const Row& row = *drawn;
    std::size_t shown = 0;
    const std::size_t height = std::min(rows, size.rows - 4);
    const bool blocks = ability_.graphics == Graphics::blocks;
    const pictures::Image image =
        pictures::draw_maps(row.tensor, row.range, blocks ? size.columns : size.columns * ability_.cell_width,
                            blocks ? 2 * height : height * ability_.cell_height, shown);
    Picture picture;
    const auto cells = [](std::size_t pixels, std::size_t each) { return (pixels + each - 1) / each; };
    if (blocks) picture.lines = pictures::half_blocks(image);
    if (ability_.graphics == Graphics::kitty)
      picture.graphics = pictures::kitty_graphics(image, cells(image.width, ability_.cell_width),
                                                  cells(image.height, ability_.cell_height));
    if (ability_.graphics == Graphics::sixel) picture.graphics = pictures::sixel_graphics(image);
    picture.rows = 1 + (blocks ? picture.lines.size() : height);
    picture.lines.insert(
        picture.lines.begin(),
        c10::str(tools::printable(row.title), " ", row.form, ", ", shown, " of ",
                 tools::counted(row.tensor.size(0), "map"), ", ", tools::to_text(row.range.low(), 3), " … ",
                 tools::to_text(row.range.high(), 3)));
    return picture;
  }

  const WatchOptions& options_;
  const Ability ability_;
  std::map<std::string, std::size_t> places_;  // of modules, in the order in which they came
  std::map<std::pair<std::size_t, views::stream::Kind>, Row> rows_;
  std::string text_;  // what the program said last
};

/// The signal that ended it; 0 if none did.
int watch(WatchOptions& options) {
  if (options.asked.hz == 0) options.asked.hz = 5;
  Reader reader = open(options.asked, "torchtap watch", WhenFull::skip);
  const tools::Interrupt interrupt;
  const bool asks = options.graphics == "auto" && options.picture != "none";
  Ability ability = asks ? ask_terminal() : Ability();
  if (options.graphics == "kitty") ability.graphics = Graphics::kitty;
  if (options.graphics == "sixel") ability.graphics = Graphics::sixel;
  Watched watched(options, ability);
  const bool colours = tools::utf8_locale() && options.picture != "none";
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
        if (frame.has_value()) watched.add(*frame, colours && screen.is_terminal());
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
    for (const auto& line : watched.empty() ? std::vector<std::string>{} : watched.shown(reader, {}).lines) {
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
  command->add_option("--picture", options->picture, "The module whose maps are drawn, or none");
  command->add_option("--graphics", options->graphics, "How the terminal draws; auto asks it")
      ->check(CLI::IsMember({"auto", "blocks", "kitty", "sixel"}))
      ->capture_default_str();
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
