// The part that the service thread runs: readers connect, ask and leave.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <locale>
#include <sstream>

#include <torchtap/base/error.hpp>
#include <torchtap/base/glob.hpp>
#include <torchtap/version.hpp>
#include <torchtap/views/stream/detail/handshake.hpp>
#include <torchtap/views/stream/detail/server.hpp>
#include <torchtap/views/stream/detail/texts.hpp>
#include <torchtap/views/stream/detail/wire.hpp>

namespace torchtap::views::stream::detail {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSilence = std::chrono::seconds(2);  // how long a connection may take to become a reader
constexpr std::uint64_t kFirstBytes = 4 << 20;      // of the ring, as far as it may have them
constexpr std::size_t kConnections = 2 * kPlaces;   // more wait in the system's queue

/// The message for a reader that is refused.
struct Refused {
  std::string why;
};

/// A reader's text in one line of a status.
std::string in_line(std::string text) {
  for (char& letter : text) {
    if (static_cast<unsigned char>(letter) < ' ') letter = '?';
  }
  return as_utf8(text);
}

}  // namespace

void Server::serve() {
  std::vector<Connection> connections;
  std::vector<pollfd> polled;
  while (!closed_.load()) {
    const bool full = connections.size() >= kConnections;
    polled.assign({{wake_.get(), POLLIN, 0}, {full ? -1 : listener_->socket().get(), POLLIN, 0}});
    bool silent = false;
    for (const auto& connection : connections) {
      polled.push_back({connection.socket.get(), POLLIN, 0});
      silent = silent || connection.place == kPlaces;
    }
    if (::poll(polled.data(), polled.size(), silent ? 500 : -1) < 0 && errno != EINTR) break;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < connections.size(); ++i) {
      Connection& connection = connections[i];
      const bool said = polled[i + 2].revents != 0;
      bool keep = !said || answer(connection);
      if (connection.place == kPlaces && Clock::now() - connection.since > kSilence) keep = false;
      if (!keep) leave(connection);
      if (keep && kept != i) connections[kept] = std::move(connection);
      kept += keep ? 1 : 0;
    }
    connections.resize(kept);
    if (polled[1].revents != 0) welcome_new(connections);
  }
  for (const auto& connection : connections) {
    if (connection.place != kPlaces) continue;
    send(connection.socket, write_refused("the publisher ended"));
  }
  const std::lock_guard lock(mutex_);
  if (arena_ != nullptr)
    arena_->close();  // before the sockets close, so that readers see the end and no death
}

void Server::welcome_new(std::vector<Connection>& connections) {
  auto socket = accept(listener_->socket());
  if (!socket.has_value()) return;
  Connection connection;
  connection.socket = std::move(*socket);
  connection.since = Clock::now();
  connections.push_back(std::move(connection));
}

/// Reads a message and does what it says. False if the connection is to be closed.
bool Server::answer(Connection& connection) {
  std::string packet;
  const Received received = receive(connection.socket, packet);
  if (received != Received::packet) return received == Received::nothing;
  std::string why;
  try {
    const Message kind = kind_of_message(packet);
    if (kind == Message::status) {
      ++connection.requests;
      return send(connection.socket, write_status(status()));
    }
    TORCH_CHECK_VALUE(kind == Message::subscribe,
                      "views::stream: a reader may subscribe or ask for the status.");
    Subscription subscription = read_subscribe(packet);
    ++connection.requests;
    if (connection.place == kPlaces) {
      join(connection, std::move(subscription));
    } else {
      change(connection, std::move(subscription));
    }
    return true;
  } catch (const Refused& refused) {
    why = refused.why;
  } catch (const c10::Error& error) {
    why = error.what_without_backtrace();
  } catch (const std::exception& error) {
    why = error.what();
  }
  send(connection.socket, write_refused(why.substr(0, kMostText)));
  return false;
}

void Server::join(Connection& connection, Subscription subscription) {
  std::shared_ptr<Arena> arena;
  {
    const std::lock_guard lock(mutex_);
    arena = arena_;
  }
  // Outside of the lock: the system may take its time for so much memory.
  const bool first = arena == nullptr;
  if (first) arena = std::make_shared<Arena>(std::min(kFirstBytes, options_.bytes), options_.bytes);
  const Descriptor control = make_memory("torchtap-reader", kPage);
  Mapping page(control, kPage, /*writable=*/true);
  take_memory(control, page, 0, kPage);
  auto* const cursors = new (page.get()) Control{};

  const std::lock_guard sources_lock(sources_mutex_);
  std::unique_lock lock(mutex_);
  if (first) {
    arena_ = arena;
    small_until_ns_ = 0;
    for (Place& place : places_) place.free_from = 0;
  }
  std::size_t index = 0;
  while (index < kPlaces && (places_[index].taken || places_[index].free_from > arena->head())) ++index;
  if (index == kPlaces)
    throw Refused{c10::str("the publisher has ", kPlaces, " readers, and there may be no more")};
  Place& place = places_[index];
  place = {};
  place.taken = true;
  place.joined = joins_++;
  place.peer = peer_of(connection.socket);
  place.subscription = std::move(subscription);
  place.control = std::move(page);
  const std::uint64_t position = arena->head();
  place.seen = position;
  cursors->cursor.store(position);
  Ledger& ledger = arena->ledger(index);
  ledger.turn.store(0);
  ledger.position.store(position);
  ledger.offered.store(0);
  ledger.subscriptions.store(1);
  ledger.demoted.store(0);
  connection.place = index;
  const std::uint64_t bit = std::uint64_t{1} << index;
  present_ |= bit;
  const bool waits = waits_for(place.subscription);
  if (waits) waiting_ |= bit;
  ledger.waits.store(waits ? 1 : 0);
  limit_ = 0;
  lock.unlock();
  // From here on frames are for it.
  match(index);
  const Welcome welcome{arena->bytes(), position, static_cast<std::uint16_t>(index)};
  send(connection.socket, write_welcome(welcome), {arena->memory().get(), control.get()});
}

void Server::change(Connection& connection, Subscription subscription) {
  const std::lock_guard sources_lock(sources_mutex_);
  Place& place = places_[connection.place];
  const std::uint64_t bit = std::uint64_t{1} << connection.place;
  {
    const std::lock_guard lock(mutex_);
    const bool waits =
        subscription.when_full().value_or(options_.when_full) == WhenFull::wait && !place.demoted;
    if (waits && (waiting_ & bit) == 0) {  // what was overwritten so far is not waited for
      const auto* const control = reinterpret_cast<const Control*>(place.control.get());
      place.seen = std::min(control->cursor.load(), arena_->head());
    }
    waiting_ = waits ? waiting_ | bit : waiting_ & ~bit;
    arena_->ledger(connection.place).waits.store(waits ? 1 : 0, std::memory_order_release);
    limit_ = 0;
    place.subscription = std::move(subscription);
  }
  match(connection.place);
  arena_->ledger(connection.place).subscriptions.store(connection.requests, std::memory_order_release);
}

void Server::leave(const Connection& connection) {
  if (connection.place == kPlaces) return;
  const std::lock_guard sources_lock(sources_mutex_);
  std::shared_ptr<Arena> unused;  // freed outside of the lock
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t bit = std::uint64_t{1} << connection.place;
    present_ &= ~bit;
    waiting_ &= ~bit;
    limit_ = 0;
    Place& place = places_[connection.place];
    place = {};
    place.free_from = arena_->reserved();
    if (present_ == 0) unused = std::move(arena_);
    if (present_ == 0) arena_ = nullptr;
  }
  match(connection.place);
}

/// Tells each source whether the reader in `place` wants it. Called under `sources_mutex_`, which
/// subscriptions change under.
void Server::match(std::size_t place) {
  const std::uint64_t bit = std::uint64_t{1} << place;
  const Subscription& wants = places_[place].subscription;
  const auto interval = wants.hz() > 0 ? static_cast<std::uint64_t>(std::min(1e9 / wants.hz(), 9e18)) : 0;
  rates_.every[place].store(static_cast<std::uint64_t>(wants.every()), std::memory_order_relaxed);
  rates_.interval_ns[place].store(interval, std::memory_order_relaxed);
  const std::uint64_t limited = rates_.limited.load(std::memory_order_relaxed);
  rates_.limited.store(wants.every() > 1 || interval != 0 ? limited | bit : limited & ~bit,
                       std::memory_order_release);
  for (const auto& weak : sources_) {
    if (const auto source = weak.lock()) match(*source, place);
  }
}

void Server::match(SourceState& source, std::size_t place) const {
  const Subscription& wants = places_[place].subscription;
  const SourceName& name = source.name;
  const auto fits = [&](const std::string& path) {
    return wants.names().empty() ||
           std::any_of(wants.names().begin(), wants.names().end(),
                       [&](const std::string& glob) { return base::matches_glob(glob, path); });
  };
  const auto& kinds = wants.kinds();
  const bool wanted = places_[place].taken &&
                      (kinds.empty() || std::find(kinds.begin(), kinds.end(), name.kind) != kinds.end()) &&
                      (fits(name.path) || std::any_of(name.aliases.begin(), name.aliases.end(), fits));
  const std::uint64_t bit = std::uint64_t{1} << place;
  if (!wanted) source.forget(place);
  source.set_wanted(wanted ? source.wanted_by() | bit : source.wanted_by() & ~bit);
}

std::string Server::status() const {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  const ServerCounters counted = counters();
  text << "name\t" << name_ << "\nversion\t" << TORCHTAP_VERSION << "\npid\t" << ::getpid() << "\nbytes\t"
       << memory() << "\nframes\t" << counted.published << "\ndata\t" << counted.bytes << "\nwithout_data\t"
       << counted.without_data << "\nwaited_ns\t" << counted.waited_ns << '\n';
  for (const ReaderState& reader : readers()) {
    text << "reader\t" << reader.pid << "\nlabel\t" << in_line(reader.subscription.label()) << "\nlag\t"
         << reader.lag_bytes << "\noffered\t" << reader.offered << "\nreceived\t" << reader.received
         << "\nmissed\t" << reader.missed << "\npolicy\t"
         << (reader.waits     ? "wait"
             : reader.demoted ? "demoted"
                              : "skip")
         << "\nevery\t" << reader.subscription.every() << "\nhz\t" << reader.subscription.hz() << '\n';
    for (const auto& name : reader.subscription.names()) text << "glob\t" << in_line(name) << '\n';
  }
  std::string whole = text.str();
  if (whole.size() > kMostMessage / 2) whole.resize(whole.rfind('\n', kMostMessage / 2) + 1);
  return whole;
}

}  // namespace torchtap::views::stream::detail
