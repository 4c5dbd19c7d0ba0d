// Reads frames from a descriptor, and checks every length before using it.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <limits>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/glob.hpp>
#include <torchtap/views/stream/detail/client.hpp>
#include <torchtap/views/stream/detail/piped.hpp>

namespace torchtap::views::stream::detail {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t kFirst = 16;     // bytes that have the length of a frame
constexpr std::uint64_t kPiece = 65536;  // memory grows with the bytes that come, whatever a header announces

}  // namespace

PipedFrames::PipedFrames(int descriptor, Subscription subscription)
    : descriptor_(descriptor), subscription_(std::move(subscription)) {
  check(kReader, subscription_);
  TORCH_CHECK_VALUE(
      ::isatty(descriptor_) == 0, kReader,
      ": a terminal sends no frames; expected a pipe or a file: torchtap tail NAME --frames | …");
  fill(kFirst, Moment::max());
  TORCH_CHECK_VALUE(filled_ != 0, kReader,
                    ": no frames came; expected what torchtap tail NAME --frames writes. If that runs on "
                    "another machine, see what it said there.");
  frame_length(bytes_.data(), filled_);  // throws if the bytes begin no frame
}

/// Takes bytes until there are `size`. False at the deadline or at the end; then `ended_` is set.
bool PipedFrames::fill(std::uint64_t size, Moment deadline) {
  while (filled_ < size) {
    const auto now = Clock::now();
    const auto left = deadline == Moment::max()
                          ? std::chrono::milliseconds(1000)
                          : std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
    pollfd polled{descriptor_, POLLIN, 0};
    const int ready = ::poll(&polled, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1000)));
    if (ready <= 0) {  // also if a signal came
      if (now >= deadline) return false;
      continue;
    }
    const std::uint64_t room = std::min(size - filled_, std::max(kPiece, filled_));
    if (bytes_.size() < filled_ + room) bytes_.resize(filled_ + room);
    const ssize_t got = ::read(descriptor_, bytes_.data() + filled_, room);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) {
      ended_ = true;
      if (!last_)
        broken_ =
            "the frames broke off: the program that sent them was killed, or the connection to it was lost";
      return false;
    }
    filled_ += static_cast<std::uint64_t>(got);
  }
  return true;
}

/// Lines of a key, a tab and a value, in the first and the last frame.
void PipedFrames::obey(std::string_view lines) {
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos) continue;
    const std::string_view key = line.substr(0, tab);
    const std::string value(line.substr(tab + 1));
    const auto number = std::strtoull(value.c_str(), nullptr, 10);
    if (key == "process") process_ = static_cast<std::int64_t>(number);
    if (key == "missed") missed_ = std::max<std::uint64_t>(missed_, number);
    if (key == "end") last_ = true;
    if (key == "end") broken_ = value;
  }
}

/// The same choice as the publisher's, among the frames that come.
bool PipedFrames::wanted(const Frame& frame) {
  const auto& names = subscription_.names();
  const auto& kinds = subscription_.kinds();
  const std::string path(frame.path);
  const auto fits = [&](const std::string& glob) { return base::matches_glob(glob, path); };
  if (!names.empty() && std::none_of(names.begin(), names.end(), fits)) return false;
  if (!kinds.empty() && std::find(kinds.begin(), kinds.end(), frame.kind) == kinds.end()) return false;
  if (frame.sample % static_cast<std::uint64_t>(subscription_.every()) != 0) return false;
  if (subscription_.hz() == 0) return true;
  const std::string source =
      c10::str(path, '\t', static_cast<int>(frame.kind), '\t', frame.slot, '\t', std::string(frame.result));
  const auto [last, first] = last_ns_.try_emplace(source, frame.time_ns);
  if (!first && static_cast<double>(frame.time_ns - last->second) * subscription_.hz() < 1e9) return false;
  last->second = frame.time_ns;
  return true;
}

std::optional<Frame> PipedFrames::take(Moment deadline) {
  while (fill(kFirst, deadline)) {
    const std::uint64_t length = frame_length(bytes_.data(), kFirst);
    if (!fill(length, deadline)) break;
    const Frame frame = read_frame(bytes_.data(), length);
    TORCH_CHECK_VALUE(!frame.has_checksum || base::crc32(0, frame.data, frame.data_bytes) == frame.checksum,
                      kReader, ": the data of \"", std::string(frame.path), "\" arrived damaged.");
    filled_ = 0;
    if (frame.kind == Kind::header) {
      obey(frame.text);
      continue;
    }
    missed_ += frame.missed;
    if (!wanted(frame)) continue;
    ++received_;
    return frame;
  }
  return std::nullopt;
}

std::optional<Frame> PipedFrames::next(std::chrono::nanoseconds timeout) {
  TORCH_CHECK_VALUE(
      made_here_, kReader,
      "::next: the process was forked, and the reader belongs to the parent; both would get parts.");
  if (ended_) return std::nullopt;
  try {
    return take(deadline_after(timeout));
  } catch (const std::exception&) {  // where the next frame begins is not known any more
    ended_ = true;
    broken_ = "something that is no frame came";
    throw;
  }
}

void PipedFrames::subscribe(const Subscription& subscription) {
  check("views::stream::Reader::subscribe", subscription);
  subscription_ = subscription;
}

}  // namespace torchtap::views::stream::detail
