#include "files.hpp"

#include <c10/util/Exception.h>

#include <cerrno>
#include <cstring>

namespace torchtap::tools {

std::ifstream open_to_read(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  TORCH_CHECK_VALUE(stream.good(), "cannot read \"", path, "\": ", std::strerror(errno), ".");
  return stream;
}

void write_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  TORCH_CHECK(stream.is_open(), "cannot write \"", path, "\": ", std::strerror(errno), ".");
  write(stream);
  errno = 0;
  stream.close();
  TORCH_CHECK(!stream.fail(), "cannot write \"", path, "\": ", std::strerror(errno), ".");
}

}  // namespace torchtap::tools
