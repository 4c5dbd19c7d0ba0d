// Copies inputs into a ring in a mapped file.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>

#include <torchtap/base/error.hpp>
#include <torchtap/base/process.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/json/json.hpp>
#include <torchtap/version.hpp>
#include <torchtap/views/frames/arena.hpp>
#include <torchtap/views/frames/frame.hpp>
#include <torchtap/views/monitor/detail/flight_recorder.hpp>
#include <torchtap/views/monitor/detail/folders.hpp>
#include <torchtap/views/monitor/detail/random_state.hpp>
#include <torchtap/views/monitor/detail/read_ring.hpp>

namespace torchtap::views::monitor::detail {
namespace {

using frames::Arena;
using frames::Descriptor;
using frames::Frame;
using frames::Kind;

std::uint64_t now_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

/// From 0, in the order in which threads first ask.
std::uint32_t thread_number() noexcept {
  static std::atomic<std::uint32_t> threads{0};
  thread_local const std::uint32_t mine = threads.fetch_add(1, std::memory_order_relaxed);
  return mine;
}

using InputText = std::array<char, 200>;

/// Why an input cannot be kept; null if it can.
const char* why_not_kept(const at::Tensor& input) noexcept {
  if (!input.defined()) return "undefined";
  if (!input.is_cpu()) return "on a device";
  if (input.layout() != at::kStrided) return "sparse";
  if (frames::element_bytes(static_cast<std::uint8_t>(input.scalar_type())) == 0)
    return "of an unknown dtype";
  if (!input.has_storage()) return "without storage";
  if (input.dim() > static_cast<std::int64_t>(frames::kMostDims)) return "of more than 8 dimensions";
  return nullptr;
}

bool lies_as_kept(const at::Tensor& input) noexcept {
  return input.is_contiguous() && !input.is_conj() && !input.is_neg();
}

/// The frame of an input. `text` has to live as long as it.
Frame frame_of(const at::Tensor& input, bool kept, InputText& text) noexcept {
  Frame frame;
  frame.kind = Kind::forward_pre;
  const char* const why = kept ? why_not_kept(input) : "left out";
  if (why != nullptr) {
    frame.without_data = true;
    frame.text = why;
    return frame;
  }
  frame.dtype = static_cast<std::uint8_t>(input.scalar_type());
  frame.dims = static_cast<std::uint8_t>(input.dim());
  std::copy(input.sizes().begin(), input.sizes().end(), frame.sizes.begin());
  frame.data_bytes = input.nbytes();
  if (input.is_contiguous()) return frame;
  int used = std::snprintf(text.data(), text.size(), "strides");
  for (const std::int64_t stride : input.strides())
    used += std::snprintf(text.data() + used, text.size() - static_cast<std::size_t>(used), " %lld",
                          static_cast<long long>(stride));
  frame.text = std::string_view(text.data(), static_cast<std::size_t>(used));
  return frame;
}

/// The bytes of a tensor, row by row.
void copy_input(const at::Tensor& input, char* to) noexcept {
  if (lies_as_kept(input)) {
    std::memcpy(to, input.data_ptr(), input.nbytes());
    return;
  }
  try {
    const base::RecordingMode quiet;
    at::from_blob(to, input.sizes(), input.options().requires_grad(false)).copy_(input.detach());
  } catch (const std::exception&) {  // there is no memory
    std::memset(to, 0, input.nbytes());
  }
}

/// The header of the file.
std::string about(const std::string& incidents, const std::string& model) {
  return json::text({{"format", kRingFormat},
                     {"model", model},
                     {"incidents", incidents},
                     {"torchtap", TORCHTAP_VERSION},
                     {"libtorch", TORCH_VERSION},
                     {"pid", ::getpid()}});
}

/// A new file of this process in `folder`, which is locked. It has no name that others look at yet.
Descriptor new_ring(const std::string& folder, std::string& path) {
  static std::atomic<int> number{0};
  for (;;) {
    path = c10::str(folder, "/ring-", ::getpid(), "-", number.fetch_add(1));
    const std::string beside = folder + "/." + path.substr(folder.size() + 1) + ".new";
    std::optional<Descriptor> made;  // closed without `no_forks`, which closing needs
    {
      const base::NoForks no_forks;
      const int fd = ::open(beside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
      if (fd < 0 && errno == EEXIST) continue;
      if (fd < 0) frames::system_error("views::monitor", "make \"" + beside + "\"", errno);
      made.emplace(base::KeptHere(fd, no_forks));
      ::flock(fd, LOCK_EX | LOCK_NB);
    }
    Descriptor file = *std::move(made);
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return file;
    ::unlink(beside.c_str());  // a ring that a former process of this number left
  }
}

std::string beside(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return path.substr(0, slash + 1) + "." + path.substr(slash + 1) + ".new";
}

std::uint64_t capacity_of(std::int64_t bytes) noexcept {
  return (static_cast<std::uint64_t>(bytes) + frames::kPage - 1) / frames::kPage * frames::kPage;
}

void check_size(std::int64_t bytes) {
  TORCH_CHECK_VALUE(bytes >= (1 << 16) && static_cast<std::uint64_t>(bytes) <= kMostRing,
                    "views::monitor::Monitor: a ring has 64 KiB to 16 GiB, not ", bytes, " bytes.");
}

void check_about(const std::string& text) {
  TORCH_CHECK_VALUE(text.size() < kRingAboutBytes,
                    "views::monitor::Monitor: the name of the model and the path of its incidents take ",
                    text.size(), " bytes; a ring has room for ", kRingAboutBytes - 1, ".");
}

}  // namespace

struct FlightRecorder::State {
  State(const std::string& folder, std::int64_t bytes, const std::string& incidents, const std::string& model,
        bool keep);
  State(char* memory, std::int64_t bytes, const std::string& model, bool keep);
  ~State();
  /// Gives out room for frames of `bytes` bytes; null if there is none.
  char* reserve(std::uint64_t bytes) noexcept;
  void commit(const char* room) noexcept {
    const std::lock_guard lock(mutex);
    arena->commit(room, 0);
  }
  /// Writes one frame whose data are these.
  void put(Frame frame, const char* result, const void* data, std::uint64_t bytes) noexcept;

  base::MadeHere made_here;
  std::string path;
  std::string pointer_path;  // in the folder of incidents; empty if the ring lies there
  Descriptor pointer;
  std::optional<Arena> arena;
  bool inputs;
  std::atomic<std::int64_t> skipped{0};
  mutable std::mutex mutex;  // of the members below, and of the arena
  std::uint64_t oldest = 0;  // position of the oldest frame that is whole
};

FlightRecorder::State::State(const std::string& folder, std::int64_t bytes, const std::string& incidents,
                             const std::string& model, bool keep)
    : inputs(keep) {
  check_size(bytes);
  const std::string real_incidents = private_folder(incidents);
  const std::string real_folder = private_folder(folder);
  const std::string text = about(real_incidents, model);
  check_about(text);
  Descriptor file = new_ring(real_folder, path);
  try {
    arena.emplace(std::move(file), capacity_of(bytes));
    std::memcpy(arena->pages() + kRingAbout, text.c_str(), text.size() + 1);
    if (::rename(beside(path).c_str(), path.c_str()) != 0)
      frames::system_error("views::monitor", "make \"" + path + "\"", errno);
    // So that the ring can be found after a crash by the folder of incidents only.
    if (real_folder != real_incidents) {
      pointer = new_ring(real_incidents, pointer_path);
      const std::string made = beside(pointer_path);
      if (::write(pointer.get(), path.data(), path.size()) != static_cast<ssize_t>(path.size()) ||
          ::rename(made.c_str(), pointer_path.c_str()) != 0) {
        const int error = errno;
        ::unlink(made.c_str());
        frames::system_error("views::monitor", "make \"" + pointer_path + "\"", error);
      }
    }
  } catch (...) {
    ::unlink(beside(path).c_str());
    ::unlink(path.c_str());
    throw;
  }
}

FlightRecorder::State::State(char* memory, std::int64_t bytes, const std::string& model, bool keep)
    : inputs(keep) {
  check_size(bytes);
  const std::string text = about("", model);
  check_about(text);
  arena.emplace(memory, capacity_of(bytes));
  std::memcpy(arena->pages() + kRingAbout, text.c_str(), text.size() + 1);
}

FlightRecorder::State::~State() {
  if (!made_here || path.empty()) return;
  ::unlink(path.c_str());
  if (!pointer_path.empty()) ::unlink(pointer_path.c_str());
}

char* FlightRecorder::State::reserve(std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex);
  const std::uint64_t capacity = arena->capacity();
  const std::uint64_t end = arena->end_after(bytes);
  // Neither more than half of the ring, nor over what other threads are copying at this moment.
  if (bytes > capacity / 2 || end > arena->head() + capacity) return nullptr;
  const std::uint64_t give_up = end > capacity ? end - capacity : 0;
  std::uint64_t at = oldest;
  while (at < give_up) {
    frames::Header header;
    const char* const here = arena->at(at);
    const std::uint64_t left = capacity - at % capacity;
    std::memcpy(&header, here, std::min<std::uint64_t>(left, sizeof header));
    if (header.magic == frames::kPaddingMagic) {
      at += left;
    } else if (header.magic == frames::kFrameMagic && left >= sizeof header &&
               header.frame_bytes >= sizeof header && header.frame_bytes <= left &&
               header.frame_bytes % frames::kAlign == 0) {
      at += header.frame_bytes;
    } else {
      at = arena->head();  // the program wrote over the ring: nothing in it can be believed
    }
  }
  oldest = std::min(at, arena->head());
  arena->ledger(0).position.store(oldest, std::memory_order_seq_cst);
  return static_cast<char*>(arena->reserve(bytes));
}

void FlightRecorder::State::put(Frame frame, const char* result, const void* data,
                                std::uint64_t bytes) noexcept {
  frame.kind = Kind::other;
  frame.result = result;
  frame.time_ns = now_ns();
  frame.thread = thread_number();
  frame.dims = 1;
  frame.sizes[0] = static_cast<std::int64_t>(bytes);
  frame.data_bytes = bytes;
  char* const room = reserve(frames::frame_bytes(frame));
  if (room == nullptr) return;
  frames::write_header(frame, room);
  std::memcpy(room + frames::header_bytes(frame), data, bytes);
  commit(room);
}

FlightRecorder::FlightRecorder(const std::string& folder, std::int64_t bytes, const std::string& incidents,
                               const std::string& model, bool inputs)
    : state_(std::make_unique<State>(folder, bytes, incidents, model, inputs)) {}
FlightRecorder::FlightRecorder(char* memory, std::int64_t bytes, const std::string& model, bool inputs)
    : state_(std::make_unique<State>(memory, bytes, model, inputs)) {}
FlightRecorder::~FlightRecorder() = default;

std::uint64_t FlightRecorder::room_for(std::int64_t bytes) noexcept {
  return frames::kDataOffset + capacity_of(bytes);
}

bool FlightRecorder::begin(std::int64_t number, const hooks::Tensors& inputs, bool training) noexcept {
  if (!state_->made_here) return false;
  RandomState random;
  take_random_state(random);
  std::array<char, 128> words;
  const int length = std::snprintf(
      words.data(), words.size(), "training %d grad %d inference %d threads %d inputs %lld", training ? 1 : 0,
      c10::GradMode::is_enabled() ? 1 : 0, c10::InferenceMode::is_enabled() ? 1 : 0, at::get_num_threads(),
      static_cast<long long>(inputs.size()));
  Frame state;
  state.kind = Kind::other;
  state.result = kStateFrame;
  state.text = std::string_view(words.data(), static_cast<std::size_t>(length));
  state.sample = static_cast<std::uint64_t>(number);
  state.time_ns = now_ns();
  state.thread = thread_number();
  state.dims = 1;
  state.sizes[0] = sizeof random;
  state.data_bytes = sizeof random;
  InputText text;
  std::uint64_t bytes = frames::frame_bytes(state);
  for (std::int64_t i = 0; i < inputs.size(); ++i)
    bytes += frames::frame_bytes(frame_of(inputs[i], state_->inputs, text));
  char* const room = state_->reserve(bytes);
  if (room == nullptr) {
    state_->skipped.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  frames::write_header(state, room);
  std::memcpy(room + frames::header_bytes(state), &random, sizeof random);
  char* at = room + frames::frame_bytes(state);
  for (std::int64_t i = 0; i < inputs.size(); ++i) {
    Frame frame = frame_of(inputs[i], state_->inputs, text);
    frame.sample = state.sample;
    frame.time_ns = state.time_ns;
    frame.thread = state.thread;
    frame.slot = static_cast<std::uint16_t>(i);
    frames::write_header(frame, at);
    if (frame.data_bytes != 0) copy_input(inputs[i], at + frames::header_bytes(frame));
    at += frames::frame_bytes(frame);
  }
  state_->commit(room);
  return true;
}

void FlightRecorder::end(std::int64_t number, const Outcome& outcome) noexcept {
  if (!state_->made_here) return;
  const ReturnedNumbers numbers{static_cast<std::int64_t>(outcome.digest),
                                outcome.nan,
                                outcome.inf,
                                outcome.nanoseconds,
                                outcome.sum,
                                outcome.magnitude};
  Frame frame;
  frame.sample = static_cast<std::uint64_t>(number);
  state_->put(frame, kReturnedFrame, &numbers, sizeof numbers);
}

void FlightRecorder::note_window(const std::string& text) noexcept {
  if (state_->made_here) state_->put({}, kWindowFrame, text.data(), text.size());
}

std::vector<KeptForward> FlightRecorder::forwards() const {
  if (!state_->made_here) return {};
  // Piece by piece, so that no forward waits for long. Records that are overwritten meanwhile are left out.
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
  const std::uint64_t capacity = state_->arena->capacity();
  std::uint64_t begin = 0, end = 0;
  {
    const std::lock_guard lock(state_->mutex);
    begin = state_->oldest;
    end = state_->arena->head();
  }
  std::string linear(end - begin, '\0');
  for (std::uint64_t at = end; at > begin;) {  // the newest first: they stay longest
    const std::lock_guard lock(state_->mutex);
    const std::uint64_t least = std::max(begin, state_->oldest);
    if (at <= least) break;
    const std::uint64_t piece = std::min({kPiece, at - least, (at - 1) % capacity + 1});
    std::memcpy(linear.data() + (at - piece - begin), state_->arena->at(at - piece), piece);
    at -= piece;
  }
  std::uint64_t oldest = 0;
  {
    const std::lock_guard lock(state_->mutex);
    oldest = std::clamp(state_->oldest, begin, end);
  }
  RingContent content;
  read_ring_frames(linear.data() + (oldest - begin), end - oldest, oldest, capacity, content);
  return std::move(content.forwards);
}

std::int64_t FlightRecorder::skipped() const noexcept {
  return state_->skipped.load(std::memory_order_relaxed);
}

const std::string& FlightRecorder::file() const noexcept {
  return state_->path;
}

}  // namespace torchtap::views::monitor::detail
