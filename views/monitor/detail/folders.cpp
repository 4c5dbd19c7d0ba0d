// Makes folders that belong to this user.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <torchtap/base/error.hpp>
#include <torchtap/views/monitor/detail/folders.hpp>

namespace torchtap::views::monitor::detail {

std::string private_folder(const std::string& path, bool must_be_own) {
  TORCH_CHECK_VALUE(!path.empty(), "views::monitor::Monitor: the path of a folder is empty.");
  std::string plain = path;
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(plain).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (::mkdir(plain.c_str(), 0700) != 0 && errno != EEXIST)
    TORCH_CHECK(false, "views::monitor::Monitor: cannot make the folder \"", path,
                "\": ", std::strerror(errno), ".");
  struct stat status {};
  TORCH_CHECK_VALUE(::lstat(plain.c_str(), &status) == 0 && S_ISDIR(status.st_mode),
                    "views::monitor::Monitor: \"", path, "\" is ",
                    S_ISLNK(status.st_mode) ? "a symbolic link, through which others could have the model's "
                                              "inputs written elsewhere; name the folder itself."
                                            : "no folder.");
  // Another user could read, exchange or keep the files in there.
  TORCH_CHECK_VALUE(!must_be_own || status.st_uid == ::geteuid(), "views::monitor::Monitor: \"", path,
                    "\" belongs to the user ", status.st_uid, ", and this process is the user ", ::geteuid(),
                    "'s; name a folder of its own.");
  std::string real = std::filesystem::canonical(plain, error).string();
  TORCH_CHECK(!error, "views::monitor::Monitor: cannot reach the folder \"", path, "\": ", error.message(),
              ".");
  return real;
}

}  // namespace torchtap::views::monitor::detail
