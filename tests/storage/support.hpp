#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <torchtap/core/detail/error.hpp>
#include <torchtap/storage/file.hpp>
#include <torchtap/storage/recording.hpp>
#include <vector>

#include "../support.hpp"

namespace torchtap_test {

namespace fs = std::filesystem;
using torchtap::core::Value;

inline std::string read_bytes(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// Runs a Python program in `directory`; fails the test with its output unless it succeeds.
inline void python(const TemporaryDirectory& directory, const std::string& program) {
  static int counter = 0;
  const std::string script = directory / ("script" + std::to_string(counter++) + ".py");
  write_bytes(script, program);
  const std::string log = script + ".log";
  // The sanitizers' runtime is the test's, not Python's.
  const std::string command = "cd " + directory.path() + " && LD_PRELOAD= " + TORCHTAP_TEST_PYTHON + " " +
                              script + " >" + log + " 2>&1";
  const int status = std::system(command.c_str());
  BOOST_REQUIRE_MESSAGE(status == 0, "Python failed:\n" << read_bytes(log));
  fs::remove(script);
  fs::remove(log);
}

/// Runs `work` in a child process and kills it after `delay`.
template <class Work>
void kill_during(std::chrono::microseconds delay, Work work) {
  int ready[2];
  BOOST_REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  BOOST_REQUIRE(child >= 0);
  if (child == 0) {
    try {
      (void)!::write(ready[1], "x", 1);
      work();
    } catch (...) {
      ::_exit(3);
    }
    ::_exit(0);
  }
  char byte;
  BOOST_REQUIRE(::read(ready[0], &byte, 1) == 1);
  std::this_thread::sleep_for(delay);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  BOOST_REQUIRE_MESSAGE(!WIFEXITED(status), "the child ended by itself with " << WEXITSTATUS(status));
}

inline bool same(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor x = a.resolve_conj().resolve_neg().contiguous();
  const at::Tensor y = b.resolve_conj().resolve_neg().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;  // NaN equals NaN here
}

inline bool same(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.is_tensor()) return same(a.tensor(), b.tensor());
  if (a.is_list()) {
    if (a.list().size() != b.list().size()) return false;
    for (std::size_t i = 0; i < a.list().size(); ++i) {
      if (!same(a.list()[i], b.list()[i])) return false;
    }
  }
  if (a.is_dict()) {
    if (a.dict().size() != b.dict().size()) return false;
    for (std::size_t i = 0; i < a.dict().size(); ++i) {
      if (a.dict()[i].first != b.dict()[i].first || !same(a.dict()[i].second, b.dict()[i].second))
        return false;
    }
  }
  return true;
}

/// The names in a directory, sorted, temporary ones included.
inline std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace torchtap_test
