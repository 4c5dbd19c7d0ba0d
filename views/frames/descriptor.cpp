// Maps memory that a forked child does not get.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include <torchtap/base/error.hpp>
#include <torchtap/views/frames/descriptor.hpp>

namespace torchtap::views::frames {
Mapping::Mapping(const Descriptor& descriptor, std::size_t size, bool writable) : size_(size) {
  void* const at =
      ::mmap(nullptr, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, descriptor.get(), 0);
  if (at == MAP_FAILED)
    system_error("views::frames", c10::str("map ", size, " bytes of shared memory"), errno);
  at_ = static_cast<char*>(at);
  ::madvise(at, size, MADV_DONTFORK);
}

Mapping::~Mapping() {
  if (at_ != nullptr && made_here_) ::munmap(at_, size_);
}

void system_error(const char* who, const std::string& what, int error) {
  TORCH_CHECK(false, who, ": cannot ", what, ": ", std::strerror(error), ".");
}

}  // namespace torchtap::views::frames
