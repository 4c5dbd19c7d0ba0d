// Reads the files of rings.
#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>

#include <torchtap/base/error.hpp>
#include <torchtap/base/format.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/json/json.hpp>
#include <torchtap/views/monitor/detail/random_state.hpp>
#include <torchtap/views/monitor/detail/read_ring.hpp>

namespace torchtap::views::monitor::detail {
namespace {

using frames::Frame;
using frames::Kind;

/// Collects the forwards of a ring, frame by frame.
class RingForwards {
 public:
  explicit RingForwards(RingContent& content) : content_(content) {}
  /// Why the frame is not one of a ring; empty if it is.
  std::string take(const Frame& frame);
  void finish();

 private:
  std::string take_state(const Frame& frame);
  std::string take_input(const Frame& frame);

  RingContent& content_;
  std::map<std::uint64_t, std::pair<KeptForward, std::int64_t>> forwards_;  // and how many inputs it has
  RandomState last_{};
  at::Tensor last_tensor_;
};

std::string RingForwards::take_state(const Frame& frame) {
  KeptForward forward;
  std::istringstream words{std::string(frame.text)};
  std::int64_t inputs = -1;
  for (std::string name; words >> name;) {
    std::int64_t number = 0;
    if (!(words >> number)) return "the state of a forward is not pairs of words and numbers";
    if (name == "training") forward.training = number != 0;
    if (name == "grad") forward.grad = number != 0;
    if (name == "inference") forward.inference = number != 0;
    if (name == "threads") forward.threads = static_cast<int>(std::clamp<std::int64_t>(number, 1, 4096));
    if (name == "inputs") inputs = number;
  }
  if (inputs < 0 || inputs > UINT16_MAX || frame.data_bytes != sizeof(RandomState))
    return "the state of a forward lacks something";
  RandomState state;
  std::memcpy(&state, frame.data, sizeof state);
  if (std::memcmp(&state, &last_, sizeof state) != 0) {  // NOLINT: bits, as -0.0 and NaN are states, too
    last_ = state;
    last_tensor_ = state_tensor(state);
  }
  forward.number = static_cast<std::int64_t>(frame.sample);
  forward.time_ns = frame.time_ns;
  forward.thread = frame.thread;
  forward.random_state = last_tensor_;
  forwards_[frame.sample] = {std::move(forward), inputs};
  return {};
}

std::string RingForwards::take_input(const Frame& frame) {
  const auto found = forwards_.find(frame.sample);
  if (found == forwards_.end()) return {};  // what came before it was overwritten
  KeptForward& forward = found->second.first;
  if (frame.slot != forward.inputs.size()) return "an input of a forward is missing";
  forward.inputs.emplace_back();
  forward.why_not.emplace_back();
  forward.strides.emplace_back();
  if (frame.without_data) {
    forward.why_not.back() = std::string(frame.text);
    return {};
  }
  if (frames::element_bytes(frame.dtype) == 0)
    return c10::str("an input has the dtype ", int{frame.dtype}, ", which this version does not know");
  std::istringstream words{std::string(frame.text)};
  std::string word;
  if (words >> word && word == "strides") {
    for (std::int64_t stride = 0; words >> stride;) forward.strides.back().push_back(stride);
    if (forward.strides.back().size() != frame.dims) forward.strides.back().clear();
  }
  const at::IntArrayRef sizes(frame.sizes.data(), frame.dims);
  at::Tensor tensor = at::empty(sizes, at::TensorOptions().dtype(static_cast<at::ScalarType>(frame.dtype)));
  if (tensor.nbytes() != frame.data_bytes) return "an input is not as long as its sizes say";
  if (frame.data_bytes != 0) std::memcpy(tensor.data_ptr(), frame.data, frame.data_bytes);
  forward.inputs.back() = std::move(tensor);
  return {};
}

std::string RingForwards::take(const Frame& frame) {
  if (frame.kind == Kind::forward_pre) return take_input(frame);
  if (frame.kind != Kind::other) return {};
  if (frame.result == kStateFrame) return take_state(frame);
  if (frame.result == kWindowFrame) {
    content_.windows.emplace_back(static_cast<const char*>(frame.data), frame.data_bytes);
  } else if (frame.result == kReturnedFrame) {
    const auto found = forwards_.find(frame.sample);
    if (found == forwards_.end()) return {};
    ReturnedNumbers numbers;
    if (frame.data_bytes != sizeof numbers) return "the outcome of a forward lacks something";
    std::memcpy(&numbers, frame.data, sizeof numbers);
    KeptForward& forward = found->second.first;
    forward.returned = true;
    forward.outcome = {static_cast<std::uint64_t>(numbers.digest),
                       numbers.nan,
                       numbers.inf,
                       numbers.nanoseconds,
                       numbers.sum,
                       numbers.magnitude};
  }
  return {};
}

void RingForwards::finish() {
  for (auto& [number, forward] : forwards_) {
    if (static_cast<std::int64_t>(forward.first.inputs.size()) == forward.second)
      content_.forwards.push_back(std::move(forward.first));
  }
}

}  // namespace

void read_ring_frames(const char* data, std::size_t size, std::uint64_t position, std::uint64_t capacity,
                      RingContent& content) {
  const base::RecordingMode quiet;
  RingForwards forwards(content);
  std::size_t at = 0;
  while (at < size && content.damage.empty()) {
    std::uint32_t magic = 0;
    if (size - at >= sizeof magic) std::memcpy(&magic, data + at, sizeof magic);
    if (magic == frames::kPaddingMagic) {
      at += std::min<std::uint64_t>(size - at, capacity - (position + at) % capacity);
      continue;
    }
    try {
      const std::uint64_t length = frames::frame_length(data + at, size - at);
      content.damage = forwards.take(frames::read_frame(data + at, size - at));
      at += length;
    } catch (const c10::Error& error) {
      content.damage = error.what_without_backtrace();
    }
    if (!content.damage.empty())
      content.damage = c10::str("at position ", position + at, ": ", content.damage);
  }
  forwards.finish();
}

RingContent read_ring(const std::string& bytes, const std::string& path) {
  using frames::ArenaHead;
  const auto bad = [&](const std::string& why) {
    TORCH_CHECK_VALUE(false, "views::monitor: \"", path, "\" is no ring of a monitor: ", why, ".");
  };
  if (bytes.size() <= frames::kDataOffset) bad("it is too short");
  const auto number = [&](std::size_t offset) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  };
  std::uint32_t begin[2];
  std::memcpy(begin, bytes.data(), sizeof begin);
  if (begin[0] != frames::kArenaMagic) bad("its first four bytes are not \"TTA1\"");
  RingContent content;
  content.damage = base::unreadable_format(begin[1], frames::kVersion);
  content.newer = !content.damage.empty();
  if (content.newer) return content;
  const char* const about = bytes.data() + kRingAbout;
  // Strings end where they say: a crash may have written anything here, too.
  const json::Json document = json::parse_object(std::string(about, ::strnlen(about, kRingAboutBytes)));
  if (!document.is_object()) bad("it does not say whose it is");
  const json::Reader ring(document);
  std::int64_t format = 0;
  if (!document.contains("format") || !json::read(document["format"], format))
    bad("it does not say its format");
  content.damage = base::unreadable_format(format, kRingFormat);
  content.newer = !content.damage.empty();
  if (content.newer) return content;
  for (const auto& [name, field] : {std::pair("model", &content.model),
                                    {"incidents", &content.incidents},
                                    {"torchtap", &content.torchtap},
                                    {"libtorch", &content.libtorch}})
    *field = ring.get<std::string>(name, "");
  content.pid = ring.get("pid", content.pid);

  const std::uint64_t capacity = number(offsetof(ArenaHead, most));
  const std::uint64_t head = number(offsetof(ArenaHead, head));
  const std::uint64_t oldest = number(frames::kPage + offsetof(frames::Ledger, position));
  const std::uint64_t there = bytes.size() - frames::kDataOffset;
  if (capacity == 0 || capacity % frames::kAlign != 0 || capacity > there || head < oldest ||
      head - oldest > capacity || oldest % frames::kAlign != 0 || head % frames::kAlign != 0) {
    content.damage = c10::str("it says that ", head - oldest, " bytes from position ", oldest,
                              " on are in it, of ", capacity, ", and has ", there);
    return content;
  }
  std::string linear;
  linear.reserve(head - oldest);
  for (std::uint64_t at = oldest; at < head;) {
    const std::uint64_t offset = at % capacity;
    const std::uint64_t piece = std::min(head - at, capacity - offset);
    linear.append(bytes, frames::kDataOffset + offset, piece);
    at += piece;
  }
  read_ring_frames(linear.data(), linear.size(), oldest, capacity, content);
  return content;
}

std::vector<std::string> ring_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("ring-", 0) == 0) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<KeptForward> forwards_in(const char* memory) {
  const auto& head = *reinterpret_cast<const frames::ArenaHead*>(memory);
  const auto& ledger = *reinterpret_cast<const frames::Ledger*>(memory + frames::kPage);
  if (head.magic != frames::kArenaMagic || head.most == 0) return {};
  const std::uint64_t capacity = head.most, begin = ledger.position, end = head.head;
  std::string linear;
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t piece = std::min(end - at, capacity - at % capacity);
    linear.append(memory + frames::kDataOffset + at % capacity, piece);
    at += piece;
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  // What is older by now was overwritten, or may have been.
  const std::uint64_t oldest = std::clamp<std::uint64_t>(ledger.position, begin, std::max(begin, end));
  RingContent content;
  if (oldest < end)
    read_ring_frames(linear.data() + (oldest - begin), end - oldest, oldest, capacity, content);
  return std::move(content.forwards);
}

}  // namespace torchtap::views::monitor::detail
