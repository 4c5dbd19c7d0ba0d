#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include <torchtap/recorders/stream.hpp>

namespace torchtap::tools::preload {

struct Wanted;

/// Hands what readers want to the launcher, which publishes it: they talk to the launcher alone.
class Streaming final : public recorders::Stream {
 public:
  std::shared_ptr<recorders::StreamSource> source(const storage::EntryId& id) override;
  /// Waits until there are so many readers.
  static void wait_for(std::int64_t readers);

 private:
  std::mutex mutex_;
  std::uint32_t sources_ = 0;
  Wanted* wanted_ = nullptr;  // of the next source,
  std::uint64_t wanted_at_ = 0;
  std::size_t wanted_left_ = 0;  // and how many follow
};

}  // namespace torchtap::tools::preload
