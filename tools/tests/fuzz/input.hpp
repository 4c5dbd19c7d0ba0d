#pragma once

// Inputs for the library, and reproducible random numbers.

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace fuzz {

/// The files of a folder by name.
using Files = std::map<std::string, std::string>;

/// An input. `kind` is "file" (one `.pt` file), "recording" (a folder, perhaps cut off during spooling),
/// "snapshot", "trace" (a folder), "report" (JSON), "run" (of an explorer), "frames", "prints" (fingerprints
/// of a run), "ring" (of a monitor), "calibration" (JSON), or "tensors" (one `.npy` or `.safetensors` file).
struct Input {
  std::string name;
  std::string kind;
  Files files;
};

/// splitmix64 (Steele, Lea & Flood 2014): the same numbers on all machines for the same seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  /// From 0 to `count` - 1; 0 if `count` is 0.
  std::size_t below(std::size_t count) { return count == 0 ? 0 : static_cast<std::size_t>(next() % count); }
  bool once_in(std::size_t count) { return below(count) == 0; }

 private:
  std::uint64_t state_;
};

Files read_folder(const std::string& path);
/// Replaces an existing folder.
void write_folder(const std::string& path, const Files& files);

}  // namespace fuzz
