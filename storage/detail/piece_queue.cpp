// Hands pieces to a thread that writes them.
#include <utility>

#include <torchtap/base/thread.hpp>
#include <torchtap/storage/detail/piece_queue.hpp>

namespace torchtap::storage::detail {

void PieceQueue::start(std::int64_t most_bytes) {
  most_bytes_ = most_bytes;
  writer_ = base::start_thread("torchtap-spool", [this] { run(); });
}

void PieceQueue::stop() {
  if (!writer_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    work_.notify_one();
  }
  writer_.join();
}

std::unique_ptr<char[]> PieceQueue::buffer(std::size_t capacity) {
  if (capacity == kPiece) {
    const std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      auto data = std::move(spare_.back());
      spare_.pop_back();
      return data;
    }
  }
  return std::unique_ptr<char[]>(new char[capacity]);
}

void PieceQueue::push(std::unique_ptr<Piece> piece) {
  bytes_.fetch_add(static_cast<std::int64_t>(piece->capacity));
  {
    const std::lock_guard lock(mutex_);
    pieces_.push_back(std::move(piece));
    ++pushed_;
  }
  work_.notify_one();
}

bool PieceQueue::fits(std::int64_t bytes) const noexcept {
  const std::int64_t waiting = bytes_.load();
  return waiting == 0 || waiting + bytes <= most_bytes_;
}

bool PieceQueue::has_room(std::int64_t bytes, bool wait) {
  if (!failed_.load(std::memory_order_relaxed) && fits(bytes)) return true;
  std::unique_lock lock(mutex_);
  if (wait) room_.wait(lock, [&] { return fits(bytes) || failed_; });
  return !failed_ && (wait || fits(bytes));  // another thread may have filled the room again
}

std::string PieceQueue::failure() const {
  const std::lock_guard lock(mutex_);
  return failed_ ? error_ : std::string();
}

std::string PieceQueue::drain() {
  std::unique_lock lock(mutex_);
  const std::uint64_t until = pushed_;
  failed_ = false;  // try again
  work_.notify_one();
  room_.wait(lock, [&] { return written_ >= until || failed_; });
  return failed_ ? error_ : std::string();
}

std::string PieceQueue::wait_for_some() {
  std::unique_lock lock(mutex_);
  const std::uint64_t before = written_;
  room_.wait(lock, [&] { return written_ > before || failed_ || pieces_.empty(); });
  return failed_ ? error_ : std::string();
}

void PieceQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] { return stop_ || (!pieces_.empty() && !failed_); });
    if (stop_ && (pieces_.empty() || failed_)) return;
    Piece& piece = *pieces_.front();
    lock.unlock();
    std::string why = write_(piece);
    lock.lock();
    if (why.empty()) {
      bytes_.fetch_sub(static_cast<std::int64_t>(piece.capacity));
      if (piece.capacity == kPiece) spare_.push_back(std::move(piece.data));
      pieces_.pop_front();
      ++written_;
    } else {
      error_ = std::move(why);
      failed_ = true;
    }
    // Not for each piece: waking whoever waits for a long queue takes longer than writing a piece.
    if (written_ % 16 == 0 || pieces_.empty() || failed_) room_.notify_all();
  }
}

}  // namespace torchtap::storage::detail
