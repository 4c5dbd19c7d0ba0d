#include "token.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include <torchtap/base/error.hpp>

namespace torchtap::tools::stream {

std::string read_token(const std::string& path) {
  struct stat status {};
  TORCH_CHECK_VALUE(::stat(path.c_str(), &status) == 0, "cannot read the token in \"", path,
                    "\": ", std::strerror(errno), ".");
  TORCH_CHECK_VALUE((status.st_mode & 077) == 0, "other users may read the token in \"", path,
                    "\"; make the file your own: chmod 600 ", path, ".");
  std::ifstream file(path);
  std::string token;
  std::getline(file, token);
  while (!token.empty() && (token.back() == '\r' || token.back() == ' ')) token.pop_back();
  TORCH_CHECK_VALUE(token.size() >= 16, "the token in \"", path, "\" has ", token.size(),
                    " characters; at least 16 are needed.");
  return token;
}

std::string read_or_make_token(const std::string& path) {
  const int made = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  TORCH_CHECK_VALUE(made >= 0 || errno == EEXIST, "cannot make the file \"", path,
                    "\" for the token: ", std::strerror(errno), ".");
  if (made >= 0) {
    unsigned char random[16];
    const bool drawn = ::getrandom(random, sizeof random, 0) == static_cast<ssize_t>(sizeof random);
    std::string text;
    for (const unsigned byte : random) text += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
    text += '\n';
    const bool written =
        drawn && ::write(made, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::close(made);
    TORCH_CHECK(written, "cannot write the token to \"", path, "\".");
  }
  return read_token(path);
}

}  // namespace torchtap::tools::stream
