// Devices that are slow, lost or gone, and programs that end or fork meanwhile.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>

#include "streaming.hpp"

using namespace torchtap;
using namespace torchtap_test;

namespace {

constexpr std::int64_t kMost = 512 << 10;  // of a publisher of 1 MiB

stream::PublisherOptions small() {
  return stream::PublisherOptions().bytes(2 * kMost);
}

at::Tensor of_bytes(std::int64_t bytes, double value = 1) {
  return fake::on_device(torch::full({bytes / 4}, value));
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_reader_that_skips_is_told_what_found_no_room) {
  Streaming streaming(small());
  auto source = streaming.publisher->source("hand");
  auto client = streaming.reader(stream::Subscription().when_full(stream::WhenFull::skip));
  const at::Tensor tensor = of_bytes(200 << 10);
  const std::int64_t idle = fake::counters().bytes;
  for (int i = 0; i < 5; ++i) BOOST_TEST(source.publish(tensor));
  BOOST_TEST(streaming.publisher->counters().waited_ns == 0);
  BOOST_TEST(fake::counters().bytes - idle <= kMost);
  fake::run();
  for (int i = 0; i < 5; ++i) {
    const auto frame = client.next(20s);
    BOOST_REQUIRE(frame.has_value());
    BOOST_TEST(frame->sample == static_cast<std::uint64_t>(i));
    BOOST_TEST(frame->without_data == (i >= 2));
    if (i >= 2)
      BOOST_TEST(frame->text.find("PublisherOptions::bytes") != std::string_view::npos, frame->text);
  }
  BOOST_TEST(source.publish(tensor));  // there is room again
  fake::run();
  const auto frame = client.next(20s);
  BOOST_REQUIRE(frame.has_value());
  BOOST_TEST(!frame->without_data);
  BOOST_TEST(client.received() == 6);
  BOOST_TEST(client.missed() == 0);
  BOOST_TEST(streaming.publisher->counters().without_data == 3);
}

BOOST_AUTO_TEST_CASE(a_reader_that_waits_gets_all_of_a_slow_device) {
  Streaming streaming(small().wait_at_most(20s));
  auto source = streaming.publisher->source("hand");
  auto client = streaming.reader(stream::Subscription().when_full(stream::WhenFull::wait));
  std::atomic<bool> over{false};
  const at::Tensor tensor = of_bytes(200 << 10);
  std::thread device([&] {
    for (; !over; std::this_thread::sleep_for(2ms)) fake::run(0, 1);
  });
  std::thread forward([&] {
    for (int i = 0; i < 20; ++i) source.publish(tensor);
  });
  for (std::uint64_t i = 0; i < 20; ++i) {
    const auto frame = client.next(20s);
    BOOST_REQUIRE(frame.has_value());
    BOOST_TEST(frame->sample == i);
    BOOST_TEST(holds(*frame, torch::ones({50 << 10})));
  }
  forward.join();
  over = true;
  device.join();
  BOOST_TEST(streaming.publisher->counters().waited_ns > 0);
  BOOST_TEST(streaming.publisher->counters().without_data == 0);
}

BOOST_AUTO_TEST_CASE(a_device_that_does_nothing_is_waited_for_as_long_as_said) {
  Streaming streaming(small().wait_at_most(5ms));
  auto source = streaming.publisher->source("hand");
  auto client = streaming.reader(stream::Subscription().when_full(stream::WhenFull::wait));
  const at::Tensor tensor = of_bytes(400 << 10);
  BOOST_TEST(source.publish(tensor));
  BOOST_TEST(source.publish(tensor));
  BOOST_TEST(streaming.publisher->counters().waited_ns >= 5000000);
  fake::run();
  BOOST_TEST(!client.next(20s)->without_data);
  BOOST_TEST(client.next(20s)->without_data);
}

BOOST_AUTO_TEST_CASE(a_tensor_that_is_too_large_is_not_copied) {
  Streaming streaming(small());
  auto source = streaming.publisher->source("hand");
  auto client = streaming.reader();
  const at::Tensor tensor = of_bytes(kMost + 4);
  BOOST_TEST(source.publish(tensor));
  BOOST_TEST(fake::waiting() == 0);
  const auto frame = client.next(20s);
  BOOST_REQUIRE(frame.has_value());
  BOOST_TEST(frame->without_data);
  BOOST_TEST(frame->text.find(std::to_string(kMost + 4) + " bytes") != std::string_view::npos, frame->text);
}

BOOST_AUTO_TEST_CASE(what_a_device_cannot_do_is_said) {
  Streaming streaming;
  auto source = streaming.publisher->source("hand");
  auto client = streaming.reader();
  const at::Tensor tensor = of_bytes(400);
  const std::int64_t idle = fake::counters().bytes;
  const auto says_why = [&](fake::Failing failing, const std::string& why) {
    fake::fail(failing);
    BOOST_TEST(source.publish(tensor));
    const auto frame = client.next(20s);
    fake::fail(fake::Failing::nothing);
    BOOST_REQUIRE(frame.has_value());
    BOOST_TEST(frame->without_data);
    BOOST_TEST(frame->dims == 1);
    BOOST_TEST(frame->text.find(why) != std::string_view::npos, frame->text);
  };
  says_why(fake::Failing::events, "this device has no events");
  says_why(fake::Failing::copies, "copies fail here");
  says_why(fake::Failing::questions, "the device is lost");
  fake::run();
  BOOST_TEST(source.publish(tensor));  // and when it can again
  fake::run();
  const auto frame = client.next(20s);
  BOOST_REQUIRE(frame.has_value());
  BOOST_TEST(holds(*frame, torch::ones({100})));
  BOOST_TEST(becomes([&] { return fake::counters().events == 0; }));
  BOOST_TEST(fake::counters().bytes == idle);
}

BOOST_AUTO_TEST_CASE(the_end_of_the_publisher_waits_for_the_device) {
  Streaming streaming;
  auto source = streaming.publisher->source("hand");
  auto client = streaming.reader();
  const at::Tensor tensors[] = {of_bytes(4000, 0), of_bytes(4000, 1), of_bytes(4000, 2)};
  for (const auto& tensor : tensors) BOOST_TEST(source.publish(tensor));
  std::thread device([] {
    std::this_thread::sleep_for(30ms);
    fake::run();
  });
  streaming.publisher.reset();
  device.join();
  for (int i = 0; i < 3; ++i) {
    const auto frame = client.next(20s);
    BOOST_REQUIRE(frame.has_value());
    BOOST_TEST(holds(*frame, torch::full({1000}, static_cast<double>(i))));
  }
  BOOST_TEST(!client.next(20s).has_value());
  BOOST_TEST(client.ended());
  BOOST_TEST(!source.publish(of_bytes(400)));
}

BOOST_AUTO_TEST_CASE(the_end_of_the_publisher_does_not_wait_for_ever) {
  Streaming streaming;
  auto source = streaming.publisher->source("hand");
  auto client = streaming.reader();
  const std::int64_t idle = fake::counters().bytes;
  {
    const at::Tensor tensors[] = {of_bytes(4000, 0), of_bytes(4000, 1)};
    for (const auto& tensor : tensors) BOOST_TEST(source.publish(tensor));
  }
  streaming.publisher.reset();
  for (int i = 0; i < 2; ++i) {
    const auto frame = client.next(20s);
    BOOST_REQUIRE(frame.has_value());
    BOOST_TEST(frame->without_data);
    BOOST_TEST(frame->text.find("the publisher ended") != std::string_view::npos, frame->text);
  }
  BOOST_TEST(fake::counters().bytes - idle == 2 * 4000);  // the device may still need it
  fake::run();                                            // and does, which AddressSanitizer sees
}

BOOST_AUTO_TEST_CASE(a_reader_that_comes_later_gets_nothing_of_before) {
  Streaming streaming;
  auto source = streaming.publisher->source("hand");
  auto other = streaming.publisher->source("other");
  {
    auto first = streaming.reader();
    BOOST_TEST(source.publish(of_bytes(400)));
  }
  BOOST_TEST(becomes([&] { return streaming.publisher->readers().empty(); }));
  auto second = streaming.reader(stream::Subscription().names({"other"}));  // in the same place
  BOOST_TEST(other.publish(of_bytes(800)));
  fake::run();
  const auto frame = second.next(20s);
  BOOST_REQUIRE(frame.has_value());
  BOOST_TEST(frame->path == "other");
  BOOST_TEST(!second.next(20ms).has_value());
}

BOOST_AUTO_TEST_CASE(a_forked_child_leaves_the_copies_to_its_parent) {
  Streaming streaming;
  std::optional<stream::Source> source = streaming.publisher->source("hand");
  auto client = streaming.reader();
  const auto fork = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);  // so that a child that hangs ends
      source->publish(torch::ones({3}));
      streaming.publisher->annotate("child");
      streaming.publisher.reset();
      source.reset();  // the last that has the copies
      ::_exit(0);
    }
    int status = 1;
    BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
    BOOST_TEST(status == 0);
  };
  BOOST_TEST(source->publish(of_bytes(400, 7)));
  fork();  // while the thread waits for the device
  fake::run();
  const auto frame = client.next(20s);
  BOOST_REQUIRE(frame.has_value());
  BOOST_TEST(holds(*frame, torch::full({100}, 7.0)));
  BOOST_TEST(frame->text == "");
  BOOST_TEST(!client.next(20ms).has_value());
  fork();  // while it waits for something to do
  BOOST_TEST(source->publish(torch::ones({3})));
  BOOST_TEST(client.next(20s).has_value());
}
