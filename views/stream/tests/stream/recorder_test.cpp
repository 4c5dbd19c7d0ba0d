// Recorders that stream, publishers by hand, and readers with tensors.
#include <boost/test/unit_test.hpp>
#include <torch/torch.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include <torchtap/model/walk.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>
#include <torchtap/views/stream/stream.hpp>

#include "tests/support.hpp"

using namespace torchtap;
using namespace torchtap::views::stream;
using namespace std::chrono_literals;
using torchtap_test::says;
using torchtap_test::TemporaryDirectory;

namespace {

/// Counts what this program and the libraries allocate with `new`.
std::atomic<std::int64_t> allocations{0};

PublisherOptions placed(const TemporaryDirectory& here) {
  return PublisherOptions().directory(here.path()).bytes(8 << 20);
}

Reader reader(const TemporaryDirectory& here, const Subscription& subscription = {}) {
  return Reader("test", subscription, ReaderOptions().directory(here.path()));
}

torch::nn::Sequential small_model() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3)),
                               torch::nn::BatchNorm2d(8),
                               torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)), torch::nn::Flatten(),
                               torch::nn::Linear(8 * 6 * 6, 10));
}

/// The outputs and gradients of three steps of training.
std::vector<at::Tensor> train(torch::nn::Sequential& model) {
  torch::manual_seed(5);
  std::vector<at::Tensor> results;
  for (int step = 0; step < 3; ++step) {
    model->zero_grad();
    const at::Tensor output = model->forward(torch::randn({4, 3, 8, 8}));
    output.pow(2).sum().backward();
    results.push_back(output.detach().clone());
    for (const auto& parameter : model->parameters()) results.push_back(parameter.grad().clone());
  }
  return results;
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (a.numel() == 0 || std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0);
}

}  // namespace

void* operator new(std::size_t size) {
  ++allocations;
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  ++allocations;
  return std::malloc(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

BOOST_AUTO_TEST_CASE(every_tensor_arrives_byte_for_byte) {
  const TemporaryDirectory here;
  Publisher publisher("test", placed(here));
  Source source = publisher.source("hand", "type");
  Reader client = reader(here);
  std::vector<at::Tensor> sent;
  for (const auto dtype : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kFloat,
                           at::kDouble, at::kBFloat16, at::kBool, at::kComplexFloat, at::kComplexDouble}) {
    for (std::int64_t dims = 0; dims <= 8; ++dims) {
      const std::vector<std::int64_t> sizes(static_cast<std::size_t>(dims), 2);
      sent.push_back((torch::rand(sizes) * 10).to(dtype));
    }
    sent.push_back(torch::ones({3, 0, 2}).to(dtype));
    sent.push_back((torch::rand({4, 6}) * 9).to(dtype).t());
    sent.push_back((torch::rand({4, 6}) * 9).to(dtype).slice(1, 1, 6, 2));
    sent.push_back((torch::rand({1, 6}) * 9).to(dtype).expand({5, 6}));
  }
  sent.push_back(torch::randn({3, 4}, at::kComplexFloat).conj());
  sent.push_back(at::imag(torch::randn({3, 4}, at::kComplexFloat).conj()));
  sent.push_back(torch::randn({3, 4}).requires_grad_());
  {
    const c10::InferenceMode inference;
    sent.push_back(torch::randn({3, 4}));
  }
  sent.push_back(torch::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast));
  for (std::size_t i = 0; i < sent.size(); ++i) {
    BOOST_TEST(source.publish(sent[i]));
    const auto frame = client.next(20s);
    BOOST_REQUIRE(frame.has_value());
    BOOST_TEST(frame->sample == i);
    BOOST_TEST(frame->path == "hand");
    const at::Tensor expected = sent[i].detach().resolve_conj().resolve_neg().contiguous();
    BOOST_TEST(same_bytes(to_tensor(*frame), expected), "tensor " << i);
    BOOST_TEST(client.whole());
  }
}

BOOST_AUTO_TEST_CASE(tensors_that_cannot_be_sent_say_why) {
  const TemporaryDirectory here;
  Publisher publisher("test", placed(here));
  Source source = publisher.source("hand");
  Reader client = reader(here);
  const auto says_why = [&](const at::Tensor& tensor, const std::string& why) {
    BOOST_TEST(source.publish(tensor));
    const auto frame = client.next(20s);
    BOOST_REQUIRE(frame.has_value());
    BOOST_TEST(frame->without_data);
    BOOST_TEST(frame->text.find(why) != std::string_view::npos, frame->text << " does not have " << why);
    BOOST_CHECK_EXCEPTION(to_tensor(*frame), c10::ValueError, says({"hand", why}));
  };
  says_why({}, "undefined");
  says_why(torch::eye(3).to_sparse(), "Sparse");
  says_why(torch::quantize_per_tensor(torch::rand({3}), 0.1, 0, at::kQUInt8), "quantized");
  says_why(torch::ones({1, 1, 1, 1, 1, 1, 1, 1, 1}), "9 dimensions");
  says_why(torch::empty({3}, at::kMeta), "meta");
  says_why(torch::zeros({2 << 20}), "8388608 bytes");
}

BOOST_AUTO_TEST_CASE(results_of_training_do_not_depend_on_who_watches) {
  auto plain = small_model();
  const auto expected = train(plain);
  for (const int watchers : {0, 1, 3}) {
    const TemporaryDirectory here;
    auto model = small_model();
    Publisher publisher("test", placed(here));
    recorders::ForwardOutput outputs(recorders::RecorderOptions().stream(publisher));
    recorders::BackwardOutput gradients(recorders::RecorderOptions().stream(publisher));
    recorders::ForwardPre inputs(recorders::RecorderOptions().stream(publisher).all_tensors());
    outputs.attach(model);
    gradients.attach(model);
    inputs.attach(model);
    std::vector<Reader> readers;
    for (int i = 0; i < watchers; ++i) readers.push_back(reader(here));
    const auto results = train(model);
    BOOST_REQUIRE(results.size() == expected.size());
    for (std::size_t i = 0; i < results.size(); ++i) BOOST_TEST(same_bytes(results[i], expected[i]));
    const std::int64_t events = 3 * (outputs.size() + gradients.size() + inputs.size());
    for (auto& each : readers) {
      std::int64_t frames = 0;
      while (each.next(0s)) ++frames;
      BOOST_TEST(frames == events);
    }
    BOOST_TEST(outputs.samples() == (watchers > 0 ? 3 * outputs.size() : 0));
    BOOST_TEST(outputs[0].events() == 3);
  }
}

// The ancestor sent tensors without a copy: what came later in place reached readers, and theirs the model.
BOOST_AUTO_TEST_CASE(readers_see_what_the_module_returned) {
  const TemporaryDirectory here;
  auto model = small_model();
  Publisher publisher("test", placed(here));
  recorders::ForwardOutput kept;
  kept.attach(model);
  recorders::ForwardOutput streamed(recorders::RecorderOptions().stream(publisher));
  streamed.attach(model);
  Reader client = reader(here, Subscription().kinds({Kind::forward_output}));
  model->forward(torch::randn({2, 3, 8, 8}));  // the ReLU changes what the normalization returned
  model->forward(torch::randn({2, 3, 8, 8}));
  std::size_t frames = 0;
  while (const auto frame = client.next(0s)) {
    const at::Tensor expected = kept.at(std::string(frame->path)).tensors()[frame->sample];
    BOOST_TEST(same_bytes(to_tensor(*frame), expected.contiguous()), frame->path);
    BOOST_TEST(frame->type == kept.at(std::string(frame->path)).type());
    ++frames;
  }
  BOOST_TEST(frames == 12U);
  const at::Tensor before = kept.at("1").tensors()[0];
  BOOST_TEST((before < 0).any().item<bool>());
}

// What a condition refuses does not count for a reader that wants so many frames a second.
BOOST_AUTO_TEST_CASE(conditions_come_before_the_limit_of_frames_a_second) {
  const TemporaryDirectory here;
  auto model = small_model();
  Publisher publisher("test", placed(here));
  bool looking = false;
  recorders::ForwardOutput streamed(
      recorders::RecorderOptions().stream(publisher).condition([&] { return looking; }));
  streamed.attach(model);
  Reader client = reader(here, Subscription().names({"0"}).hz(0.001));
  const at::Tensor input = torch::randn({2, 3, 8, 8});
  model->forward(input);
  looking = true;
  model->forward(input);
  model->forward(input);
  const auto frame = client.next(0s);
  BOOST_TEST_REQUIRE(frame.has_value());
  BOOST_TEST(frame->sample == 1U);
  BOOST_TEST(!client.next(0s).has_value());
}

BOOST_AUTO_TEST_CASE(nobody_watching_costs_no_call_and_no_allocation) {
  const TemporaryDirectory here;
  auto model = small_model();
  model->eval();
  Publisher publisher("test", placed(here));
  int conditions = 0;
  int transforms = 0;
  recorders::ForwardOutput streamed(recorders::RecorderOptions()
                                        .stream(publisher)
                                        .condition([&] {
                                          ++conditions;
                                          return true;
                                        })
                                        .transform([&](const at::Tensor& tensor) {
                                          ++transforms;
                                          return tensor.mean();
                                        }));
  const torch::NoGradGuard no_grad;
  const at::Tensor input = torch::randn({2, 3, 8, 8});
  at::set_num_threads(1);  // other threads allocate when they like
  const auto count = [&] {
    std::int64_t least = INT64_MAX;
    for (int round = 0; round < 5; ++round) {
      const std::int64_t before = allocations;
      for (int i = 0; i < 20; ++i) model->forward(input);
      least = std::min<std::int64_t>(least, allocations - before);
    }
    return least;
  };
  // A hook that does nothing.
  std::int64_t hooked = 0;
  {
    std::vector<hooks::Handle> handles;
    for (const auto& module : model::walk_modules(*model)) {
      handles.push_back(hooks::attach(module, hooks::Kind::forward_output, [](hooks::Event&) {}));
    }
    hooked = count();
  }
  streamed.attach(model);
  BOOST_TEST(count() == hooked);
  BOOST_TEST(conditions == 0);
  BOOST_TEST(transforms == 0);
  BOOST_TEST(streamed.samples() == 0);
  BOOST_TEST(streamed[0].events() == 100);
  BOOST_TEST(publisher.counters().published == 0);
  {
    Reader client = reader(here, Subscription().names({"3"}));
    model->forward(input);
    BOOST_TEST(conditions == 1);
    BOOST_TEST(transforms == 1);
    const auto frame = client.next(20s);
    BOOST_REQUIRE(frame.has_value());
    BOOST_TEST(frame->path == "3");
    BOOST_TEST(frame->sample == 100U);
    BOOST_TEST(frame->dims == 0);
  }
  while (!publisher.readers().empty()) std::this_thread::sleep_for(1ms);
  model->forward(input);
  BOOST_TEST(conditions == 1);
}

BOOST_AUTO_TEST_CASE(results_of_reductions_are_sent) {
  const TemporaryDirectory here;
  auto model = small_model();
  model->eval();
  Publisher publisher("test", placed(here));
  recorders::ForwardOutput moments(
      recorders::RecorderOptions().reduction(reductions::Moments{}).stream(publisher, /*every=*/10));
  moments.attach(model, selectors::names("4"));
  Reader client = reader(here);
  const torch::NoGradGuard no_grad;
  for (int i = 0; i < 25; ++i) {
    model->forward(torch::randn({2, 3, 8, 8}));
    std::size_t results = 0;
    while (const auto frame = client.next(0s)) {
      BOOST_TEST(frame->sample == static_cast<std::uint64_t>(i));
      BOOST_TEST(same_bytes(to_tensor(*frame), moments[0].tensor(std::string(frame->result)).contiguous()));
      ++results;
    }
    BOOST_TEST(results == (i % 10 == 9 ? moments[0].results().size() : 0U));
  }
  BOOST_TEST(moments.samples() == 25);  // folding goes on
}

BOOST_AUTO_TEST_CASE(several_threads_run_the_model) {
  const TemporaryDirectory here;
  auto model = small_model();
  model->eval();
  auto publisher = std::make_unique<Publisher>("test", placed(here));
  recorders::ForwardOutput streamed(recorders::RecorderOptions().stream(*publisher));
  streamed.attach(model, selectors::names("4"));
  Reader client = reader(here, Subscription().when_full(WhenFull::wait));
  std::thread forwards([&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        const torch::NoGradGuard no_grad;
        for (int k = 0; k < 50; ++k) model->forward(torch::zeros({2, 3, 8, 8}));
      });
    }
    for (auto& thread : threads) thread.join();
    publisher.reset();
  });
  std::vector<bool> seen(200);
  std::int64_t frames = 0;
  at::Tensor first;
  while (const auto frame = client.next(20s)) {
    const at::Tensor tensor = to_tensor(*frame);
    if (!first.defined()) first = tensor;
    BOOST_REQUIRE(same_bytes(tensor, first));
    seen[frame->sample] = true;
    ++frames;
  }
  forwards.join();
  BOOST_TEST(frames == 200);
  BOOST_TEST(std::count(seen.begin(), seen.end(), true) == 200);
}

BOOST_AUTO_TEST_CASE(publisher_and_recorder_end_in_any_order) {
  const TemporaryDirectory here;
  auto model = small_model();
  auto publisher = std::make_unique<Publisher>("test", placed(here));
  recorders::ForwardOutput streamed(recorders::RecorderOptions().stream(*publisher));
  streamed.attach(model);
  Reader client = reader(here);
  publisher->annotate("epoch 3");
  model->forward(torch::randn({2, 3, 8, 8}));
  publisher.reset();
  model->forward(torch::randn({2, 3, 8, 8}));
  std::size_t frames = 0;
  while (const auto frame = client.next(20s)) {
    BOOST_TEST(frame->text == "epoch 3");
    ++frames;
  }
  BOOST_TEST(frames == 6U);
  BOOST_TEST(client.ended());
  Publisher again("test", placed(here));
  Publisher moved = std::move(again);
  BOOST_TEST(streams(here.path()).size() == 1U);
  BOOST_TEST(streams(here.path())[0].pid == ::getpid());
}

BOOST_AUTO_TEST_CASE(options_that_contradict_each_other_are_errors) {
  const TemporaryDirectory here;
  Publisher publisher("test", placed(here));
  const auto stream = [&] { return recorders::RecorderOptions().stream(publisher); };
  BOOST_CHECK_EXCEPTION(recorders::ForwardOutput(stream().spool(here / "spool")), c10::ValueError,
                        says({"ForwardOutput", "stream()", "second recorder"}));
  BOOST_CHECK_EXCEPTION(recorders::ForwardOutput(stream().memory_budget(100)), c10::ValueError,
                        says({"stream()"}));
  BOOST_CHECK_EXCEPTION(recorders::RecorderOptions().stream(nullptr), c10::ValueError, says({"no stream"}));
  BOOST_CHECK_EXCEPTION(recorders::RecorderOptions().stream(publisher, 0), c10::ValueError,
                        says({"every 0"}));
  auto model = small_model();
  recorders::ForwardOutput streamed(stream());
  streamed.attach(model);
  model->forward(torch::randn({2, 3, 8, 8}));
  BOOST_CHECK_EXCEPTION(streamed.save(here / "saved"), c10::ValueError,
                        says({"save", "not kept", "torchtap tail"}));
  BOOST_CHECK_EXCEPTION(streamed.entries(), c10::ValueError, says({"entries", "not kept"}));
  BOOST_TEST(streamed[0].value().is_none());
}

#if __has_include(<torchtap/recorders/statistics.hpp>)
BOOST_AUTO_TEST_CASE(a_recorder_with_companions_sends_nothing) {
  const TemporaryDirectory here;
  Publisher publisher("test", placed(here));
  for (const bool stream_first : {false, true}) {
    recorders::RecorderOptions options;
    const auto stream = [&] { options.stream(publisher); };
    const auto pair = [&](const char* name) { options.with(name, recorders::output()); };
    stream_first ? stream() : pair("a");
    BOOST_CHECK_EXCEPTION(stream_first ? pair("a") : stream(), c10::NotImplementedError,
                          says({"pairs samples with companions", "sends to a stream"}));
    BOOST_CHECK_NO_THROW(stream_first ? stream() : pair("b"));  // more of the same
  }
}
#endif
