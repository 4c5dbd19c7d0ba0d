#pragma once

/// The area: memory that the launcher opens, and that each process of the program maps, in which the
/// processes keep what the launcher writes to files when they are gone, however they went.
///
/// The area is a file in memory, of a fixed size, of which only what is used takes room. It begins with the
/// header; then come a page for each process, and room that is given out once. Needs the C library alone.

#include <stddef.h>
#include <stdint.h>

#include <atomic>

namespace torchtap::tools::preload {

/// The environment variable that leads a process to the area: "DESCRIPTOR DEVICE INODE PATH". The descriptor
/// is inherited; where a program has closed it, the file is opened by its path.
inline constexpr char kVariable[] = "TORCHTAP_PRELOAD";

/// Bytes in the area of which there are two versions: one is whole while the other is written.
struct Published {
  struct Half {
    std::atomic<uint64_t> generation{0};  ///< 0: there is none, or it is being written
    uint64_t at = 0, room = 0, size = 0;
  };
  Half halves[2];

  /// The half of the last generation up to `most`; null if there is none.
  const Half* last(uint64_t most) const {
    const Half* found = nullptr;
    for (const Half& half : halves) {
      const uint64_t generation = half.generation.load(std::memory_order_acquire);
      if (generation != 0 && generation <= most && (found == nullptr || generation > found->generation))
        found = &half;
    }
    return found;
  }
};

/// Parts of a result. A generation has new versions of those that changed.
struct Parts {
  static constexpr size_t kMost = 64;
  std::atomic<uint64_t> next{0};  ///< where further ones are; 0: there are none
  Published parts[kMost];
};

/// How far a process is.
enum class Stage : uint32_t {
  none,     ///< the page is not used yet
  waits,    ///< only the waiter is in it
  settled,  ///< and nothing else will be: `other_torch` or `obstacle` says why
  agent,    ///< the agent is in it
  ended,    ///< it has ended by `exit`
};

/// The page of a process.
struct Page {
  std::atomic<Stage> stage{Stage::none};
  int32_t process = 0;
  uint64_t started = 0;                  ///< as in /proc/PID/stat: tells processes of one number apart
  uint64_t pids = 0;                     ///< the namespace of its number
  char name[64] = {};                    ///< of the program
  char other_torch[1024] = {};           ///< the file of a LibTorch that is not torchtap's
  char obstacle[2048] = {};              ///< why the agent could not be loaded
  Published report;                      ///< a `Report`; its last generation is whole
  Published result;                      ///< what was recorded, as a whole
  std::atomic<uint64_t> first_parts{0};  ///< or in parts; 0: there are none
  std::atomic<uint64_t> begun{0};        ///< calls that were seen
  std::atomic<uint64_t> generation{0};   ///< of the result: the last that is whole
  std::atomic<uint64_t> published[2]{};  ///< calls that generation n of the result has, at n % 2
  std::atomic<uint64_t> first_chunk{0};  ///< of kept samples and bytes for files; 0: there are none
  std::atomic<uint64_t> received{0};     ///< bytes that the launcher has written to files, or published
  std::atomic<uint64_t> chunks_read{0};  ///< chunks that the launcher has read to their end, and cleared
  /// Of its stream, whose wishes the launcher has told; the most if it publishes nothing any more.
  std::atomic<uint32_t> readers{0};
};

/// The beginning of the area.
struct Header {
  char agent[4096], interposer[4096], torch[4096];  ///< files
  uint64_t config_at, config_size;                  ///< a `Config`
  std::atomic<int32_t> program;                     ///< the process that the launcher started
  std::atomic<uint32_t> pages;                      ///< that were asked for
  std::atomic<uint64_t> next;                       ///< the room from here on is free
  std::atomic<bool> closed;                         ///< nobody reads it any more
};

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kFirstPage = 16 * kPageBytes, kMostPages = 1 << 16;
inline constexpr uint64_t kFirstRoom = kFirstPage + kMostPages * kPageBytes;
inline constexpr uint64_t kAreaBytes = uint64_t{1} << 42;
static_assert(sizeof(Header) <= kFirstPage && sizeof(Page) <= kPageBytes);

/// A process's way into the area. Not thread-safe. A plain object, which needs no constructor.
struct Area {
  Header* header;
  Page* page;       ///< of this process, or of the one that forked it
  uint32_t number;  ///< of the page: the first has 1

  /// Maps the header. `variable`: the value of `kVariable`. False if the area cannot be reached.
  bool open(const char* variable);
  /// Takes a page, and some room, for this process. False if there is none.
  bool enter();
  /// Room for so many bytes; null if there is none. `at` is its place in the area.
  char* take(uint64_t bytes, uint64_t& at);
  /// Gives the memory of room back, whose content nobody needs.
  static void give_back(char* room, uint64_t bytes);

  /// Maps a part, which begins with a page. Null if it cannot.
  void* map(uint64_t at, uint64_t bytes) const;

 private:
  int descriptor_;
  uint64_t device_, inode_;
  char path_[64];
  char* room_;
  uint64_t room_at_, room_left_;
};

/// The number of the process's start in /proc/PID/stat; 0 if it is gone, or a zombie.
uint64_t start_of(int process);
/// The namespace of this process's number.
uint64_t namespace_of_pids();

}  // namespace torchtap::tools::preload

/// This process's area, which the waiter opened; its header is null if there is none.
extern "C" torchtap::tools::preload::Area& torchtap_preload_area();
