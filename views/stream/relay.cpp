// A relay opens one local reader for each remote reader, so each has its own subscription and its own count
// of missed frames.
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/thread.hpp>
#include <torchtap/views/stream/detail/client.hpp>
#include <torchtap/views/stream/detail/handshake.hpp>
#include <torchtap/views/stream/detail/tcp.hpp>
#include <torchtap/views/stream/detail/wire.hpp>
#include <torchtap/views/stream/relay.hpp>

namespace torchtap::views::stream {
namespace {

using detail::Descriptor;
using detail::Incoming;
using Arrived = Incoming::State;

constexpr const char* kCall = "views::stream::Relay";
constexpr auto kHandshake = std::chrono::seconds(5);
constexpr auto kGlance = std::chrono::milliseconds(50);
constexpr std::int64_t kMostReaders = 60;
constexpr std::size_t kLeastToken = 16;
constexpr std::size_t kMostStrangers = 64;  // connections that have not introduced themselves yet

std::string random_bytes() {
  std::string bytes(detail::kNonce, '\0');
  const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
  if (got != static_cast<ssize_t>(bytes.size())) detail::system_error("get random numbers", errno);
  return bytes;
}

/// Serves one connection in its own thread.
class Connection {
 public:
  Connection(Descriptor socket, const std::string& stream, const RelayOptions& options,
             std::atomic<bool>& stop, std::atomic<std::int64_t>& readers)
      : socket_(std::move(socket)), stream_(stream), options_(options), stop_(stop), readers_(readers) {}

  bool done() const noexcept { return done_.load(); }
  bool is_stranger() const noexcept { return stranger_.load(); }
  bool refused() const noexcept { return refused_.load(); }
  /// Ends a connection that has not introduced itself, from another thread.
  void turn_away() noexcept {
    const std::lock_guard lock(mutex_);
    if (stranger_.exchange(false) && socket_) ::shutdown(socket_.get(), SHUT_RDWR);
  }

  void run() noexcept {
    std::string why;
    bool reads = false;
    try {
      const Subscription wants = introduce();
      TORCH_CHECK_VALUE(stranger_.exchange(false), "too many connections have not introduced themselves");
      reads = ++readers_ <= options_.readers();
      if (!reads) --readers_;
      TORCH_CHECK_VALUE(reads, "the relay has as many readers as it may have");
      serve(wants);
    } catch (const c10::Error& error) {
      why = error.what_without_backtrace();
    } catch (const std::exception& error) {
      why = error.what();
    }
    if (!why.empty()) {
      refused_ = !served_;
      try {
        say(detail::write_refused(why.substr(0, kMostText)));
        finish();
      } catch (const std::exception&) {  // no memory, even for that
      }
    }
    if (reads) --readers_;
    const std::lock_guard lock(mutex_);
    socket_.close();
    done_ = true;
  }

 private:
  /// Checks that the other end knows the token, and takes its first wish. Memory and time are limited until
  /// then.
  Subscription introduce() {
    const auto deadline = detail::deadline_after(kHandshake);
    const bool wants_token = !options_.token().empty();
    const std::string nonce = random_bytes();
    const std::string hello = detail::write_hello(nonce, wants_token);
    detail::send_all(socket_, hello.data(), hello.size(), kHandshake, &stop_);
    const std::string proof = take(detail::kProof, deadline);
    const std::string begin = detail::write_hello("", false);
    TORCH_CHECK_VALUE(proof.compare(0, begin.size(), begin) == 0,
                      "this is torchtap relay, which speaks version ", detail::kVersion,
                      " of its protocol; it was greeted in another way");
    detail::Digest said{};
    std::memcpy(said.data(), proof.data() + begin.size(), said.size());
    TORCH_CHECK_VALUE(!wants_token || detail::same(said, detail::hmac_sha256(options_.token(), nonce)),
                      "the token is wrong");
    const std::string packet = take_message(deadline);
    TORCH_CHECK_VALUE(detail::kind_of_message(packet) == detail::Message::subscribe,
                      "a reader's first message says what it wants");
    return named(detail::read_subscribe(packet));
  }

  std::string take(std::size_t size, detail::Moment deadline) {
    const Arrived arrived = incoming_.fill(socket_, size, deadline);
    TORCH_CHECK_VALUE(arrived == Arrived::whole, "a message did not come whole");
    std::string text = incoming_.text(0, size);
    incoming_.clear();
    return text;
  }

  /// The rest of a message that has begun. Throws if it does not come in time.
  std::string take_message(detail::Moment deadline) {
    TORCH_CHECK_VALUE(incoming_.fill(socket_, 8, deadline) == Arrived::whole, "a message did not come whole");
    const std::size_t length = detail::message_length(incoming_.data());
    return take(8 + length, deadline).substr(8);
  }

  Subscription named(Subscription wants) const {
    wants.when_full(WhenFull::skip);
    wants.label((detail::name_of_peer(socket_) + " " + wants.label()).substr(0, 256));
    return wants;
  }

  bool say(const std::string& packet) {
    return detail::send_message(socket_, packet, options_.patience(), &stop_);
  }

  void serve(const Subscription& wants) {
    detail::Client client(stream_, wants, options_.directory(), std::chrono::nanoseconds(0));
    served_ = true;
    if (!say(detail::write_status("pid\t" + std::to_string(client.process()) + "\n"))) return;
    auto said = std::chrono::steady_clock::now();
    while (!stop_.load()) {
      if (!listen(client)) return;
      const auto frame = client.next(kGlance);
      if (frame.has_value() && !send(*frame, client.missed())) return;
      if (client.ended()) break;
      const auto now = std::chrono::steady_clock::now();
      if (!frame.has_value() && now - said < options_.heartbeat()) continue;
      if (!frame.has_value() && !say(detail::write_status(""))) return;
      said = now;
    }
    const std::string why = client.ended() ? client.broken() : "the relay was stopped";
    say(detail::write_status("missed\t" + std::to_string(client.missed()) + "\nend\t" + why + "\n"));
    finish();
  }

  /// Takes a new wish, if there is one. False if the reader has gone.
  bool listen(detail::Client& client) {
    const Arrived arrived = incoming_.fill(socket_, 8, detail::Moment::min());
    if (arrived != Arrived::whole) return arrived != Arrived::end;
    const std::string packet = take_message(detail::deadline_after(kHandshake));
    TORCH_CHECK_VALUE(detail::kind_of_message(packet) == detail::Message::subscribe,
                      "a reader may change what it wants, and say nothing else");
    client.subscribe(named(detail::read_subscribe(packet)));
    return true;
  }

  bool send(Frame frame, std::uint64_t missed) {
    frame.readers = 0;
    frame.missed = missed - missed_;
    missed_ = missed;
    std::string why;
    if (frame_bytes(frame) > detail::kMostRemote) {
      why = c10::str("the tensor takes ", frame.data_bytes, " bytes, and at most ", detail::kMostRemote,
                     " go over TCP");
      frame.without_data = true;
      frame.text = why;
      frame.data_bytes = 0;
    }
    frame.has_checksum = true;
    frame.checksum = base::crc32(0, frame.data, frame.data_bytes);
    const std::uint64_t header = header_bytes(frame);
    const std::uint64_t behind = frame_bytes(frame) - header - frame.data_bytes;
    // Small frames in one piece.
    const bool small = frame.data_bytes <= kSmall;
    buffer_.assign(header + (small ? frame.data_bytes : 0) + behind, '\0');
    write_header(frame, buffer_.data());
    if (small && frame.data_bytes != 0) std::memcpy(buffer_.data() + header, frame.data, frame.data_bytes);
    if (small) return push(buffer_.data(), buffer_.size());
    return push(buffer_.data(), header) && push(frame.data, frame.data_bytes) &&
           push(buffer_.data() + header, behind);
  }

  bool push(const void* bytes, std::size_t size) {
    return detail::send_all(socket_, bytes, size, options_.patience(), &stop_);
  }

  /// Lets what was sent arrive before the connection closes: one that closes with bytes unread is reset.
  void finish() {
    ::shutdown(socket_.get(), SHUT_WR);
    const auto deadline = detail::deadline_after(std::chrono::seconds(1));
    while (!stop_.load() &&
           incoming_.fill(socket_, 4096, std::min(deadline, detail::deadline_after(kGlance))) !=
               Arrived::end) {
      incoming_.clear();
      if (std::chrono::steady_clock::now() >= deadline) return;
    }
  }

  static constexpr std::uint64_t kSmall = 65536;

  std::mutex mutex_;  // of the socket's end
  Descriptor socket_;
  const std::string& stream_;
  const RelayOptions& options_;
  std::atomic<bool>& stop_;
  std::atomic<std::int64_t>& readers_;  // of the relay
  Incoming incoming_;
  std::vector<char> buffer_;
  std::uint64_t missed_ = 0;
  bool served_ = false;
  std::atomic<bool> stranger_{true};
  std::atomic<bool> done_{false};
  std::atomic<bool> refused_{false};
};

struct Served {
  std::unique_ptr<Connection> connection;
  std::thread thread;
};

}  // namespace

struct Relay::State {
  std::string name;
  RelayOptions options;
  std::string socket;
  Descriptor listener;
  std::string address;
  std::atomic<bool> stop{false};
  std::atomic<bool> ended{false};
  std::atomic<std::int64_t> readers{0};
  std::atomic<std::int64_t> refused{0};
  std::thread thread;
  const base::MadeHere made_here;

  void run();
  void collect(std::list<Served>& all);
  void welcome(std::list<Served>& all);
};

/// Joins the threads that have ended.
void Relay::State::collect(std::list<Served>& all) {
  for (auto served = all.begin(); served != all.end();) {
    if (!served->connection->done()) {
      ++served;
      continue;
    }
    refused += served->connection->refused() ? 1 : 0;
    served->thread.join();
    served = all.erase(served);
  }
}

/// Takes a connection. Strangers who stay silent do not keep others out: of too many, the oldest goes.
void Relay::State::welcome(std::list<Served>& all) {
  Descriptor socket = detail::accept_tcp(listener);
  if (!socket) return;
  const auto is_stranger = [](const Served& served) { return served.connection->is_stranger(); };
  if (static_cast<std::size_t>(std::count_if(all.begin(), all.end(), is_stranger)) >= kMostStrangers)
    std::find_if(all.begin(), all.end(), is_stranger)->connection->turn_away();
  Served served;
  served.connection = std::make_unique<Connection>(std::move(socket), name, options, stop, readers);
  Connection* const connection = served.connection.get();
  served.thread = base::start_thread("torchtap-relay", [connection] { connection->run(); });
  all.push_back(std::move(served));
}

void Relay::State::run() {
  std::list<Served> all;
  auto asked = std::chrono::steady_clock::now();
  while (!stop.load()) {
    pollfd polled{listener.get(), POLLIN, 0};
    if (::poll(&polled, 1, 100) > 0) {
      try {
        welcome(all);
      } catch (const std::exception&) {  // no thread or memory for another reader: it is turned away
        ++refused;
      }
    }
    collect(all);
    if (std::chrono::steady_clock::now() - asked < std::chrono::seconds(1)) continue;
    asked = std::chrono::steady_clock::now();
    try {
      ended = all.empty() && detail::ask_status(socket).empty();
    } catch (const std::exception&) {  // it is not our user's any more
      ended = true;
    }
  }
  for (auto& served : all) served.thread.join();
}

Relay::Relay(const std::string& name, const RelayOptions& options) : state_(std::make_unique<State>()) {
  TORCH_CHECK_VALUE(options.readers() >= 1 && options.readers() <= kMostReaders, kCall, ": readers(",
                    options.readers(), ") has to be from 1 to ", kMostReaders, ".");
  TORCH_CHECK_VALUE(options.token().empty() || options.token().size() >= kLeastToken, kCall,
                    ": the token has ", options.token().size(), " characters, and should have at least ",
                    kLeastToken, ", or anybody can guess it.");
  TORCH_CHECK_VALUE(options.heartbeat().count() > 0, kCall, ": heartbeat(", options.heartbeat().count(),
                    " ns) has to be more than 0.");
  detail::find_publisher(kCall, name, options.directory(), std::chrono::nanoseconds(0), state_->socket);
  state_->name = name;
  state_->options = options;
  state_->listener = detail::listen_at(kCall, detail::parse_address(kCall, options.listen()),
                                       /*anywhere=*/!options.token().empty());
  state_->address = detail::name_of_listener(state_->listener);
  state_->thread = base::start_thread("torchtap-relay", [state = state_.get()] { state->run(); });
}

Relay::Relay(Relay&&) noexcept = default;
Relay& Relay::operator=(Relay&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

Relay::~Relay() {
  if (state_ == nullptr) return;
  if (!state_->made_here) {  // a forked child does not have the threads
    state_->thread.detach();
    return;
  }
  state_->stop = true;
  state_->thread.join();
}

std::string Relay::address() const {
  return state_->address;
}
std::int64_t Relay::readers() const noexcept {
  return state_->readers.load();
}
std::int64_t Relay::refused() const noexcept {
  return state_->refused.load();
}
bool Relay::ended() const noexcept {
  return state_->ended.load();
}

}  // namespace torchtap::views::stream
