// Makes and ends servers, and answers programs' questions about them.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <torchtap/base/error.hpp>
#include <torchtap/base/thread.hpp>
#include <torchtap/views/stream/detail/server.hpp>
#include <torchtap/views/stream/detail/texts.hpp>
#include <torchtap/views/stream/detail/wire.hpp>

namespace torchtap::views::stream::detail {
namespace {

constexpr std::uint64_t kLeastBytes = 64 << 10;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;

ServerOptions checked(ServerOptions options) {
  TORCH_CHECK_VALUE(options.bytes >= kLeastBytes && options.bytes <= kMostBytes,
                    "views::stream::Publisher: bytes(", options.bytes, ") is not from ", kLeastBytes, " to ",
                    kMostBytes, "; the largest frame takes half of it.");
  TORCH_CHECK_VALUE(options.wait_at_most.count() >= 0, "views::stream::Publisher: wait_at_most is negative.");
  options.bytes = (options.bytes + kPage - 1) / kPage * kPage;
  return options;
}

}  // namespace

Server::Server(std::string name, ServerOptions options)
    : name_(std::move(name)), options_(checked(std::move(options))) {
  const char* const call = "views::stream::Publisher";
  listener_ = std::make_unique<Listener>(call, socket_path(call, rendezvous(options_.directory), name_));
  wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) system_error("make an eventfd", errno);
  thread_ = base::start_thread("torchtap-stream", [this] { serve(); });
}

Server::~Server() {
  close();
}

void Server::close() noexcept {
  if (in_child()) {
    if (thread_.joinable()) thread_.detach();  // it runs in the parent alone
    return;
  }
  if (closed_.exchange(true)) return;
  const std::uint64_t one = 1;
  while (::write(wake_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
  const std::lock_guard sources_lock(sources_mutex_);
  for (const auto& weak : sources_) {
    if (const auto source = weak.lock()) source->set_wanted(0);
  }
  const std::lock_guard lock(mutex_);
  if (arena_ != nullptr) arena_->close();
  present_ = waiting_ = 0;
  for (Place& place : places_) place = {};
  arena_.reset();
  listener_.reset();
}

std::shared_ptr<SourceState> Server::add(SourceName name) {
  name.path = as_utf8(name.path);
  name.type = as_utf8(name.type);
  for (auto& alias : name.aliases) alias = as_utf8(alias);
  auto source = std::make_shared<SourceState>(std::move(name), rates_);
  if (in_child()) return source;
  const std::lock_guard lock(sources_mutex_);
  sources_.erase(
      std::remove_if(sources_.begin(), sources_.end(), [](const auto& weak) { return weak.expired(); }),
      sources_.end());
  sources_.push_back(source);
  for (std::size_t place = 0; place < kPlaces; ++place) match(*source, place);
  return source;
}

void Server::annotate(std::string text) {
  if (in_child()) return;
  const std::lock_guard lock(mutex_);
  annotation_ = as_utf8(text);
}

ServerCounters Server::counters() const {
  if (in_child()) return {};
  const std::lock_guard lock(mutex_);
  return counters_;
}

std::uint64_t Server::memory() const {
  if (in_child()) return 0;
  const std::lock_guard lock(mutex_);
  return arena_ == nullptr ? 0 : arena_->capacity();
}

std::vector<ReaderState> Server::readers() const {
  std::vector<ReaderState> all;
  if (in_child()) return all;
  const std::lock_guard sources_lock(sources_mutex_);  // a reader has joined only when all sources know it
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < kPlaces; ++i) {
    const Place& place = places_[i];
    if (!place.taken) continue;
    const auto* const control = reinterpret_cast<const Control*>(place.control.get());
    ReaderState reader;
    reader.pid = place.peer.pid;
    reader.subscription = place.subscription;
    const std::uint64_t cursor = control->cursor.load(std::memory_order_relaxed);
    reader.lag_bytes = arena_->head() - std::min(cursor, arena_->head());
    reader.offered = arena_->ledger(i).offered.load(std::memory_order_relaxed);
    reader.received = control->received.load(std::memory_order_relaxed);
    reader.missed = control->missed.load(std::memory_order_relaxed);
    reader.waits = (waiting_ >> i & 1) != 0;
    reader.demoted = place.demoted;
    all.push_back(std::move(reader));
  }
  return all;
}

}  // namespace torchtap::views::stream::detail
