// The program that runs, as it was called.
#include <errno.h>

#include <torchtap/views/explorer/detail/program.hpp>

namespace torchtap::views::explorer::detail {

std::string program_name() {
  const char* const name = ::program_invocation_short_name;  // the kernel's has 15 characters at most
  return name == nullptr ? "" : name;
}

}  // namespace torchtap::views::explorer::detail
