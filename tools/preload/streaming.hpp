#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <torchtap/views/send/stream.hpp>
#include <torchtap/views/stream/publisher.hpp>

namespace torchtap::tools::preload {

/// The stream of one process. It begins with the first module that is recorded, so that processes that run
/// none have no name, no socket and no thread.
class Streaming final : public recorders::Stream {
 public:
  /// `note` gets a sentence if another process has the name and this one takes NAME-PID.
  Streaming(std::string name, std::int64_t bytes, std::function<void(std::string)> note);

  std::shared_ptr<recorders::StreamSource> source(const storage::EntryId& id) override;
  /// Waits until there are so many readers.
  void wait_for(std::int64_t readers) const;
  /// Readers read what there is, and then the end.
  void end() noexcept;
  /// The name under which this process publishes; empty before.
  std::string name() const;

 private:
  void begin();

  const std::string wanted_;
  const views::stream::PublisherOptions options_;
  const std::function<void(std::string)> note_;
  mutable std::mutex mutex_;
  std::string name_;
  std::optional<views::stream::Publisher> publisher_;
  std::shared_ptr<recorders::Stream> stream_;
};

}  // namespace torchtap::tools::preload
