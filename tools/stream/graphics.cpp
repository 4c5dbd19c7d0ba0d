#include "graphics.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace torchtap::tools::stream {
namespace {

/// Lets answers be read as they come, without being shown, while the object lives.
class Raw {
 public:
  Raw() : changed_(::tcgetattr(STDIN_FILENO, &former_) == 0) {
    if (!changed_) return;
    termios raw = former_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  ~Raw() {
    if (changed_) ::tcsetattr(STDIN_FILENO, TCSANOW, &former_);
  }
  Raw(const Raw&) = delete;
  Raw& operator=(const Raw&) = delete;

 private:
  termios former_{};
  bool changed_;
};

/// Whether the terminal has answered the last query. Every terminal answers that one, with a reply that ends
/// in "c", so waiting stops there even if it ignored the others.
bool is_complete(const std::string& answer) {
  const std::size_t attributes = answer.rfind("\033[?");
  return attributes != std::string::npos && answer.find('c', attributes) != std::string::npos;
}

std::string ask(const std::string& question) {
  const Raw raw;
  std::string answer;
  if (::write(STDOUT_FILENO, question.data(), question.size()) != static_cast<ssize_t>(question.size()))
    return answer;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  while (!is_complete(answer)) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd polled{STDIN_FILENO, POLLIN, 0};
    if (left <= 0 || ::poll(&polled, 1, static_cast<int>(left)) <= 0) break;
    char text[256];
    const ssize_t size = ::read(STDIN_FILENO, text, sizeof text);
    if (size <= 0) break;
    answer.append(text, static_cast<std::size_t>(size));
  }
  return answer;
}

/// Whether 4, sixel graphics, is among the attributes "ESC [ ? 62 ; 4 ; 22 c".
bool names_sixel(const std::string& answer) {
  const std::size_t begin = answer.rfind("\033[?");
  if (begin == std::string::npos) return false;
  const std::size_t end = answer.find('c', begin);
  const std::string list = ";" + answer.substr(begin + 3, end - begin - 3) + ";";
  return list.find(";4;") != std::string::npos;
}

}  // namespace

Ability ask_terminal() {
  Ability ability;
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0) return ability;
  // A picture of one pixel for kitty, which says whether it could be shown; the size of a character;
  // attributes.
  const std::string answer = ask("\033_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\033\\\033[16t\033[c");
  if (answer.find("\033_Gi=31;OK") != std::string::npos) {
    ability.graphics = Graphics::kitty;
  } else if (names_sixel(answer)) {
    ability.graphics = Graphics::sixel;
  }
  const std::size_t cell = answer.find("\033[6;");
  unsigned height = 0;
  unsigned width = 0;
  winsize size{};
  if (cell != std::string::npos &&
      std::sscanf(answer.c_str() + cell, "\033[6;%u;%ut", &height, &width) == 2) {
  } else if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 && size.ws_row != 0) {
    width = size.ws_xpixel / size.ws_col;
    height = size.ws_ypixel / size.ws_row;
  }
  if (width >= 4 && width <= 64 && height >= 4 && height <= 128) {
    ability.cell_width = width;
    ability.cell_height = height;
  }
  return ability;
}

}  // namespace torchtap::tools::stream
