#include "streaming.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include <torchtap/base/error.hpp>

#include "publishing.hpp"

namespace torchtap::tools::preload {

Streaming::Streaming(std::string name, std::int64_t bytes, std::function<void(std::string)> note)
    : wanted_(std::move(name)),
      options_(views::stream::PublisherOptions().bytes(bytes)),
      note_(std::move(note)) {}

void Streaming::begin() {
  views::stream::Publisher::check(wanted_);
  name_ = wanted_;
  try {
    publisher_.emplace(name_, options_);
  } catch (const c10::ValueError&) {  // another process of the program has it
    name_ = wanted_ + "-process" + std::to_string(Publishing::here()->number());
    publisher_.emplace(name_, options_);
    note_("another process publishes as \"" + wanted_ + "\"; this one does as \"" + name_ + "\".");
  }
  stream_ = *publisher_;
}

std::shared_ptr<recorders::StreamSource> Streaming::source(const storage::EntryId& id) {
  const std::lock_guard lock(mutex_);
  if (stream_ == nullptr) begin();
  return stream_->source(id);
}

void Streaming::wait_for(std::int64_t readers) const {
  const auto there = [&] {
    const std::lock_guard lock(mutex_);
    return !publisher_.has_value() || static_cast<std::int64_t>(publisher_->readers().size()) >= readers;
  };
  while (!there()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

void Streaming::end() noexcept {
  const std::lock_guard lock(mutex_);
  publisher_.reset();
}

std::string Streaming::name() const {
  const std::lock_guard lock(mutex_);
  return name_;
}

}  // namespace torchtap::tools::preload
