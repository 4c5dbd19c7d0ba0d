#pragma once

/// Writes a file of frames as a program runs.

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/disk.hpp>
#include <torchtap/views/frames/frame.hpp>

namespace torchtap::views::compare::detail {

/// Any number of threads may call it. A program that is killed loses the last 64 KiB at most, and nothing
/// before a frame with `now`. An error of the system (a full disk, a pipe whose reader left) is kept for
/// `close`: the watched program continues.
class PrintsFile {
 public:
  /// `path`: a file, a pipe, or "-" for the standard output. Throws `c10::ValueError` if there is a file that
  /// holds no frames, and `c10::Error` if it cannot be written.
  explicit PrintsFile(const std::string& path);
  /// Hands each frame to `write` instead, whole.
  explicit PrintsFile(std::function<void(const char*, std::size_t)> write) : write_(std::move(write)) {}
  PrintsFile(const PrintsFile&) = delete;
  PrintsFile& operator=(const PrintsFile&) = delete;
  ~PrintsFile();

  /// Writes a frame; its number, time and checksum are set here. `now`: hands all over to the system, which
  /// keeps it however the program ends.
  void write(frames::Frame frame, bool now = false) noexcept;
  /// How many were written.
  std::int64_t frames();
  /// Writes the buffered frames. Throws `c10::Error` if not every frame could be written.
  void close();

 private:
  void flush() noexcept;
  void write_out();

  const std::string path_;
  const std::function<void(const char*, std::size_t)> write_;
  std::mutex mutex_;
  base::Descriptor file_;
  std::vector<char> buffer_;
  std::uint64_t written_ = 0;
  int error_ = 0;
};

}  // namespace torchtap::views::compare::detail
