#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/views/stream/detail/client.hpp>
#include <torchtap/views/stream/detail/server.hpp>

#include "tests/support.hpp"

/// What the tests of the transport need.
namespace torchtap_test {

namespace stream = torchtap::views::stream;
using namespace std::chrono_literals;
using stream::Frame;
using stream::Kind;
using stream::Subscription;
using stream::WhenFull;
using stream::detail::Client;
using stream::detail::Server;
using stream::detail::ServerOptions;
using stream::detail::SourceState;

/// A directory of 0700, as publishers want it (mkdtemp makes it so).
class Rendezvous : public TemporaryDirectory {
 public:
  ServerOptions options(std::uint64_t bytes = 1 << 20, std::chrono::nanoseconds wait = 20s) const {
    ServerOptions options;
    options.bytes = bytes;
    options.wait_at_most = wait;
    options.directory = path();
    return options;
  }
  Client reader(Subscription subscription = {}, const std::string& name = "test") const {
    return {name, std::move(subscription), path(), 10s};
  }
};

/// Publishes `count` numbers of 64 bits, the first of which is the sample, the others its complement.
inline bool publish(Server& server, SourceState& source, std::uint64_t sample, std::size_t count = 16) {
  const std::uint64_t readers = source.readers_of(sample);
  if (readers == 0) return false;
  static thread_local std::vector<std::uint64_t> numbers;
  numbers.assign(count, ~sample);
  numbers[0] = sample;
  Frame frame;
  frame.sample = sample;
  frame.dtype = 4;
  frame.dims = 1;
  frame.sizes[0] = static_cast<std::int64_t>(count);
  frame.data = numbers.data();
  frame.data_bytes = count * 8;
  return server.publish(source, frame, readers);
}

/// Whether a frame holds what `publish` published.
inline bool intact(const Frame& frame) {
  const auto* const numbers = static_cast<const std::uint64_t*>(frame.data);
  const std::size_t count = frame.data_bytes / 8;
  bool same = count > 0 && numbers[0] == frame.sample;
  for (std::size_t i = 1; i < count; ++i) same = same && numbers[i] == ~frame.sample;
  return same;
}

/// The samples of all frames up to the end of the stream, or until none came for `patience`.
inline std::vector<std::uint64_t> read_all(Client& client, std::chrono::nanoseconds patience = 20s) {
  std::vector<std::uint64_t> samples;
  while (auto frame = client.next(patience)) {
    BOOST_REQUIRE(intact(*frame));
    BOOST_REQUIRE(client.whole());
    samples.push_back(frame->sample);
  }
  return samples;
}

inline std::vector<std::uint64_t> numbers(std::uint64_t from, std::uint64_t to, std::uint64_t step = 1) {
  std::vector<std::uint64_t> all;
  for (; from < to; from += step) all.push_back(from);
  return all;
}

}  // namespace torchtap_test
