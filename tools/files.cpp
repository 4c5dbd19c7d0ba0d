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

}  // namespace torchtap::tools
