#pragma once

#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/views/stream/stream.hpp>

#include "tests/fake_device/fake_device.hpp"
#include "tests/support.hpp"

/// What the tests of streams from devices need.
namespace torchtap_test {

namespace stream = torchtap::views::stream;
using namespace std::chrono_literals;

/// A publisher and where it is. The device has nothing to do before and after.
class Streaming {
 public:
  explicit Streaming(stream::PublisherOptions options = stream::PublisherOptions().bytes(8 << 20))
      : publisher(std::make_unique<stream::Publisher>("test", options.directory(here.path()))) {
    BOOST_REQUIRE(fake::waiting(0) + fake::waiting(1) == 0);
  }
  ~Streaming() {
    fake::fail(fake::Failing::nothing);
    fake::run(0);
    fake::run(1);
  }
  Streaming(const Streaming&) = delete;
  Streaming& operator=(const Streaming&) = delete;

  stream::Reader reader(const stream::Subscription& subscription = {}) const {
    return stream::Reader("test", subscription, stream::ReaderOptions().directory(here.path()));
  }

  const TemporaryDirectory here;
  std::unique_ptr<stream::Publisher> publisher;
};

/// Whether a frame has the bytes of `expected`, a tensor on the CPU.
inline bool holds(const stream::Frame& frame, const at::Tensor& expected) {
  if (frame.without_data) return false;
  const at::Tensor got = stream::to_tensor(frame);
  const at::Tensor want = expected.contiguous();
  return got.sizes() == want.sizes() && got.scalar_type() == want.scalar_type() &&
         (want.numel() == 0 || std::memcmp(got.data_ptr(), want.data_ptr(), want.nbytes()) == 0);
}

/// Until something that another thread does is so; false after 20 s.
template <class Condition>
bool becomes(Condition condition) {
  for (int i = 0; i < 20000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  return condition();
}

}  // namespace torchtap_test
