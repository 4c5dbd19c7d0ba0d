#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torchtap/recorders/stream.hpp>

#include "area.hpp"
#include "process_report.hpp"

namespace torchtap::tools::preload {

struct Chunk;
struct Kept;

/// Keeps what a process says and what it recorded in the area, from where the launcher takes it when the
/// process is gone. Thread-safe; never destroyed, and left behind by a child that is forked.
class Publishing {
 public:
  /// Enters the area, unless the waiter has done so for this process. Throws `std::runtime_error` if it
  /// cannot.
  Publishing();
  Publishing(const Publishing&) = delete;
  Publishing& operator=(const Publishing&) = delete;

  /// Of this process; null without an agent.
  static Publishing* here() noexcept { return here_.load(std::memory_order_acquire); }
  /// Makes this process's.
  static void begin();

  /// The number of this process among those of the program, which names its files.
  std::uint32_t number() const noexcept { return number_; }

  /// A call that is recorded begins.
  void call() noexcept { page_->begun.fetch_add(1, std::memory_order_relaxed); }
  /// Whether results may be published again. That takes at most 1 % of the time; up to 50 ms are saved up.
  /// When the process ends, they may always.
  bool due() const noexcept;
  /// Has `function` publish a generation of the result, by `whole` or `part`: a reader gets all of it or
  /// nothing. Does nothing if another thread publishes, unless the process ends, or this is the `last` time
  /// for what `function` publishes. `calls` are those that this result has and that no result had before;
  /// null: it has all calls.
  void results(const std::function<void()>& function, std::atomic<std::uint64_t>* calls = nullptr,
               bool last = false);
  void whole(const std::string& text) { put({&page_->result, &result_rooms_}, text, page_->generation); }
  void part(std::size_t index, const std::string& text);
  /// Publishes the report, if it says anything new.
  void report(const Report& report, bool last);
  Report reported() const;
  /// From now on everything is published at once.
  void ends() noexcept { ends_ = true; }
  bool ending() const noexcept { return ends_; }

  /// Room for a kept sample, behind the last. Null if there is no more.
  char* take(std::size_t bytes);
  /// Zeros that the launcher sees while the process runs, and after; `at` is their place in the area. Null if
  /// there is no memory.
  char* shared(std::uint64_t bytes, std::uint64_t& at);
  /// Room for a sample of the module with this number. Whoever fills it says when it is ready. Throws
  /// `std::runtime_error` if there is no more memory.
  Kept* room_for(std::uint32_t of, std::int32_t kind, at::IntArrayRef sizes, std::size_t bytes, char*& data);
  /// Hands a text over.
  void keep_text(std::uint32_t of, std::int32_t kind, std::string_view text);
  /// Whether the launcher takes what is sent. Counts what it does not.
  bool can_send() noexcept;
  std::int64_t not_sent() const noexcept { return not_sent_; }
  /// So many bytes were sent: waits while the launcher is far behind.
  void sent(std::size_t bytes);
  /// How many readers of the stream there are; nothing if the launcher publishes nothing any more.
  std::optional<std::uint32_t> readers() const noexcept {
    const std::uint32_t readers = page_->readers;
    if (area_.header->closed || readers == UINT32_MAX) return std::nullopt;
    return readers;
  }

  /// Has the launcher write a file: NAME in this process's place, or, if it is empty, that place itself. The
  /// function appends to it, from any thread, and waits while the launcher is far behind. Throws
  /// `std::runtime_error` if there is no more memory to share, or if the launcher does not go on. A forked
  /// child hands nothing over.
  std::function<void(const char* data, std::size_t bytes)> file(const std::string& name);

 private:
  struct Rooms {
    char* of[2] = {};
  };
  struct Place {
    Published* published;
    Rooms* rooms;
  };
  void put(const Place& place, const std::string& text, std::uint64_t last);

  static std::atomic<Publishing*> here_;

  Area& area_;
  Page* page_;
  std::uint32_t number_ = 0;
  std::mutex area_mutex_;  // last
  mutable std::mutex report_mutex_;
  std::string reported_;
  std::timed_mutex result_mutex_;  // one publishes at a time
  Rooms report_rooms_, result_rooms_;
  Parts* last_parts_ = nullptr;
  std::vector<std::pair<Published*, std::unique_ptr<Rooms>>> parts_;
  struct OwnChunk {
    char* room;
    std::uint64_t at;
    std::size_t bytes;
  };
  bool begin_chunk(std::size_t bytes);

  Chunk* last_chunk_ = nullptr;
  std::deque<OwnChunk> chunks_;  // that the launcher may still read, in order
  std::vector<OwnChunk> free_;   // that it has read and cleared
  std::uint64_t freed_ = 0;      // chunks that ever were
  char* chunk_ = nullptr;
  std::size_t chunk_left_ = 0;
  std::atomic<std::uint32_t> files_{0};
  /// Negative while the launcher has what another thread has not counted yet.
  std::int64_t behind(std::uint64_t received) const noexcept {
    return static_cast<std::int64_t>(sent_ - received);
  }
  std::atomic<std::uint64_t> sent_{0};  // bytes of files, and to readers
  std::atomic<bool> launcher_left_{false};
  std::atomic<std::int64_t> not_sent_{0};
  std::int64_t saved_up_, saved_at_;   // ns, and when
  std::atomic<std::int64_t> next_{0};  // ns: not before
  std::atomic<bool> ends_{false};
};

/// Copies the tensor's elements, side by side.
void copy_bytes(const at::Tensor& tensor, char* to);

/// Takes kept samples to the area, as they come.
class KeptSamples final : public recorders::Stream {
 public:
  std::shared_ptr<recorders::StreamSource> source(const storage::EntryId& id) override;

 private:
  std::atomic<std::uint32_t> modules_{0};
};

}  // namespace torchtap::tools::preload
