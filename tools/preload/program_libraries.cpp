// Lists the libraries that the dynamic loader would load, by asking it.
#include "program_libraries.hpp"

#include <fcntl.h>
#include <link.h>
#include <sys/wait.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "executable.hpp"

namespace torchtap::tools::preload {
namespace {

namespace fs = std::filesystem;

/// The output of a command; its errors are not shown. Empty if it fails.
std::string printed_by(const std::vector<std::string>& command, const std::string& preloaded) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t process = ::fork();
  if (process == 0) {
    std::vector<char*> arguments;
    for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    if (preloaded.empty()) {
      ::unsetenv("LD_PRELOAD");
    } else {
      ::setenv("LD_PRELOAD", preloaded.c_str(), 1);
    }
    const int nowhere = ::open("/dev/null", O_RDWR);
    ::dup2(nowhere, STDIN_FILENO);
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t size = 0; (size = ::read(ends[0], buffer, sizeof buffer)) != 0;) {
    if (size > 0) text.append(buffer, static_cast<std::size_t>(size));
    if (size < 0 && errno != EINTR) break;
  }
  ::close(ends[0]);
  int status = 0;
  while (process > 0 && ::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return process > 0 && status == 0 ? text : std::string();
}

bool begins_with(const std::string& text, const char* beginning) {
  return text.rfind(beginning, 0) == 0;
}

bool is_torch(const std::string& library) {
  return begins_with(fs::path(library).filename().string(), "libtorch_cpu.so");
}

/// Whether both are the same LibTorch: one file, or copies of one.
bool is_same(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) ||
         (a.filename() == b.filename() && fs::file_size(a, error) == fs::file_size(b, error) && !error);
}

}  // namespace

std::vector<std::string> libraries_of(const std::string& program, const std::string& preloaded) {
  const std::string loader = loader_of(program);
  if (loader.empty()) return {};
  std::vector<std::string> libraries;
  std::istringstream lines(printed_by({loader, "--list", program}, preloaded));
  // Lines are "\tlibm.so.6 => /lib/libm.so.6 (0x00007f…)", or without "… =>" for a path.
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find('/'), end = line.rfind(" (0x");
    if (begin == std::string::npos || end == std::string::npos || end < begin) continue;
    const std::size_t arrow = line.find(" => "), from = arrow == std::string::npos ? begin : arrow + 4;
    const std::string file = line.substr(from, end - from);
    if (file != loader) libraries.push_back(file);
  }
  return libraries;
}

std::string own_torch() {
  std::string found;
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t /*size*/, void* file) {
        if (object->dlpi_name == nullptr || !is_torch(object->dlpi_name)) return 0;
        *static_cast<std::string*>(file) = object->dlpi_name;
        return 1;
      },
      &found);
  std::error_code error;
  const fs::path file = fs::canonical(found, error);
  return error ? found : file.string();
}

std::string torch_in(const std::vector<std::string>& libraries) {
  const std::string ours = own_torch();
  std::string found;
  for (const std::string& library : libraries) {
    std::error_code error;
    const fs::path file = fs::canonical(library, error);
    if (error || !is_torch(library)) continue;
    if (!is_same(file, ours)) return file.string();
    found = ours;
  }
  return found;
}

std::string with_version(const std::string& torch) {
  std::string version = torch == own_torch() ? TORCH_VERSION : "";
  const fs::path folder = fs::path(torch).parent_path().parent_path();
  // In pytorch.org's zip, and in Python's package.
  if (version.empty()) std::getline(std::ifstream(folder / "build-version"), version);
  std::ifstream python(folder / "version.py");
  for (std::string line; version.empty() && std::getline(python, line);) {
    const std::size_t begin = line.find('\'');
    if (begins_with(line, "__version__ = '")) version = line.substr(begin + 1, line.rfind('\'') - begin - 1);
  }
  return version.empty() ? torch : torch + " (" + version + ")";
}

std::string ran_without(const std::string& torch) {
  return "ran as without torchtap: it uses " + with_version(torch) + ", and torchtap was built for " +
         with_version(own_torch()) + ", which cannot be in one process.";
}

bool reordered(const std::vector<std::string>& before, const std::vector<std::string>& after) {
  std::size_t last = 0;
  for (const std::string& one : before) {
    const auto found = static_cast<std::size_t>(std::find(after.begin(), after.end(), one) - after.begin());
    if (found == after.size()) continue;
    if (found < last) return true;
    last = found;
  }
  return false;
}

}  // namespace torchtap::tools::preload
