#pragma once

/// How kept samples, those of a stream, and bytes for files lie in the area.

#include <atomic>
#include <cstdint>

namespace torchtap::tools::preload {

/// Room for several samples. The last one is followed by zeros, or by the end.
struct alignas(64) Chunk {
  std::atomic<std::uint64_t> next;  ///< where in the area; 0: there is none
  std::uint64_t bytes;              ///< with this
};

/// A sample; its sizes follow, and, from a multiple of 64 on, its bytes.
struct alignas(64) Kept {
  enum Kind : std::int32_t {
    tensor,
    none,      ///< an undefined tensor
    not_held,  ///< a tensor that files cannot hold; the bytes say why
    module,    ///< no sample: the bytes are the id of the module, an archive
    file,      ///< no sample: the bytes are the name of the file of this number
    appended,  ///< no sample: the bytes belong behind those of this file
    source,    ///< no sample: the bytes are the id of a module of a stream and the place of its `Wanted`, an
               ///< archive
    sent,      ///< a tensor of a source, for readers; behind its sizes are the numbers of `Sent`
  };
  std::atomic<std::uint64_t> whole;  ///< bytes, with this; 0: nothing comes
  std::atomic<std::uint32_t> ready;  ///< or the process was killed before
  std::uint32_t of;                  ///< the number of the module, or of the file
  Kind kind;
  std::int32_t dtype, dimensions;
  std::uint64_t bytes;
};

/// What belongs to a sent tensor, as numbers of 64 bits behind its sizes. Behind its bytes is a text: the
/// name of the result, or, if the dtype is -1, why the bytes were not sent.
struct Sent {
  std::int64_t sample, call, slot;
  std::int64_t time_ns, thread;
  std::int64_t bytes_of_text;
};

/// What readers want of a source, as the launcher tells the program.
struct alignas(64) Wanted {
  std::atomic<std::uint32_t> anything;     ///< 0: nothing
  std::atomic<std::uint64_t> every;        ///< only events whose number is a multiple of it
  std::atomic<std::uint64_t> interval_ns;  ///< not more often
};

/// Where the bytes begin.
inline std::uint64_t bytes_at(std::int32_t dimensions) {
  return (sizeof(Kept) + static_cast<std::uint64_t>(dimensions) * 8 + 63) / 64 * 64;
}

}  // namespace torchtap::tools::preload
