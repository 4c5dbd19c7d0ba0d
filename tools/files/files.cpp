#include "files.hpp"

#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <cerrno>
#include <cstring>

namespace torchtap::tools {

std::ifstream open_to_read(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  TORCH_CHECK_VALUE(stream.good(), "cannot read \"", path, "\": ", std::strerror(errno), ".");
  return stream;
}

at::Tensor mapped(const base::InputFile& file, std::uint64_t offset, std::int64_t size, std::int64_t item) {
  if (size == 0) return at::empty({0}, at::kByte);
  const auto start = file.map(offset, static_cast<std::size_t>(size));
  const at::Tensor bytes = at::from_blob(
      start.get(), {size}, [start](void*) {}, at::kByte);
  return reinterpret_cast<std::uintptr_t>(start.get()) % static_cast<std::uintptr_t>(item) == 0
             ? bytes
             : bytes.clone();
}

}  // namespace torchtap::tools
