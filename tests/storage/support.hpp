#pragma once

/// Helpers of the storage tests: files, Python, comparisons.

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <boost/test/unit_test.hpp>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <torchtap/base/disk.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/storage/detail/zip.hpp>
#include <torchtap/storage/file.hpp>
#include <torchtap/storage/recording.hpp>

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

/// The text of a manifest that may be edited: without its last field, the checksum.
inline std::string unchecked(const std::string& manifest) {
  const auto at = manifest.rfind(",\n \"crc32\"");
  return at == std::string::npos ? manifest : manifest.substr(0, at) + "\n}\n";
}

/// A file whose data.pkl is `pickled`, with the numbers 1, 2, 3, 4 in float64 as the record data/0.
inline std::string minimal_file(const TemporaryDirectory& directory, const std::string& pickled) {
  const std::string path = directory / "crafted.pt";
  write_bytes(path, "");
  {
    using namespace torchtap::base;
    using namespace torchtap::storage::detail;
    OutputFile file("test", path, Descriptor(::open(path.c_str(), O_WRONLY | O_TRUNC)));
    ZipWriter zip(file);
    const double numbers[4] = {1, 2, 3, 4};
    zip.record("data/0", numbers, sizeof numbers);
    zip.record("data.pkl", pickled);
    zip.record("version", "3\n");
    zip.finish();
    file.close(false);
  }
  return path;
}

/// Runs a Python program in `directory`; fails the test with its output unless it succeeds.
inline void python(const TemporaryDirectory& directory, const std::string& program) {
  static int counter = 0;
  const std::string script = directory / ("script" + std::to_string(counter++) + ".py");
  write_bytes(script, program);
  const std::string log = script + ".log";
  // Python must not load the sanitizers' runtime of the test.
  const std::string command = "cd " + directory.path() + " && LD_PRELOAD= " + TORCHTAP_TEST_PYTHON + " " +
                              script + " >" + log + " 2>&1";
  const int status = std::system(command.c_str());
  BOOST_REQUIRE_MESSAGE(status == 0, "Python failed:\n" << read_bytes(log));
  fs::remove(script);
  fs::remove(log);
}

/// Whether tests may mount a file system (root may). Tests that need one are skipped otherwise.
struct may_mount {
  boost::test_tools::assertion_result operator()(boost::unit_test::test_unit_id) const {
    const TemporaryDirectory directory;
    boost::test_tools::assertion_result result(
        ::mount("torchtap-test", directory.path().c_str(), "tmpfs", 0, "size=64k") == 0);
    if (result) {
      ::umount2(directory.path().c_str(), MNT_DETACH);
    } else {
      result.message() << "no tmpfs may be mounted here";
    }
    return result;
  }
};

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
