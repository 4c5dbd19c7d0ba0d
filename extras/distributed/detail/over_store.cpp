// Sends bytes between ranks over a store of c10d.
#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/distributed/detail/transport.hpp>

namespace torchtap::distributed::detail {
namespace {

// A TCPStore of LibTorch 2 takes values of up to 8 MiB.
constexpr std::int64_t kPiece = std::int64_t{4} << 20;

// A rank's number: 0 before it comes, 1 without a heartbeat (other implementations may have none), then its
// beats.
constexpr std::int64_t kBeats = 2;
constexpr std::int64_t kAnswered = std::int64_t{1} << 40;

/// Zero for an empty message: a TCPStore of LibTorch 1.13 takes 200 ms to send an empty value.
std::int64_t pieces_of(std::int64_t bytes) {
  return (bytes + kPiece - 1) / kPiece;
}

std::string piece_of(const std::string& key, std::int64_t piece) {
  return key + "/" + std::to_string(piece);
}

/// Calls `f`, and turns exceptions of the store into `LinkError`.
template <class F>
auto asked(const F& f) {
  try {
    return f();
  } catch (const LinkError&) {
    throw;
  } catch (const std::exception& error) {
    throw LinkError("the store does not answer: " + base::first_line(error));
  }
}

}  // namespace

void nap(Clock::time_point begin) {
  constexpr auto kShortest = std::chrono::microseconds(100), kLongest = std::chrono::microseconds(20000);
  const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin) / 8;
  std::this_thread::sleep_for(std::clamp<std::chrono::microseconds>(waited, kShortest, kLongest));
}

OverStore::OverStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix, int rank, int size)
    : Transport(rank, size),
      store_(std::move(store)),
      prefix_(std::move(prefix)),
      sent_(static_cast<std::size_t>(size)),
      received_(static_cast<std::size_t>(size)) {}

std::string OverStore::next_key(int from, int to) {
  auto& number =
      from == rank() ? sent_[static_cast<std::size_t>(to)] : received_[static_cast<std::size_t>(from)];
  return prefix_ + "/" + std::to_string(from) + "-" + std::to_string(to) + "/" + std::to_string(number++);
}

void OverStore::put(const std::string& key, const at::Tensor& bytes) {
  const auto* const data = bytes.data_ptr<std::uint8_t>();
  asked([&] {
    for (std::int64_t piece = 0; piece < pieces_of(bytes.numel()); ++piece) {
      const std::int64_t begin = piece * kPiece, end = std::min(begin + kPiece, bytes.numel());
      store_->set(piece_of(key, piece), std::vector<std::uint8_t>(data + begin, data + end));
    }
  });
}

/// Polls, because a `wait` with a timeout leaves the connection of a `TCPStore` of LibTorch 1.13 out of step.
void OverStore::wait_for(const std::string& key, Milliseconds timeout) {
  const auto begin = Clock::now();
  auto progress = begin;
  std::int64_t ticks = 0;
  while (!store_->check({key})) {
    if (interrupted()) throw LinkError("the merge failed for another rank");
    const auto now = Clock::now();
    if (now - progress > timeout) {
      const std::int64_t counted = store_->add(prefix_ + "/ticks", 0);
      if (counted == ticks) throw LinkError("nothing came within " + std::to_string(timeout.count()) + " ms");
      ticks = counted;
      progress = now;
    }
    nap(begin);
  }
}

void OverStore::done_with(const std::string& key, std::int64_t pieces, bool shared) {
  // The last reader removes a value that all ranks read.
  if (shared && store_->add(key + "/read", 1) < size() - 1) return;
  for (std::int64_t piece = 0; piece < pieces; ++piece) store_->deleteKey(piece_of(key, piece));
  if (shared) store_->deleteKey(key + "/read");
}

void OverStore::take(const std::string& key, const at::Tensor& bytes, Milliseconds timeout, bool shared) {
  auto* const data = bytes.data_ptr<std::uint8_t>();
  const std::int64_t pieces = pieces_of(bytes.numel());
  asked([&] {
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      wait_for(piece_of(key, piece), timeout);
      const std::vector<std::uint8_t> value = store_->get(piece_of(key, piece));
      const std::int64_t begin = piece * kPiece;
      const auto expected = static_cast<std::size_t>(std::min(kPiece, bytes.numel() - begin));
      if (value.size() != expected) throw LinkError("a message has another length than announced");
      if (!value.empty()) std::memcpy(data + begin, value.data(), value.size());
    }
    done_with(key, pieces, shared);
  });
}

std::string OverStore::take_text(const std::string& key, Milliseconds timeout, bool shared) {
  return asked([&] {
    // The first value is the number of bytes that follow.
    wait_for(key, timeout);
    const std::vector<std::uint8_t> length = store_->get(key);
    const std::int64_t bytes = std::stoll(std::string(length.begin(), length.end()));
    const auto text = std::make_shared<std::string>(static_cast<std::size_t>(bytes), '\0');
    take(key, bytes_of(text), timeout, shared);
    return std::move(*text);
  });
}

Transport::Pending OverStore::send(const at::Tensor& bytes, int to, Milliseconds) {
  put(next_key(rank(), to), bytes);
  return [] {};
}

Transport::Pending OverStore::recv(const at::Tensor& bytes, int from, Milliseconds timeout) {
  return [this, bytes, key = next_key(from, rank()), timeout] { take(key, bytes, timeout, false); };
}

Transport::Pending OverStore::broadcast(const at::Tensor& bytes, int root, Milliseconds timeout) {
  const std::string key = prefix_ + "/all/" + std::to_string(broadcasts_++);
  if (rank() == root) {
    if (size() > 1) put(key, bytes);
    return [] {};
  }
  return [this, bytes, key, timeout] { take(key, bytes, timeout, true); };
}

void OverStore::send_message(const std::string& text, int to, Milliseconds) {
  const std::string key = next_key(rank(), to);
  put(key, bytes_of(std::make_shared<std::string>(text)));
  const std::string length = std::to_string(text.size());
  asked([&] { store_->set(key, std::vector<std::uint8_t>(length.begin(), length.end())); });
}

std::string OverStore::recv_message(int from, const Patience& patience) {
  const std::string key = next_key(from, rank());
  std::string text = take_text(key, patience.timeout, false);
  asked([&] { store_->deleteKey(key); });
  return text;
}

void OverStore::broadcast_message(std::string& text, int root, const Patience& patience) {
  const std::string key = prefix_ + "/all/" + std::to_string(broadcasts_++);
  if (rank() != root) {
    text = take_text(key, patience.timeout, true);
    return;
  }
  if (size() == 1) return;
  put(key, bytes_of(std::make_shared<std::string>(text)));
  const std::string length = std::to_string(text.size());
  asked([&] { store_->set(key, std::vector<std::uint8_t>(length.begin(), length.end())); });
}

void OverStore::tick() {
  asked([&] { store_->add(prefix_ + "/ticks", 1); });
}

void OverStore::arrive() {
  asked([&] { store_->add(prefix_ + "/here/" + std::to_string(rank()), kBeats); });
}

void OverStore::beat() {
  asked([&] { store_->add(prefix_ + "/here/" + std::to_string(rank()), 1); });
}

void OverStore::answer() {
  asked([&] { store_->add(prefix_ + "/here/" + std::to_string(rank()), kAnswered); });
}

std::int64_t OverStore::beats_of(int rank) {
  return asked([&] { return store_->add(prefix_ + "/here/" + std::to_string(rank), 0); });
}

OverStore::Sign OverStore::sign(std::int64_t beats) noexcept {
  if (beats >= kAnswered) return Sign::answered;
  if (beats >= kBeats) return Sign::beats;
  return beats > 0 ? Sign::here : Sign::absent;
}

bool OverStore::alarm() {
  return asked([&] { return store_->add(prefix_ + "/alarm", 1) == 1; });
}

bool OverStore::alarmed() {
  return asked([&] { return store_->check({prefix_ + "/alarm"}); });
}

bool OverStore::decide(const std::string& why) {
  return asked([&] {
    if (store_->add(prefix_ + "/decided", 1) != 1) return false;
    const std::string text = (why.empty() ? "put" : "why") + why;
    store_->set(prefix_ + "/why", std::vector<std::uint8_t>(text.begin(), text.end()));
    return true;
  });
}

std::optional<std::string> OverStore::decision() {
  return asked([&]() -> std::optional<std::string> {
    if (!store_->check({prefix_ + "/why"})) return std::nullopt;
    const std::vector<std::uint8_t> text = store_->get(prefix_ + "/why");
    return std::string(text.begin() + 3, text.end());
  });
}

std::int64_t OverStore::leave() {
  return asked([&] { return store_->add(prefix_ + "/left", 1); });
}

std::int64_t OverStore::left() {
  return asked([&] { return store_->add(prefix_ + "/left", 0); });
}

}  // namespace torchtap::distributed::detail
