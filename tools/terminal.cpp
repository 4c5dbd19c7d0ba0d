#include "terminal.hpp"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <clocale>
#include <cmath>
#include <cstdio>
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

}  // namespace torchtap::tools
