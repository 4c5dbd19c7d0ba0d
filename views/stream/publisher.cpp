// Publishers: tensors for the server.
#include <ATen/core/Tensor.h>

#include <atomic>
#include <map>
#include <sstream>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/views/stream/detail/device_copies.hpp>
#include <torchtap/views/stream/detail/local_socket.hpp>
#include <torchtap/views/stream/detail/server.hpp>
#include <torchtap/views/stream/extend/relay.hpp>
#include <torchtap/views/stream/publisher.hpp>

namespace torchtap::views::stream {
namespace {

/// Why the bytes of a tensor cannot be sent; empty if they can.
std::string obstacle(const at::Tensor& tensor) {
  if (!tensor.defined()) return "the tensor is undefined";
  if (tensor.layout() != c10::kStrided) return c10::str("the tensor has layout ", tensor.layout());
  if (tensor.is_quantized()) return "the tensor is quantized; record its values with recorders::dequantized";
  if (tensor.dim() > static_cast<std::int64_t>(kMostDims))
    return c10::str("the tensor has ", tensor.dim(), " dimensions");
  if (tensor.is_meta()) return "the tensor is on meta, where it has no data";
  if (!tensor.has_storage()) return "the tensor has no memory of its own";
  return {};
}

/// The description of the tensor in the frame; `why` outlives it.
Frame frame_of(const at::Tensor& tensor, const std::string& why) {
  Frame frame;
  if (tensor.defined()) {
    frame.dtype = static_cast<std::uint8_t>(tensor.scalar_type());
    frame.device_type = static_cast<std::int8_t>(tensor.device().type());
    frame.device_index = static_cast<std::int8_t>(tensor.device().index());
    frame.dims = static_cast<std::uint8_t>(std::min<std::int64_t>(tensor.dim(), kMostDims));
    for (std::size_t i = 0; i < frame.dims; ++i) frame.sizes[i] = tensor.sizes()[i];
  }
  frame.without_data = !why.empty();
  frame.text = why;
  if (frame.without_data) return frame;
  if (tensor.is_cpu()) frame.data = tensor.data_ptr();
  frame.data_bytes = tensor.nbytes();
  return frame;
}

Kind kind_or_other(const std::string& name) noexcept {
  for (std::size_t i = 0; i < kKinds; ++i) {
    if (name_of(static_cast<Kind>(i)) == name) return static_cast<Kind>(i);
  }
  return Kind::other;
}

/// A source of a server, for recorders.
class ServerSource final : public recorders::StreamSource {
 public:
  ServerSource(std::shared_ptr<detail::Server> server, std::shared_ptr<detail::DeviceCopies> copies,
               detail::SourceName name)
      : server_(std::move(server)), copies_(std::move(copies)), state_(server_->add(std::move(name))) {}

  bool wanted() const noexcept override { return state_->wanted(); }
  std::uint64_t receivers(std::int64_t event) noexcept override {
    return state_->readers_of(static_cast<std::uint64_t>(event));
  }
  void send(const at::Tensor& tensor, const recorders::StreamSample& sample,
            std::uint64_t receivers) override {
    const std::string why = obstacle(tensor);
    // Behind its predecessors that a device still copies.
    const bool later =
        (why.empty() && !tensor.is_cpu()) || state_->under_way.load(std::memory_order_acquire) != 0;
    const bool as_it_is =
        later || !why.empty() || (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg());
    const at::Tensor sent = as_it_is ? tensor : plain(tensor);
    const Frame frame = frame_of(sent, why, sample);
    if (later) {
      copies_->send(state_, sent, frame, receivers);
    } else {
      server_->publish(*state_, frame, receivers);
    }
  }
  /// By one thread.
  void relay(const extend::Relayed& relayed) {
    if (relayed_.size() > 256) relayed_.clear();  // threads come and go
    auto& [event, readers] = relayed_.try_emplace(relayed.thread, -1, 0).first->second;
    if (relayed.sample.sample != event) readers = receivers(event = relayed.sample.sample);
    if (readers == 0) return;
    const std::string why = relayed.why.empty() ? obstacle(relayed.tensor) : relayed.why;
    detail::HandOver handed = server_->hand_over(readers);
    handed.time_ns = relayed.time_ns;
    handed.thread = relayed.thread;
    server_->publish(*state_, frame_of(relayed.tensor, why, relayed.sample), readers, &handed);
  }

 private:
  static at::Tensor plain(const at::Tensor& tensor) {
    const base::RecordingMode quiet;
    return tensor.detach().resolve_conj().resolve_neg().contiguous();
  }
  static Frame frame_of(const at::Tensor& tensor, const std::string& why,
                        const recorders::StreamSample& sample) {
    Frame frame = stream::frame_of(tensor, why);
    frame.sample = static_cast<std::uint64_t>(sample.sample);
    frame.call = static_cast<std::uint64_t>(sample.call);
    frame.slot = static_cast<std::uint16_t>(std::min<std::int64_t>(sample.slot, UINT16_MAX));
    frame.result = sample.result;
    return frame;
  }

  std::shared_ptr<detail::Server> server_;
  std::shared_ptr<detail::DeviceCopies> copies_;
  std::shared_ptr<detail::SourceState> state_;
  // By thread: its last event, of which several tensors may come, and who wants it.
  std::map<std::uint32_t, std::pair<std::int64_t, std::uint64_t>> relayed_;
};

/// A publisher as recorders see it.
class ServerStream final : public recorders::Stream {
 public:
  ServerStream(std::shared_ptr<detail::Server> server, std::shared_ptr<detail::DeviceCopies> copies)
      : server_(std::move(server)), copies_(std::move(copies)) {}
  std::shared_ptr<recorders::StreamSource> source(const storage::EntryId& id) override {
    return std::make_shared<ServerSource>(
        server_, copies_, detail::SourceName{id.path, id.aliases, id.type, kind_or_other(id.kind)});
  }

 private:
  std::shared_ptr<detail::Server> server_;
  std::shared_ptr<detail::DeviceCopies> copies_;
};

detail::ServerOptions plain(const PublisherOptions& options) {
  detail::ServerOptions plain;
  plain.bytes = static_cast<std::uint64_t>(options.bytes());
  plain.when_full = options.when_full();
  plain.wait_at_most = options.wait_at_most();
  plain.directory = options.directory();
  plain.rank = static_cast<std::uint32_t>(options.rank());
  return plain;
}

}  // namespace

void extend::relay(recorders::StreamSource& source, const Relayed& relayed) {
  auto* const ours = dynamic_cast<ServerSource*>(&source);
  TORCH_CHECK_TYPE(ours != nullptr, "views::stream::extend::relay: expected a source of a Publisher.");
  ours->relay(relayed);
}

struct Source::Counted {
  std::shared_ptr<recorders::StreamSource> source;
  std::atomic<std::int64_t> events{0};
};

Source::Source(std::shared_ptr<recorders::StreamSource> source) : counted_(std::make_shared<Counted>()) {
  counted_->source = std::move(source);
}

bool Source::wanted() const noexcept {
  return counted_->source->wanted();
}

bool Source::publish(const at::Tensor& tensor) {
  const std::int64_t event = counted_->events.fetch_add(1, std::memory_order_relaxed);
  if (!counted_->source->wanted()) return false;
  const std::uint64_t receivers = counted_->source->receivers(event);
  if (receivers == 0) return false;
  recorders::StreamSample sample;
  sample.sample = event;
  counted_->source->send(tensor, sample, receivers);
  return true;
}

Publisher::Publisher(std::string name, PublisherOptions options)
    : server_(std::make_shared<detail::Server>(std::move(name), plain(options))),
      copies_(std::make_shared<detail::DeviceCopies>(server_)) {}

void Publisher::check(const std::string& name, const std::string& directory) {
  detail::socket_path("views::stream::Publisher", detail::rendezvous(directory), name);
}

Publisher& Publisher::operator=(Publisher&& other) noexcept {
  if (this != &other) close();
  server_ = std::move(other.server_);
  copies_ = std::move(other.copies_);
  return *this;
}

Publisher::~Publisher() {
  close();
}

void Publisher::close() noexcept {
  if (server_ == nullptr) return;
  copies_->close();  // what is on its way is published first
  server_->close();  // both may live on in sources
}

Publisher::operator std::shared_ptr<recorders::Stream>() const {
  return std::make_shared<ServerStream>(server_, copies_);
}

Source Publisher::source(const std::string& path, const std::string& type, Kind kind) {
  return Source(std::make_shared<ServerSource>(server_, copies_, detail::SourceName{path, {}, type, kind}));
}

void Publisher::annotate(std::string text) {
  server_->annotate(std::move(text));
}
const std::string& Publisher::name() const noexcept {
  return server_->name();
}
std::string Publisher::socket() const {
  return server_->socket();
}

std::vector<ReaderInfo> Publisher::readers() const {
  std::vector<ReaderInfo> all;
  for (auto& reader : server_->readers()) {
    all.push_back({reader.pid, std::move(reader.subscription), static_cast<std::int64_t>(reader.lag_bytes),
                   static_cast<std::int64_t>(reader.offered), static_cast<std::int64_t>(reader.received),
                   static_cast<std::int64_t>(reader.missed), reader.waits, reader.demoted});
  }
  return all;
}

PublisherCounters Publisher::counters() const {
  const auto counted = server_->counters();
  return {static_cast<std::int64_t>(counted.published), static_cast<std::int64_t>(counted.bytes),
          static_cast<std::int64_t>(counted.without_data), static_cast<std::int64_t>(counted.waited_ns)};
}

}  // namespace torchtap::views::stream
