#include "table.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <utility>

#include "terminal.hpp"

namespace torchtap::tools {

std::size_t line_width() {
  if (const char* text = std::getenv("COLUMNS")) {
    const long columns = std::strtol(text, nullptr, 10);
    if (columns > 0) return static_cast<std::size_t>(columns);
  }
  // For a pipe (head, less), assume that a user is watching if messages go to a terminal.
  struct stat out {};
  const bool pipe = ::fstat(STDOUT_FILENO, &out) == 0 && S_ISFIFO(out.st_mode);
  const int terminal = pipe ? STDERR_FILENO : STDOUT_FILENO;
  const int columns = terminal_columns(terminal);
  return columns > 0 ? static_cast<std::size_t>(columns) : SIZE_MAX;
}

Table::Table(std::vector<Column> columns) : views::text::Table(std::move(columns)) {
  ascii(!utf8_locale());
}

}  // namespace torchtap::tools
