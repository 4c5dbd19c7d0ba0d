// Tensors of devices arrive whole, as they were, and in order, and no thread of the program waits for a
// device.
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "streaming.hpp"

using namespace torchtap;
using namespace torchtap_test;

namespace {

/// Threads of this process that wait for devices.
int threads_for_devices() {
  int count = 0;
  for (const auto& thread : fs::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(thread.path() / "comm"), name);
    count += name == "torchtap-copies" ? 1 : 0;
  }
  return count;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_tensor_of_a_device_arrives_byte_for_byte) {
  Streaming streaming;
  auto source = streaming.publisher->source("hand");
  auto client = streaming.reader();
  std::vector<std::pair<at::Tensor, at::Tensor>> sent;  // on the device, on the CPU
  const auto add = [&](const at::Tensor& tensor, const at::Tensor& on_cpu) {
    sent.emplace_back(tensor, on_cpu);
  };
  for (const auto dtype : {at::kByte, at::kLong, at::kHalf, at::kFloat, at::kDouble, at::kBFloat16, at::kBool,
                           at::kComplexFloat}) {
    const at::Tensor tensor = (torch::rand({4, 6}) * 9).to(dtype);
    add(fake::on_device(tensor), tensor);
    add(fake::on_device(tensor, 1).t(), tensor.t());
    add(fake::on_device(tensor).slice(1, 1, 6, 2), tensor.slice(1, 1, 6, 2));
    add(fake::on_device(tensor, 1).slice(0, 1, 2).expand({5, 6}), tensor.slice(0, 1, 2).expand({5, 6}));
    add(fake::on_device(torch::ones({3, 0, 2}).to(dtype)), torch::ones({3, 0, 2}).to(dtype));
    add(fake::on_device(torch::ones({}).to(dtype)), torch::ones({}).to(dtype));
  }
  add(fake::on_device(torch::ones({300, 200})).requires_grad_(), torch::ones({300, 200}));
  const auto before = fake::counters();
  for (const auto& [tensor, on_cpu] : sent) BOOST_TEST(source.publish(tensor));
  const auto after = fake::counters();
  BOOST_TEST(after.synchronizations == before.synchronizations);
  BOOST_TEST(after.recorded > before.recorded);
  BOOST_TEST((after.pinned > before.pinned) == fake::pins());
  BOOST_TEST(!client.next(50ms).has_value());
  fake::run(0);
  fake::run(1);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const auto frame = client.next(20s);
    BOOST_REQUIRE(frame.has_value());
    BOOST_TEST(frame->sample == i);
    BOOST_TEST(holds(*frame, sent[i].second), "tensor " << i << ": " << frame->text);
    BOOST_TEST(frame->device_type == static_cast<int>(c10::DeviceType::PrivateUse1));
    BOOST_TEST(frame->device_index == sent[i].first.device().index());
  }
  BOOST_TEST(fake::counters().wrong_device == 0);
  BOOST_TEST(streaming.publisher->counters().without_data == 0);
}

BOOST_AUTO_TEST_CASE(readers_see_what_was_handed_over) {
  Streaming streaming;
  auto source = streaming.publisher->source("hand");
  auto client = streaming.reader();
  const std::int64_t idle = fake::counters().bytes;
  at::Tensor tensor = fake::on_device(torch::full({100}, 3.0));
  streaming.publisher->annotate("epoch 1");
  BOOST_TEST(source.publish(tensor));
  tensor.fill_(4.0);  // in place, behind the copy
  streaming.publisher->annotate("epoch 2");
  BOOST_TEST(source.publish(tensor));
  const auto late = std::chrono::system_clock::now().time_since_epoch();
  tensor = at::Tensor();  // its memory stays for the device
  BOOST_TEST(fake::counters().bytes > idle);
  std::this_thread::sleep_for(2ms);
  fake::run(0, 1);
  auto frame = client.next(20s);
  BOOST_REQUIRE(frame.has_value());
  BOOST_TEST(holds(*frame, torch::full({100}, 3.0)));
  BOOST_TEST(frame->text == "epoch 1");
  const std::uint32_t thread = frame->thread;
  BOOST_TEST(!client.next(20ms).has_value());
  fake::run();
  frame = client.next(20s);
  BOOST_REQUIRE(frame.has_value());
  BOOST_TEST(holds(*frame, torch::full({100}, 4.0)));
  BOOST_TEST(frame->text == "epoch 2");
  BOOST_TEST(frame->time_ns <= static_cast<std::uint64_t>(std::chrono::nanoseconds(late).count()));
  BOOST_TEST(source.publish(torch::ones({2})));
  frame = client.next(20s);
  BOOST_REQUIRE(frame.has_value());
  BOOST_TEST(frame->thread == thread);  // of the program, not the one that waits
  BOOST_TEST(becomes([&] { return fake::counters().bytes == idle; }));
  BOOST_TEST(becomes([] { return fake::counters().events == 0; }));
}

BOOST_AUTO_TEST_CASE(a_source_keeps_its_order_whatever_it_sends) {
  Streaming streaming;
  auto source = streaming.publisher->source("hand");
  auto other = streaming.publisher->source("other");
  auto client = streaming.reader(stream::Subscription().names({"hand"}));
  auto client_of_other = streaming.reader(stream::Subscription().names({"other"}));
  const at::Tensor tensor = torch::rand({5, 7});
  BOOST_TEST(source.publish(fake::on_device(tensor)));
  BOOST_TEST(source.publish(tensor.t()));
  BOOST_TEST(source.publish({}));
  BOOST_TEST(source.publish(fake::on_device(tensor, 1)));
  BOOST_TEST(source.publish(tensor.to_sparse()));
  BOOST_TEST(source.publish(torch::ones({0})));
  BOOST_TEST(other.publish(tensor));
  BOOST_TEST(client_of_other.next(20s).has_value());  // does not wait for "hand"
  fake::run(1);
  BOOST_TEST(!client.next(50ms).has_value());  // the second device is done, and the first is not
  fake::run(0);
  const at::Tensor expected[] = {tensor, tensor.t(), {}, tensor, {}, torch::ones({0})};
  for (std::size_t i = 0; i < 6; ++i) {
    const auto frame = client.next(20s);
    BOOST_REQUIRE(frame.has_value());
    BOOST_TEST(frame->sample == i);
    BOOST_TEST(frame->without_data == !expected[i].defined());
    if (expected[i].defined()) BOOST_TEST(holds(*frame, expected[i]));
  }
}

BOOST_AUTO_TEST_CASE(the_thread_exists_from_the_first_such_tensor_on) {
  Streaming streaming;
  auto source = streaming.publisher->source("hand");
  auto client = streaming.reader();
  BOOST_TEST(source.publish(torch::ones({3})));
  BOOST_TEST(threads_for_devices() == 0);
  BOOST_TEST(source.publish(fake::on_device(torch::ones({3}))));
  BOOST_TEST(becomes([] { return threads_for_devices() == 1; }));
  fake::run();
  streaming.publisher.reset();
  BOOST_TEST(threads_for_devices() == 0);
}

BOOST_AUTO_TEST_CASE(threads_and_devices_at_the_same_time) {
  Streaming streaming;
  std::atomic<bool> over{false};
  std::vector<std::thread> devices;
  for (int index = 0; index < 2; ++index) {
    devices.emplace_back([&over, index] {
      while (!over) fake::run(index, 3);
    });
  }
  auto client = streaming.reader(stream::Subscription().when_full(stream::WhenFull::wait));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&streaming, i] {
      auto source = streaming.publisher->source(std::to_string(i));
      for (int k = 0; k < 200; ++k) {
        const at::Tensor tensor = torch::full({1 + k * 13 % 500}, 1000 * i + k);
        source.publish(k % 5 == 4 ? tensor : fake::on_device(tensor, i % 2));
      }
    });
  }
  std::map<std::string, std::uint64_t> next;
  int frames = 0;
  for (; frames < 800; ++frames) {
    const auto frame = client.next(20s);
    BOOST_REQUIRE(frame.has_value());
    const std::string path(frame->path);
    BOOST_TEST_REQUIRE(frame->sample == next[path]++);
    const auto k = static_cast<std::int64_t>(frame->sample);
    BOOST_TEST_REQUIRE(holds(*frame, torch::full({1 + k * 13 % 500}, 1000 * std::stoi(path) + k)));
  }
  for (auto& thread : threads) thread.join();
  over = true;
  for (auto& thread : devices) thread.join();
  BOOST_TEST(client.missed() == 0);
}

BOOST_AUTO_TEST_CASE(a_recorder_sends_what_modules_on_a_device_return) {
  torch::manual_seed(3);
  torch::nn::Sequential model(torch::nn::ReLU(), torch::nn::Sigmoid(), torch::nn::Softmax(1));
  const at::Tensor input = torch::randn({3, 4, 2});
  recorders::ForwardOutput kept;
  kept.attach(model);
  const at::Tensor expected = model->forward(input).detach();
  std::map<std::string, at::Tensor> outputs;
  for (const auto& each : kept) outputs[each.path()] = each.tensors()[0].clone();
  kept.detach();
  const torch::NoGradGuard no_grad;
  Streaming streaming;
  auto client = streaming.reader();
  at::Tensor watched;
  {
    recorders::ForwardOutput streamed(recorders::RecorderOptions().stream(*streaming.publisher));
    streamed.attach(model);
    watched = model->forward(fake::on_device(input));
  }  // detached while its tensors are on their way
  std::set<std::string> seen;
  fake::run();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto frame = client.next(20s);
    BOOST_REQUIRE(frame.has_value());
    BOOST_TEST(holds(*frame, outputs.at(std::string(frame->path))), frame->path);
    seen.insert(std::string(frame->path));
  }
  BOOST_TEST(seen.size() == outputs.size());
  BOOST_TEST(watched.cpu().equal(expected));
}
