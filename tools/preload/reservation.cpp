// A name that only one socket can have.
#include "reservation.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <stdexcept>

namespace torchtap::tools::preload {

Reservation::Reservation(const std::string& place)
    : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  std::error_code error;
  const std::string path = std::filesystem::weakly_canonical(place, error).string();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // An abstract name, which begins with a zero.
  const int length = std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "torchtap-preload-%zx",
                                   std::hash<std::string>()(error ? place : path));
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
  if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 || errno != EADDRINUSE)
    return;
  throw std::runtime_error(
      "\"" + place +
      "\" is the place of another torchtap preload that runs now. Give each its own, for "
      "example by the task of a job array: --save \"out-$SLURM_ARRAY_TASK_ID\".");
}

}  // namespace torchtap::tools::preload
