#include "terminal.hpp"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace torchtap::tools {

bool utf8_locale() {
  static const bool utf8 = [] {
    std::setlocale(LC_CTYPE, "");  // not LC_ALL: numbers keep their decimal point
    return std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0;
  }();
  return utf8;
}

std::string to_text(double value, int digits) {
  if (std::isnan(value)) return "nan";  // not "-nan"
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, value == 0 ? 0.0 : value);  // not "-0"
  return text;
}

int terminal_columns(int descriptor) {
  struct winsize size {};
  return ::isatty(descriptor) == 1 && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

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

}  // namespace torchtap::tools
