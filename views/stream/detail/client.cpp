// Joins a publisher, and takes frames out of its memory.
#include <poll.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include <torchtap/base/error.hpp>
#include <torchtap/views/stream/detail/client.hpp>
#include <torchtap/views/stream/detail/handshake.hpp>

namespace torchtap::views::stream::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr auto kAnswer = std::chrono::seconds(10);  // how long a publisher may take to answer
constexpr nanoseconds kShortest = std::chrono::microseconds(50);
constexpr nanoseconds kLongest = std::chrono::milliseconds(1);

/// Waits for a packet or the end of the connection. False if neither came.
bool wait_for(const Descriptor& socket, nanoseconds at_most) {
  pollfd polled{socket.get(), POLLIN, 0};
  const auto count = std::max<std::int64_t>(at_most.count(), 0);
  const timespec limit{count / 1000000000, count % 1000000000};
  return ::ppoll(&polled, 1, &limit, nullptr) > 0;
}

}  // namespace

std::string program_name() {
  return ::program_invocation_short_name;
}

std::string ask_status(const std::string& path) {
  int error = 0;
  const Descriptor socket = detail::connect(path, error);
  if (!socket || !send(socket, write_status())) return {};
  const auto deadline = deadline_after(kAnswer);
  std::string packet;
  while (Clock::now() < deadline && wait_for(socket, deadline - Clock::now())) {
    const Received received = receive(socket, packet);
    if (received == Received::end) break;
    if (received == Received::packet && kind_of_message(packet) == Message::status) return read_text(packet);
  }
  return {};
}

Descriptor find_publisher(const std::string& call, const std::string& name, const std::string& directory,
                          nanoseconds patience, std::string& path) {
  const auto deadline = deadline_after(patience);
  for (;;) {
    const auto folders = meeting_places(directory);
    for (const auto& folder : folders) {
      int error = 0;
      path = socket_path(call, folder, name);
      Descriptor socket = detail::connect(path, error);
      if (socket) return socket;
      TORCH_CHECK_VALUE(error == ENOENT || error == ECONNREFUSED || error == EAGAIN, call,
                        ": cannot connect to \"", path, "\": ", std::strerror(error), ".");
    }
    if (folders.empty()) socket_path(call, "", name);  // says what is wrong with a name
    if (Clock::now() >= deadline) {
      std::vector<std::string> others;
      for (const auto& folder : folders) {
        for (auto& other : living_names_in(folder)) others.push_back(std::move(other));
      }
      TORCH_CHECK_VALUE(false, call, ": no program publishes \"", name, "\"",
                        folders.empty() ? "" : " in " + base::quoted(folders),
                        others.empty() ? "; none of this user publishes anything there."
                                       : "; there: " + base::quoted(others) + ".");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Client::Client(const std::string& name, Subscription subscription, const std::string& directory,
               nanoseconds patience)
    : name_(name) {
  if (subscription.label().empty()) subscription.label(program_name());
  check(kReader, subscription);
  std::string path;
  socket_ = find_publisher(kReader, name, directory, patience, path);
  publisher_ = peer_of(socket_);
  join(subscription);
}

void Client::join(const Subscription& subscription) {
  bool there = send(socket_, write_subscribe(subscription));
  const auto deadline = deadline_after(kAnswer);
  std::string packet;
  std::vector<Descriptor> descriptors;
  Received received = Received::nothing;
  while (there && received == Received::nothing && Clock::now() < deadline) {
    if (wait_for(socket_, deadline - Clock::now())) received = receive(socket_, packet, &descriptors);
  }
  TORCH_CHECK_VALUE(received != Received::nothing, kReader, ": process ", publisher_.pid,
                    ", which publishes \"", name_, "\", did not answer; it may be stopped.");
  TORCH_CHECK_VALUE(received == Received::packet, kReader, ": process ", publisher_.pid,
                    ", which published \"", name_, "\", ended.");
  const Message kind = kind_of_message(packet);
  TORCH_CHECK_VALUE(kind != Message::refused, kReader, ": \"", name_, "\" refused: ", read_text(packet), ".");
  TORCH_CHECK_VALUE(kind == Message::welcome && descriptors.size() == 2, kReader, ": \"", name_,
                    "\" answered something that is no welcome.");
  const Welcome welcome = read_welcome(packet);
  view_.emplace(descriptors[0], welcome.bytes, descriptors[1], welcome.place, welcome.position);
  requests_ = 1;
}

/// Looks whether the publisher said something or died, for at most so long. False if it is gone.
bool Client::listen(nanoseconds at_most) {
  if (gone_) return false;
  if (!wait_for(socket_, at_most)) return true;
  std::string packet;
  const Received received = receive(socket_, packet);
  gone_ = received == Received::end;
  if (received == Received::packet && kind_of_message(packet) == Message::refused)
    refused_ = read_text(packet);
  return !gone_;
}

std::optional<Frame> Client::take() {
  for (;;) {
    const void* const bytes = view_->next();
    if (bytes == nullptr) return std::nullopt;
    const std::uint64_t length = view_->length();
    if (view_->waits()) {
      try {
        const Frame frame = read_frame(bytes, length);
        holding_ = view_->valid();
        if (holding_) return frame;
      } catch (const c10::Error&) {  // of a frame that is being overwritten, after all
        if (view_->valid()) throw;
      }
    } else {
      if (copy_.size() < length) copy_.resize(length);
      std::memcpy(copy_.data(), bytes, length);
      if (view_->release()) return read_frame(copy_.data(), length);
    }
  }
}

std::optional<Frame> Client::next(nanoseconds timeout) {
  TORCH_CHECK_VALUE(made_here_, kReader, "::next: the process was forked, and the reader of \"", name_,
                    "\" belongs to the parent; make one in the child.");
  release();
  const auto deadline = deadline_after(timeout);
  nanoseconds pause = kShortest;
  for (;;) {
    if (auto frame = take()) return frame;
    if (view_->closed() || gone_) {
      auto last = take();  // it may have come before the end
      ended_ = !last.has_value();
      return last;
    }
    const auto left = deadline - Clock::now();
    if (left <= nanoseconds(0)) return std::nullopt;
    listen(std::min<nanoseconds>(pause, left));
    pause = std::min(2 * pause, kLongest);
  }
}

std::string Client::broken() const {
  if (!ended_ || !made_here_ || view_->closed()) return {};
  return c10::str("process ", publisher_.pid, ", which published \"", name_, "\", was killed or crashed");
}

void Client::release() noexcept {
  if (!holding_ || !made_here_) return;
  holding_ = false;
  view_->release();
}

void Client::subscribe(const Subscription& subscription) {
  check("views::stream::Reader::subscribe", subscription);
  Subscription named = subscription;
  if (named.label().empty()) named.label(program_name());
  bool there = send(socket_, write_subscribe(named));
  ++requests_;
  const auto deadline = deadline_after(kAnswer);
  while (there && refused_.empty() && view_->subscriptions() < requests_ && Clock::now() < deadline) {
    there = listen(kLongest);
  }
  TORCH_CHECK_VALUE(refused_.empty(), "views::stream::Reader::subscribe: \"", name_, "\" refused: ", refused_,
                    ".");
  // A publisher that ended has nothing more to send, whatever is subscribed to.
  TORCH_CHECK_VALUE(!there || view_->subscriptions() >= requests_,
                    "views::stream::Reader::subscribe: process ", publisher_.pid, ", which publishes \"",
                    name_, "\", did not answer; it may be stopped.");
}

}  // namespace torchtap::views::stream::detail
