#pragma once

/// The queue of a spool, between the threads that record and the one that writes.

#include <c10/core/ScalarType.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <torchtap/storage/detail/shard.hpp>
#include <torchtap/storage/spool.hpp>

namespace torchtap::storage::detail {

constexpr std::size_t kPiece = std::size_t{64} << 10;  // bytes; larger samples are split

/// Samples on their way to the writer.
struct Piece {
  Spool::Stream::Impl* stream = nullptr;
  std::int64_t slot = -1;
  std::unique_ptr<char[]> data;
  std::size_t capacity = 0;
  std::size_t used = 0;
  bool continues = false;                              // a large sample that began in an earlier piece
  c10::ScalarType dtype = c10::ScalarType::Undefined;  // of all defined samples
  std::vector<Run> runs;                               // the samples that end here
  std::uint64_t begins = 0;                            // the bytes of the large sample that begins here,
  std::vector<std::int64_t> sizes;                     // and its shape

  /// The shape of the sample that begins here first.
  const std::vector<std::int64_t>& first_sizes() const noexcept { return begins > 0 ? sizes : runs[0].sizes; }
};

/// Pieces that wait to be written, at most so many bytes, and the thread that writes them.
class PieceQueue {
 public:
  /// `write` writes a piece, in the queue's thread, and returns why it could not: then the piece stays the
  /// first one, and nothing is written until `drain` tries again.
  explicit PieceQueue(std::function<std::string(Piece&)> write) : write_(std::move(write)) {}
  /// Starts the thread. Throws `std::system_error`.
  void start(std::int64_t most_bytes);
  /// Ends the thread, when all pieces are written or one cannot be.
  void stop();

  /// Memory for a piece: of kPiece bytes preferably the last released one, which may still be in the cache.
  std::unique_ptr<char[]> buffer(std::size_t capacity);
  void push(std::unique_ptr<Piece> piece);

  /// Whether there is room for so many bytes; if `wait`, as soon as there is. False if pieces cannot be
  /// written.
  bool has_room(std::int64_t bytes, bool wait);
  /// The bytes that wait.
  std::int64_t bytes() const noexcept { return bytes_.load(); }
  /// Why pieces cannot be written; empty if they can.
  std::string failure() const;

  /// Returns when all pieces pushed so far are written, or why they could not be.
  std::string drain();
  /// Returns when some more pieces are written or none waits, or why they could not be.
  std::string wait_for_some();

 private:
  void run();
  bool fits(std::int64_t bytes) const noexcept;

  const std::function<std::string(Piece&)> write_;
  std::int64_t most_bytes_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable work_, room_;
  std::deque<std::unique_ptr<Piece>> pieces_;
  std::vector<std::unique_ptr<char[]>> spare_;  // of kPiece bytes
  std::atomic<std::int64_t> bytes_{0};
  std::uint64_t pushed_ = 0, written_ = 0;  // pieces
  std::atomic<bool> failed_{false};
  std::string error_;  // why, while `failed_`
  bool stop_ = false;
  std::thread writer_;
};

}  // namespace torchtap::storage::detail
