// Readers: tensors out of frames, and who publishes.
#include <ATen/Functions.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include <torchtap/base/error.hpp>
#include <torchtap/base/numbers.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/views/stream/detail/client.hpp>
#include <torchtap/views/stream/detail/piped.hpp>
#include <torchtap/views/stream/reader.hpp>

namespace torchtap::views::stream {

at::Tensor to_tensor(const Frame& frame) {
  TORCH_CHECK_VALUE(!frame.without_data, "views::stream::to_tensor: the frame of \"", std::string(frame.path),
                    "\" has no data: ", std::string(frame.text), ".");
  TORCH_CHECK_VALUE(
      element_bytes(frame.dtype) != 0 && frame.dtype < static_cast<std::uint8_t>(at::ScalarType::NumOptions),
      "views::stream::to_tensor: the frame of \"", std::string(frame.path), "\" has dtype number ",
      static_cast<int>(frame.dtype), ", which this LibTorch does not have.");
  const base::RecordingMode quiet;
  const at::IntArrayRef sizes(frame.sizes.data(), frame.dims);
  at::Tensor tensor = at::empty(sizes, at::TensorOptions(static_cast<at::ScalarType>(frame.dtype)));
  if (frame.data_bytes != 0) std::memcpy(tensor.data_ptr(), frame.data, frame.data_bytes);
  return tensor;
}

namespace {

std::unique_ptr<detail::Inlet> open(const std::string& name, const Subscription& subscription,
                                    const ReaderOptions& options) {
  if (name == "-") return std::make_unique<detail::PipedFrames>(STDIN_FILENO, subscription);
  return std::make_unique<detail::Client>(name, subscription, options.directory(), options.wait());
}

}  // namespace

Reader::Reader(const std::string& name, const Subscription& subscription, const ReaderOptions& options)
    : inlet_(open(name, subscription, options)) {}
Reader::Reader(std::unique_ptr<detail::Inlet> inlet) : inlet_(std::move(inlet)) {}
Reader Reader::from(int descriptor, const Subscription& subscription) {
  return Reader(std::make_unique<detail::PipedFrames>(descriptor, subscription));
}
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;
Reader::~Reader() = default;

std::optional<Frame> Reader::next(std::chrono::nanoseconds timeout) {
  return inlet_->next(timeout);
}
bool Reader::whole() const noexcept {
  return inlet_->whole();
}
void Reader::release() noexcept {
  inlet_->release();
}
bool Reader::ended() const noexcept {
  return inlet_->ended();
}
std::string Reader::broken() const {
  return inlet_->broken();
}
void Reader::subscribe(const Subscription& subscription) {
  inlet_->subscribe(subscription);
}
std::int64_t Reader::received() const noexcept {
  return static_cast<std::int64_t>(inlet_->received());
}
std::int64_t Reader::missed() const noexcept {
  return static_cast<std::int64_t>(inlet_->missed());
}
bool Reader::demoted() const noexcept {
  return inlet_->demoted();
}
std::int64_t Reader::publisher() const noexcept {
  return inlet_->process();
}

namespace {

/// One line of a status. Keys that a later version adds are skipped.
void read_line(const std::string& key, const std::string& value, StreamInfo& stream) {
  const auto number = [&] { return static_cast<std::int64_t>(std::strtoull(value.c_str(), nullptr, 10)); };
  if (key == "name") stream.name = value;
  if (key == "pid") stream.pid = number();
  if (key == "bytes") stream.memory = number();
  if (key == "frames") stream.counters.published = number();
  if (key == "data") stream.counters.bytes = number();
  if (key == "without_data") stream.counters.without_data = number();
  if (key == "waited_ns") stream.counters.waited_ns = number();
  if (key == "reader") {
    stream.readers.emplace_back();
    stream.readers.back().pid = number();
  }
  if (stream.readers.empty()) return;
  ReaderInfo& reader = stream.readers.back();
  if (key == "label") reader.subscription.label(value);
  if (key == "lag") reader.lag_bytes = number();
  if (key == "offered") reader.offered = number();
  if (key == "received") reader.received = number();
  if (key == "missed") reader.missed = number();
  if (key == "every") reader.subscription.every(number());
  if (key == "hz") reader.subscription.hz(base::number_of(value).value_or(0));
  if (key == "glob") reader.subscription.names().push_back(value);
  if (key == "policy") reader.waits = value == "wait";
  if (key == "policy") reader.demoted = value == "demoted";
}

}  // namespace

std::vector<StreamInfo> streams(const std::string& directory) {
  std::vector<StreamInfo> all;
  for (const auto& where : detail::meeting_places(directory)) {
    for (const auto& name : detail::names_in(where)) {
      StreamInfo stream;
      stream.socket = detail::socket_path("views::stream::streams", where, name);
      std::istringstream lines(detail::ask_status(stream.socket));
      for (std::string line; std::getline(lines, line);) {
        const std::size_t tab = line.find('\t');
        if (tab != std::string::npos) read_line(line.substr(0, tab), line.substr(tab + 1), stream);
      }
      if (stream.pid != 0) all.push_back(std::move(stream));
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

}  // namespace torchtap::views::stream
