#pragma once

// The file of a run: DIRECTORY/explorer/run.tapx, blocks of bytes one after another
// (views/explorer/FORMAT.md). It only grows, so a reader may follow it, and blocks that were written before
// the process was killed can be read. If its size is bounded, a smaller file takes its place from time to
// time. Further models of the same explorer are in run-2.tapx and so on.

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <torchtap/base/process.hpp>
#include <torchtap/views/explorer/detail/run.hpp>

namespace torchtap::views::explorer::detail {

/// The kind of a block's content.
enum class BlockKind : std::uint8_t {
  info = 'I',    // JSON
  series = 'S',  // number, key, name
  column = 'C',  // series, column
  scalar = 'V',  // step, value, name
  update = 'U',  // series, step, ratio
  graph = 'G',   // mode, version, JSON
  step = 'T',    // the run has come to this step
  end = 'E',     // the run is finished
};

/// DIRECTORY/explorer/run.tapx, or run-2.tapx for number 2.
std::string run_file_path(const std::string& directory, std::int64_t number = 1);
/// The numbers of the runs that a directory has, sorted.
std::vector<std::int64_t> runs_in(const std::string& directory);

/// The number that a file and its first block carry.
constexpr int run_file_format = 1;
/// The header of a file.
std::string run_file_head();
void put_block(std::string& to, BlockKind kind, const std::string& body);
/// Throws `c10::Error` if the disk does not take it.
void write_all(int file, const std::string& bytes, const std::string& path);

/// Writes a run. Blocks are gathered until `flush`. Any thread may call any function. A disk that refuses the
/// data is no error of these functions, as they are called in the program's own forwards: they do nothing
/// from then on, and `failure` says why.
class RunFileWriter {
 public:
  /// The file is thinned when it is larger than `most` bytes; 0 for never. Throws `c10::ValueError` if the
  /// directory holds a run of this number already, `c10::Error` if it or the file cannot be made.
  RunFileWriter(const std::string& directory, const RunInfo& info, std::int64_t number = 1,
                std::int64_t most = 0);
  /// Hands the bytes to `write` instead.
  RunFileWriter(std::function<void(const char*, std::size_t)> write, const RunInfo& info);
  ~RunFileWriter();
  RunFileWriter(const RunFileWriter&) = delete;
  RunFileWriter& operator=(const RunFileWriter&) = delete;

  void info(const RunInfo& info);
  void series(std::int32_t number, const SeriesKey& key, const std::string& name);
  void column(std::int32_t series, const watch::Column& column);
  void scalar(const std::string& name, std::int64_t step, double value);
  void update(std::int32_t series, std::int64_t step, double ratio);
  void graph(Mode mode, const Run::GraphText& text);
  void step(std::int64_t step);
  /// The run is finished.
  void end();
  /// Hands everything to the system, which keeps it if the process is killed. Thins the file if it is due;
  /// if that fails, it stays as it was.
  void flush();
  /// Says once why the disk refused the data; empty if nothing happened since.
  std::string failure();
  /// How many bytes of blocks there were so far.
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  void block(BlockKind kind, const std::string& body);
  void write_out();
  void thin_out();
  void fail(const std::string& message);

  bool open() const noexcept { return file_ >= 0 || write_; }
  void close() noexcept;

  std::mutex mutex_;
  const std::string path_;
  const std::int64_t most_ = 0;
  std::function<void(const char*, std::size_t)> write_;  // instead of the file
  int file_ = -1;
  base::KeptHere kept_;
  const base::MadeHere made_here_;
  std::uint64_t size_ = 0, due_ = 0;  // due to be thinned at that size
  std::atomic<std::uint64_t> bytes_{0};
  std::string waiting_;
  std::string failure_;
  std::atomic<bool> failed_{false};  // `failure_` is not empty
};

/// Reads blocks as far as they are complete.
class RunFileReader {
 public:
  /// Throws `c10::Error` if there is no such file, `c10::ValueError` if it is no run.
  explicit RunFileReader(const std::string& directory, std::int64_t number = 1);
  struct OfFile {};
  /// Opens the file itself.
  RunFileReader(const std::string& path, OfFile);
  ~RunFileReader();
  RunFileReader(const RunFileReader&) = delete;
  RunFileReader& operator=(const RunFileReader&) = delete;

  using Function = std::function<void(BlockKind kind, const std::string& body)>;

  /// Calls `function` for each block that was completed since the last call. Throws `c10::ValueError` for a
  /// damaged block, and the exceptions of `function`.
  void read(const Function& function);
  /// Calls `function` for all blocks of one kind from the beginning up to the position of `read`.
  void scan(BlockKind kind, const Function& function);
  /// Whether another file has taken the place of this one.
  bool replaced() const;
  /// Opens the file at that place; reads nothing yet. Throws as the constructor does.
  void reopen();
  /// Whether the process that writes the file still has it open.
  bool has_writer() const;
  const std::string& path() const noexcept { return path_; }

 private:
  void open();
  std::uint64_t read_from(std::uint64_t at, std::uint64_t end, const Function& function);

  std::string path_;
  int file_ = -1;
  std::uint64_t at_ = 0;
};

}  // namespace torchtap::views::explorer::detail
