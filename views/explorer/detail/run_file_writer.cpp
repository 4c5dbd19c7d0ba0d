// Writes blocks.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/json/json.hpp>
#include <torchtap/views/explorer/detail/column_bytes.hpp>
#include <torchtap/views/explorer/detail/run_file.hpp>
#include <torchtap/views/explorer/detail/run_file_thin.hpp>

namespace torchtap::views::explorer::detail {
namespace {

constexpr std::size_t most_waiting = std::size_t{1} << 20;

int open_new(const std::string& directory, const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  TORCH_CHECK(!error, "views::explorer::ExplorerOptions::save: cannot make the directory \"", directory,
              "\": ", error.message(), ".");
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  TORCH_CHECK_VALUE(file >= 0 || errno != EEXIST, "views::explorer::ExplorerOptions::save: \"", directory,
                    "\" holds a run already (", path, "); choose another directory, or remove that file.");
  TORCH_CHECK(file >= 0, "views::explorer::ExplorerOptions::save: cannot write ", path, ": ",
              std::strerror(errno), ".");
  return file;
}

}  // namespace

std::string run_file_head() {
  return {'T', 'A', 'P', 'X', run_file_format, 0, 0, 0};
}

void put_block(std::string& to, BlockKind kind, const std::string& body) {
  std::string payload(1, static_cast<char>(kind));
  payload += body;
  std::string head;
  put_number(head, static_cast<std::uint32_t>(payload.size()));
  put_number(head, base::crc32(0, payload.data(), payload.size()));
  put_number(head, base::crc32(0, head.data(), head.size()));
  to += head + payload;
}

void write_all(int file, const std::string& bytes, const std::string& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = ::write(file, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    TORCH_CHECK(written >= 0, "views::explorer: writing ", path, " failed: ", std::strerror(errno), ".");
    done += static_cast<std::size_t>(written);
  }
}

RunFileWriter::RunFileWriter(const std::string& directory, const RunInfo& info, std::int64_t number,
                             std::int64_t most)
    : path_(run_file_path(directory, number)),
      most_(most),
      file_(open_new(directory, path_)),
      kept_(file_),
      due_(static_cast<std::uint64_t>(most)) {
  // Tells readers that the run continues; where locks are not possible, nothing does.
  ::flock(file_, LOCK_EX | LOCK_NB);
  waiting_ = run_file_head();
  this->info(info);
  flush();
}

RunFileWriter::RunFileWriter(std::function<void(const char*, std::size_t)> write, const RunInfo& info)
    : write_(std::move(write)) {
  waiting_ = run_file_head();
  this->info(info);
  flush();
}

void RunFileWriter::info(const RunInfo& info) {
  block(BlockKind::info, json::text({{"format", run_file_format},
                                     {"name", info.name},
                                     {"program", info.program},
                                     {"identity", info.identity},
                                     {"started", info.started},
                                     {"mantissa_bits", watch::mantissa_bits}}));
}

RunFileWriter::~RunFileWriter() {
  if (!open() || !made_here_) return;  // a forked child has closed it
  flush();
  close();
}

void RunFileWriter::close() noexcept {
  write_ = nullptr;
  kept_ = {};
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

void RunFileWriter::block(BlockKind kind, const std::string& body) {
  const std::lock_guard lock(mutex_);
  if (!open()) return;
  put_block(waiting_, kind, body);
  bytes_ += body.size();
  if (waiting_.size() >= most_waiting) write_out();
}

void RunFileWriter::flush() {
  const std::lock_guard lock(mutex_);
  write_out();
  if (most_ > 0 && size_ > due_ && file_ >= 0) thin_out();
}

void RunFileWriter::write_out() {
  if (!open()) return;
  try {
    if (write_) {
      write_(waiting_.data(), waiting_.size());
    } else {
      write_all(file_, waiting_, path_);
    }
  } catch (const std::exception& error) {
    const auto* const ours = dynamic_cast<const c10::Error*>(&error);
    close();
    waiting_ = {};
    return fail(std::string(ours != nullptr ? ours->what_without_backtrace() : error.what()) +
                " What was written before can be read; nothing more is.");
  }
  size_ += waiting_.size();
  waiting_.clear();
}

void RunFileWriter::fail(const std::string& message) {
  failure_ = message;
  failed_ = true;
}

std::string RunFileWriter::failure() {
  if (!failed_) return {};
  const std::lock_guard lock(mutex_);
  failed_ = false;
  return std::exchange(failure_, {});
}

void RunFileWriter::thin_out() {
  due_ = std::max(due_, 2 * size_);  // if it fails
  int smaller = -1;
  try {
    smaller = thin(path_, most_, size_);
  } catch (const c10::Error& error) {
    return fail(error.what_without_backtrace());
  }
  kept_ = {};
  ::close(std::exchange(file_, smaller));
  kept_ = base::KeptHere(file_);
  due_ = std::max(static_cast<std::uint64_t>(most_), 2 * size_);
}

void RunFileWriter::series(std::int32_t number, const SeriesKey& key, const std::string& name) {
  std::string body;
  put_number(body, number);
  put_number(body, key.call);
  put_number(body, static_cast<std::uint8_t>(key.what));
  put_number(body, key.index);
  put_number(body, key.mode);
  put_text(body, name);
  block(BlockKind::series, body);
}

void RunFileWriter::column(std::int32_t series, const watch::Column& column) {
  std::string body;
  put_number(body, series);
  put_column(body, column);
  block(BlockKind::column, body);
}

void RunFileWriter::scalar(const std::string& name, std::int64_t step, double value) {
  std::string body;
  put_number(body, step);
  put_number(body, value);
  put_text(body, name);
  block(BlockKind::scalar, body);
}

void RunFileWriter::update(std::int32_t series, std::int64_t step, double ratio) {
  std::string body;
  put_number(body, series);
  put_number(body, step);
  put_number(body, ratio);
  block(BlockKind::update, body);
}

void RunFileWriter::graph(Mode mode, const Run::GraphText& text) {
  std::string body;
  put_number(body, static_cast<std::uint8_t>(mode));
  put_number(body, text.version);
  body += text.json;
  block(BlockKind::graph, body);
}

void RunFileWriter::step(std::int64_t step) {
  std::string body;
  put_number(body, step);
  block(BlockKind::step, body);
}

void RunFileWriter::end() {
  block(BlockKind::end, "");
  const std::lock_guard lock(mutex_);
  write_out();
}

}  // namespace torchtap::views::explorer::detail
