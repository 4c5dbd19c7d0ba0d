// Writes what a process says and records to the area.
#include "publishing.hpp"

#include <ATen/Functions.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <thread>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/strided.hpp>
#include <torchtap/core/archive.hpp>
#include <torchtap/storage/file.hpp>

#include "kept_samples.hpp"

namespace torchtap::tools::preload {
namespace {

constexpr std::int64_t kMostSavedUp = 50'000'000;  // ns
constexpr std::int64_t kShare = 100;
constexpr std::size_t kChunk = std::size_t{2} << 20;
constexpr std::int64_t kMostBehind = std::int64_t{256} << 20;  // bytes

std::int64_t now() noexcept {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

/// Of this thread: where processors are scarce, a pause is no cost.
std::int64_t cpu() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

std::atomic<Publishing*> Publishing::here_{nullptr};

void copy_bytes(const at::Tensor& tensor, char* to) {
  if (tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) {
    std::memcpy(to, tensor.data_ptr(), tensor.nbytes());
  } else {
    at::from_blob(to, tensor.sizes(), at::TensorOptions(tensor.scalar_type())).copy_(tensor);
  }
}

Publishing::Publishing() : area_(torchtap_preload_area()), saved_up_(kMostSavedUp), saved_at_(now()) {
  const bool entered = area_.page != nullptr && area_.page->process == ::getpid();
  if (area_.header == nullptr || (!entered && !area_.enter()))
    throw std::runtime_error("the memory of the launcher cannot be reached.");
  page_ = area_.page;
  number_ = area_.number;
  page_->stage = Stage::agent;
}

void Publishing::begin() {
  here_ = nullptr;
  here_ = new Publishing();
}

bool Publishing::due() const noexcept {
  const std::int64_t next = next_.load(std::memory_order_relaxed);
  return next == 0 || ends_ || now() >= next;
}

void Publishing::results(const std::function<void()>& function, std::atomic<std::uint64_t>* calls,
                         bool last) {
  std::unique_lock lock(result_mutex_, std::defer_lock);
  if (!(ends_ || last ? lock.try_lock_for(std::chrono::seconds(1)) : lock.try_lock())) return;
  const std::int64_t begin = now(), begin_cpu = cpu();
  const std::uint64_t generation = page_->generation + 1;
  const std::uint64_t has = calls == nullptr ? page_->begun.load() : calls->load();
  function();
  page_->published[generation % 2] = calls == nullptr ? has : page_->published[(generation - 1) % 2] + has;
  page_->generation.store(generation, std::memory_order_release);
  if (calls != nullptr) *calls -= has;
  const std::int64_t end = now(), cost = cpu() - begin_cpu;
  saved_up_ = std::min(saved_up_ + (begin - saved_at_) / kShare, kMostSavedUp) - cost;
  saved_at_ = begin;
  // Another one costs as much.
  next_ = saved_up_ >= cost ? 0 : end + (cost - saved_up_) * kShare;
}

void Publishing::part(std::size_t index, const std::string& text) {
  while (parts_.size() <= index) {
    const std::lock_guard lock(area_mutex_);
    std::uint64_t at = 0;
    char* const room = area_.take(sizeof(Parts), at);
    if (room == nullptr) throw std::runtime_error("there is no more memory to share with the launcher.");
    auto* const fresh = new (room) Parts;
    (last_parts_ == nullptr ? page_->first_parts : last_parts_->next).store(at, std::memory_order_release);
    last_parts_ = fresh;
    for (Published& one : fresh->parts) parts_.emplace_back(&one, std::make_unique<Rooms>());
  }
  put({parts_[index].first, parts_[index].second.get()}, text, page_->generation);
}

char* Publishing::shared(std::uint64_t bytes, std::uint64_t& at) {
  const std::lock_guard lock(area_mutex_);
  return area_.take(bytes, at);
}

void Publishing::report(const Report& report, bool last) {
  const std::lock_guard lock(report_mutex_);
  if (std::string text = text_of(report); text != reported_)
    put({&page_->report, &report_rooms_}, reported_ = std::move(text), UINT64_MAX);
  if (last) page_->stage = Stage::ended;
}

Report Publishing::reported() const {
  const std::lock_guard lock(report_mutex_);
  return reported_.empty() ? Report() : read_from<Report>(reported_);
}

/// Writes the half that nobody reads: not the one of generation `last`, or of the last before it.
void Publishing::put(const Place& place, const std::string& text, std::uint64_t last) {
  Published& published = *place.published;
  const Published::Half* const whole = published.last(last);
  const std::size_t index = whole == &published.halves[0] ? 1 : 0;
  Published::Half& half = published.halves[index];
  char*& room = place.rooms->of[index];
  // A launcher that is slow may be reading this half: it has to see that before it sees what is written now.
  half.generation.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  if (half.room < text.size()) {
    const std::lock_guard lock(area_mutex_);
    if (room != nullptr) Area::give_back(room, half.room);
    half.room = text.size() + text.size() / 2;
    room = area_.take(half.room, half.at);
    if (room == nullptr) {
      half.room = 0;
      throw std::runtime_error("there is no more memory to share with the launcher.");
    }
  }
  std::memcpy(room, text.data(), text.size());
  half.size = text.size();
  const std::uint64_t before = last != UINT64_MAX ? last : whole == nullptr ? 0 : whole->generation.load();
  half.generation.store(before + 1, std::memory_order_release);
}

/// A chunk that was read is used again: neither addresses nor memory grow with what is handed over.
bool Publishing::begin_chunk(std::size_t bytes) {
  for (; freed_ < page_->chunks_read.load(std::memory_order_acquire) && !chunks_.empty(); ++freed_) {
    free_.push_back(chunks_.front());
    chunks_.pop_front();
  }
  std::size_t whole = kChunk;
  while (whole < bytes + sizeof(Chunk)) whole *= 2;
  OwnChunk chunk{nullptr, 0, whole};
  const auto found =
      std::find_if(free_.begin(), free_.end(), [&](const OwnChunk& one) { return one.bytes == whole; });
  if (found != free_.end()) {
    chunk = *found;
    free_.erase(found);
    // Whole pages are zeros already.
    std::memset(chunk.room, 0, kPageBytes);
    std::memset(chunk.room + whole - kPageBytes, 0, kPageBytes);
  } else {
    chunk.room = area_.take(whole, chunk.at);
    if (chunk.room == nullptr) return false;
  }
  auto* const fresh = new (chunk.room) Chunk{{0}, whole};
  (last_chunk_ == nullptr ? page_->first_chunk : last_chunk_->next)
      .store(chunk.at, std::memory_order_release);
  last_chunk_ = fresh;
  chunk_ = chunk.room + sizeof(Chunk);
  chunk_left_ = whole - sizeof(Chunk);
  chunks_.push_back(chunk);
  return true;
}

char* Publishing::take(std::size_t bytes) {
  const std::lock_guard lock(area_mutex_);
  if (chunk_left_ < bytes && !begin_chunk(bytes)) return nullptr;
  char* const taken = chunk_;
  chunk_ += bytes;
  chunk_left_ -= bytes;
  new (taken) Kept();
  reinterpret_cast<Kept*>(taken)->whole = bytes;
  return taken;
}

Kept* Publishing::room_for(std::uint32_t of, std::int32_t kind, at::IntArrayRef sizes, std::size_t bytes,
                           char*& data) {
  const auto dimensions = static_cast<std::int32_t>(sizes.size());
  const std::uint64_t from = bytes_at(dimensions);
  char* const room = take((from + bytes + 63) / 64 * 64);
  if (room == nullptr) throw std::runtime_error("there is no more memory to share with the launcher.");
  auto* const kept = reinterpret_cast<Kept*>(room);
  kept->of = of;
  kept->kind = static_cast<Kept::Kind>(kind);
  kept->dimensions = dimensions;
  kept->bytes = bytes;
  std::memcpy(room + sizeof(Kept), sizes.data(), sizes.size() * sizeof(std::int64_t));
  data = room + from;
  return kept;
}

void Publishing::keep_text(std::uint32_t of, std::int32_t kind, std::string_view text) {
  char* data = nullptr;
  Kept* const kept = room_for(of, kind, {}, text.size(), data);
  std::memcpy(data, text.data(), text.size());
  kept->ready.store(1, std::memory_order_release);
}

namespace {

class KeptModule final : public recorders::StreamSource {
 public:
  KeptModule(std::uint32_t number, std::string name) : number_(number), name_(std::move(name)) {}

  bool wanted() const noexcept override { return true; }
  std::uint64_t receivers(std::int64_t /*event*/) noexcept override { return 1; }
  void send(const at::Tensor& tensor, const recorders::StreamSample& /*sample*/,
            std::uint64_t /*receivers*/) override {
    Publishing& here = *Publishing::here();
    if (!tensor.defined()) return here.keep_text(number_, Kept::none, {});
    TORCH_CHECK_TYPE(!tensor.is_quantized(), name_, ": the tensor is quantized, of dtype ",
                     tensor.scalar_type(), ", which files for torch.load(weights_only=True) cannot hold.");
    if (!storage::can_hold(tensor)) {
      const std::string why = base::is_strided(tensor)
                                  ? c10::str("dtype ", tensor.scalar_type(), " on ", tensor.device())
                                  : base::instead_of_strided(tensor);
      return here.keep_text(number_, Kept::not_held, "files cannot hold " + why + ".");
    }
    const base::RecordingMode quiet;
    char* data = nullptr;
    Kept* const kept = here.room_for(number_, Kept::tensor, tensor.sizes(), tensor.nbytes(), data);
    kept->dtype = static_cast<std::int32_t>(tensor.scalar_type());
    copy_bytes(tensor, data);
    kept->ready.store(1, std::memory_order_release);
  }

 private:
  const std::uint32_t number_;
  const std::string name_;
};

}  // namespace

bool Publishing::can_send() noexcept {
  if (this != here() || area_.header->closed) return false;
  if (launcher_left_ && behind(page_->received) <= kMostBehind) launcher_left_ = false;
  if (launcher_left_) ++not_sent_;
  return !launcher_left_;
}

/// A launcher that was stopped, say, is not waited for for ever.
void Publishing::sent(std::size_t bytes) {
  constexpr std::int64_t kPatience = 10'000'000'000;  // ns
  sent_ += bytes;
  std::uint64_t before = page_->received;
  for (std::int64_t since = now(); behind(before) > kMostBehind && now() - since < kPatience;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::uint64_t received = page_->received;
    if (std::exchange(before, received) != received) since = now();
  }
  launcher_left_ = behind(before) > kMostBehind;
}

std::function<void(const char* data, std::size_t bytes)> Publishing::file(const std::string& name) {
  const std::uint32_t number = files_++;
  keep_text(number, Kept::file, name);
  return [this, number](const char* data, std::size_t bytes) {
    if (this != here() || area_.header->closed) return;
    if (launcher_left_) throw std::runtime_error("the launcher does not take what the program sends.");
    keep_text(number, Kept::appended, {data, bytes});
    sent(bytes);
  };
}

std::shared_ptr<recorders::StreamSource> KeptSamples::source(const storage::EntryId& id) {
  const std::uint32_t number = modules_++;
  std::ostringstream text;
  {
    core::OutputArchive archive(text);
    archive(id.path, id.aliases, id.type, id.kind);
  }
  Publishing::here()->keep_text(number, Kept::module, text.str());
  return std::make_shared<KeptModule>(number, id.kind + " \"" + id.path + "\" (" + id.type + ")");
}

}  // namespace torchtap::tools::preload
