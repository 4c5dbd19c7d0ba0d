// Event files by hand: records with checksums, around three messages of protobuf
// (tensorflow/core/util/event.proto and framework/summary.proto), whose fields are numbered here as they are
// there.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/disk.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/little_endian.hpp>
#include <torchtap/base/process.hpp>
#include <torchtap/base/utf8.hpp>
#include <torchtap/views/tensorboard/event_file.hpp>

namespace torchtap::views::tensorboard {
namespace {

constexpr char kCall[] = "views::tensorboard::EventFile";
constexpr std::size_t kBuffered = std::size_t{1} << 16;

template <class T>
std::string bytes_of(T number) {
  std::string bytes;
  base::put_number(bytes, number);
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  base::put_varint(bytes, value);
  return bytes;
}

/// How protobuf writes the value of a field.
enum class Wire { varint = 0, eight_bytes = 1, length = 2, four_bytes = 5 };

std::string key(unsigned field, Wire wire) {
  return varint(field << 3 | static_cast<unsigned>(wire));
}

std::string real(unsigned field, double value) {
  return key(field, Wire::eight_bytes) + bytes_of(value);
}

/// A text, a message, or packed numbers.
std::string block(unsigned field, const std::string& bytes) {
  return key(field, Wire::length) + varint(bytes.size()) + bytes;
}

std::string packed(unsigned field, const std::vector<double>& values) {
  std::string bytes;
  for (const double value : values) bytes += bytes_of(value);
  return block(field, bytes);
}

std::string message(const HistogramValue& value) {
  return real(1, value.min) + real(2, value.max) + real(3, value.num) + real(4, value.sum) +
         real(5, value.sum_squares) + packed(6, value.limits) + packed(7, value.counts);
}

std::string masked_checksum(const std::string& bytes) {
  const std::uint32_t crc = base::crc32c(0, bytes.data(), bytes.size());
  return bytes_of(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

std::string record(const std::string& bytes) {
  const std::string length = bytes_of(static_cast<std::uint64_t>(bytes.size()));
  return length + masked_checksum(length) + bytes + masked_checksum(bytes);
}

std::string event(double seconds, std::int64_t step, const std::string& what) {
  return record(real(1, seconds) + key(2, Wire::varint) + varint(static_cast<std::uint64_t>(step)) + what);
}

/// A summary of one value, with the plugin that shows it.
std::string summary(const std::string& tag, const std::string& plugin, const std::string& value) {
  const std::string metadata = block(1, block(1, plugin));
  return block(5, block(1, block(1, base::utf8_text(tag)) + block(9, metadata) + value));
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  std::string host = name;
  std::replace(host.begin(), host.end(), '/', '_');
  return host;
}

}  // namespace

HistogramValue histogram_of(const std::vector<double>& low, const std::vector<double>& high,
                            const std::vector<double>& counts, double zeros) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  TORCH_CHECK_VALUE(low.size() == high.size() && low.size() == counts.size(),
                    "views::tensorboard::histogram_of: ", low.size(), " lower ends, ", high.size(),
                    " upper ends and ", counts.size(), " counts are not of the same bins.");
  HistogramValue value;
  const auto add = [&](double from, double to, double count) {
    // Of the first bucket TensorBoard knows no lower end, so an empty one comes before it.
    if (value.limits.empty() || value.limits.back() != from) {
      value.limits.push_back(from);
      value.counts.push_back(0);
    }
    value.limits.push_back(to);
    value.counts.push_back(count);
    value.num += count;
  };
  // A bin of negative numbers has its upper end and not its lower one, so its limits are the next numbers.
  const auto next = [](double end) { return end < 0 ? std::nextafter(end, kInfinity) : end; };
  bool has_zeros = zeros == 0;
  const auto add_zeros = [&](double until) {
    if (std::exchange(has_zeros, true)) return;
    // A bin that begins or ends at zero has the smallest numbers, and not zero.
    const double from = value.limits.empty() ? 0 : value.limits.back();
    add(from, until > 0 ? until : std::numeric_limits<double>::denorm_min(), zeros);
  };
  for (std::size_t i = 0; i < low.size(); ++i) {
    if (low[i] >= 0) add_zeros(low[i]);
    const bool after_zeros = low[i] == 0 && zeros != 0;
    add(after_zeros ? std::numeric_limits<double>::denorm_min() : next(low[i]), next(high[i]), counts[i]);
  }
  add_zeros(0);
  if (value.limits.empty()) {  // TensorBoard wants a bucket of nothing
    value.limits.push_back(std::numeric_limits<double>::max());
    value.counts.push_back(0);
  }
  return value;
}

struct EventFile::State {
  std::string file, buffer;
  base::Descriptor fd;
  base::MadeHere made_here;

  void append(const std::string& bytes) {
    buffer += bytes;
    if (buffer.size() >= kBuffered) flush();
  }
  void flush() {
    std::size_t at = 0;
    while (at < buffer.size()) {
      const ::ssize_t written = ::write(fd.get(), buffer.data() + at, buffer.size() - at);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        const int error = errno;
        buffer.erase(0, at);
        base::io_error(kCall, "write", file, error);
      }
      at += static_cast<std::size_t>(written);
    }
    buffer.clear();
  }
};

EventFile::EventFile(const std::string& folder) : state_(std::make_unique<State>()) {
  static std::atomic<int> number{0};
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) base::io_error(kCall, "create", folder, error.value());
  const double seconds = now();
  char time[32];
  std::snprintf(time, sizeof time, "%010lld", static_cast<long long>(seconds));
  state_->file =
      (std::filesystem::path(folder) / (std::string("events.out.tfevents.") + time + "." + host_name() + "." +
                                        std::to_string(::getpid()) + "." + std::to_string(number++)))
          .string();
  state_->fd = base::Descriptor(
      ::open(state_->file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!state_->fd.valid()) base::io_error(kCall, "create", state_->file, errno);
  // The first event has no step.
  state_->append(record(real(1, seconds) + block(3, "brain.Event:2")));
  state_->flush();
}

EventFile::EventFile(EventFile&&) noexcept = default;

EventFile::~EventFile() {
  if (state_ == nullptr || !state_->made_here) return;
  try {
    state_->flush();
  } catch (const c10::Error&) {  // `flush` says so to whom it matters
  }
}

void EventFile::scalar(const std::string& tag, std::int64_t step, double value, double seconds) {
  const auto single = static_cast<float>(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &single, sizeof bits);
  state_->append(event(seconds == 0 ? now() : seconds, step,
                       summary(tag, "scalars", key(2, Wire::four_bytes) + bytes_of(bits))));
}

void EventFile::histogram(const std::string& tag, std::int64_t step, const HistogramValue& value,
                          double seconds) {
  TORCH_CHECK_VALUE(value.limits.size() == value.counts.size(), kCall, "::histogram: ", value.limits.size(),
                    " limits and ", value.counts.size(),
                    " counts; each bucket has one of both. Take tensorboard::histogram_of.");
  state_->append(
      event(seconds == 0 ? now() : seconds, step, summary(tag, "histograms", block(5, message(value)))));
}

void EventFile::flush() {
  state_->flush();
}

const std::string& EventFile::file() const noexcept {
  return state_->file;
}

}  // namespace torchtap::views::tensorboard
