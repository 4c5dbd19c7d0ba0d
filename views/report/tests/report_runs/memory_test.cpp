// Memory of LibTorch's own allocations, compared with numbers found by hand.
#include <c10/core/CPUAllocator.h>

#include <thread>

#include <torchtap/hooks/hooked.hpp>

#include "support.hpp"
#include "zoo/resnet.hpp"

BOOST_AUTO_TEST_SUITE(memory)

namespace {

using namespace support;
using report::Report;

report::ReportOptions memory_only() {
  return report::ReportOptions().work(false).non_finite(report::OnNonFinite::ignore);
}

constexpr double megabyte = 1e6;

BOOST_AUTO_TEST_CASE(of_a_resnet_in_training_and_without_gradients) {
  at::set_num_threads(1);
  zoo::ResNet18 net(zoo::ResNet18Options().num_classes(1000));
  const auto x = torch::rand({8, 3, 224, 224});
  Report report(*net, memory_only());
  const auto step = [&] {
    auto recording = report.record();
    const auto loss = net(x).sum();
    recording.phase(report::Phase::backward);
    loss.backward();
  };
  const auto close = [](std::int64_t bytes, double megabytes) {
    return std::abs(bytes / megabyte - megabytes) < 0.15;
  };
  step();
  auto results = report.results();
  BOOST_TEST(close(results.forward_memory.kept, 172.7), results.forward_memory.kept);
  BOOST_TEST(close(results.forward_memory.peak, 182.1), results.forward_memory.peak);
  std::int64_t left = results.forward_memory.kept + results.backward_memory.kept;
  BOOST_TEST(close(left, 46.8), left);
  const bool all_reached = row(results, "conv1").reachable;
  if (all_reached) {
    BOOST_TEST(close(results.root.forward.memory.kept, 172.7), results.root.forward.memory.kept);
    BOOST_TEST(close(results.root.forward.memory.peak, 182.1), results.root.forward.memory.peak);
    // The output of the first convolution, 8x64x112x112.
    BOOST_TEST(close(row(results, "conv1").forward.memory.kept, 25.7));
    BOOST_TEST(row(results, "conv1").forward.memory.allocations >= 1);
    // In the backward of the root what the forward kept goes, and the gradients come.
    const std::int64_t backward = results.root.backward.memory.kept;
    BOOST_TEST(std::abs(backward / megabyte - (46.8 - 172.7)) < 8, backward);
  }
  step();
  results = report.results();
  left = results.forward_memory.kept + results.backward_memory.kept;
  BOOST_TEST(close(left, 0), left);

  const torch::NoGradGuard no_grad;
  {
    const auto recording = report.record();
    net(x);
  }
  results = report.results();
  // While the pooling runs, the outputs of conv1 and bn1 are temporaries of the same expression, 2 x 25.7 MB;
  // it makes its output and as many indices of eight bytes.
  BOOST_TEST(close(results.forward_memory.peak, 70.65), results.forward_memory.peak);
  BOOST_TEST(close(results.forward_memory.kept, 0), results.forward_memory.kept);
  if (all_reached)
    BOOST_TEST(close(results.root.forward.memory.peak, 70.65), results.root.forward.memory.peak);
}

BOOST_AUTO_TEST_CASE(of_a_resnet_in_torchscript_without_gradients) {
  at::set_num_threads(1);
  const torch::NoGradGuard no_grad;
  auto model = torch::jit::load(model_file("resnet18"));
  model.train();
  const auto x = torch::rand({8, 3, 224, 224});
  Report report(model, memory_only());
  {
    const auto recording = report.record();
    model.forward({x});
  }
  // It lets go of each output when the next module has returned: at most those of conv1 and bn1 are held.
  const auto peak = report.results().root.forward.memory.peak;
  BOOST_TEST(std::abs(peak / megabyte - 2 * 8 * 64 * 112 * 112 * 4 / megabyte) < 0.15, peak);
}

/// Keeps and frees memory as it is told.
struct HolderImpl : nn::Module {
  at::Tensor kept;
  at::Tensor forward(const at::Tensor& x) {
    { const auto temporary = torch::empty({250'000}); }
    kept = torch::empty({100'000});
    return x;
  }
};
TORCHTAP_MODULE(Holder);

BOOST_AUTO_TEST_CASE(kept_peak_and_allocations) {
  Holder holder;
  nn::Sequential model(holder, nn::Identity{});
  Report report(*model, memory_only());
  const auto once = [&] {
    const auto recording = report.record();
    model->forward(torch::ones({1}));
  };
  const auto close = [](std::int64_t bytes, std::int64_t expected) {
    return std::abs(bytes - expected) < 8192;
  };
  once();
  auto memory = row(report.results(), "0").forward.memory;
  BOOST_TEST(close(memory.kept, 400'000), memory.kept);
  BOOST_TEST(close(memory.peak, 1'000'000), memory.peak);
  BOOST_TEST(memory.allocations == 2);
  BOOST_TEST(close(report.results().root.forward.memory.peak, 1'000'000));
  BOOST_TEST(row(report.results(), "1").forward.memory.kept == 0);
  once();  // what was kept is replaced
  memory = row(report.results(), "0").forward.memory;
  BOOST_TEST(close(memory.kept, 0), memory.kept);
}

BOOST_AUTO_TEST_CASE(a_block_freed_in_another_thread_or_after_the_report) {
  at::Tensor outlives;
  c10::Allocator* const before = c10::GetCPUAllocator();
  {
    nn::Sequential model(nn::Identity{});
    Report report(*model, memory_only());
    {
      const auto recording = report.record();
      at::Tensor block = torch::empty({250'000});
      std::thread([moved = std::move(block)]() mutable { moved.reset(); }).join();
      outlives = torch::ones({1000});
      BOOST_TEST(c10::GetCPUAllocator() != before);
    }
    const auto memory = report.results().forward_memory;
    BOOST_TEST(memory.kept >= 4000);
    BOOST_TEST(memory.kept < 4100);
    BOOST_TEST(memory.peak >= 1'000'000);
    BOOST_TEST(memory.allocations == 2);
  }
  BOOST_TEST(c10::GetCPUAllocator() == before);
  BOOST_TEST(outlives.sum().item<float>() == 1000);
  outlives.resize_({100'000});  // by LibTorch, through what made the block
  outlives.reset();
}

BOOST_AUTO_TEST_CASE(a_second_report_says_that_it_cannot_watch) {
  nn::Sequential model(nn::Identity{}), other(nn::Identity{});
  Report first(*model, memory_only()), second(*other, memory_only());
  const auto recording = first.record();
  {
    const auto inner = second.record();
    other->forward(torch::ones({1}));
  }
  const auto notes = second.results().notes;
  BOOST_TEST(std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
    return note.find("another report") != std::string::npos;
  }));
}

/// An allocator of the program's own, whose blocks LibTorch frees by contexts.
struct OwnAllocator : c10::Allocator {
  c10::Allocator* inner = c10::GetDefaultCPUAllocator();
  std::int64_t* freed;
  explicit OwnAllocator(std::int64_t* count) : freed(count) {}
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
  c10::DataPtr allocate(std::size_t bytes) override {
    return wrap(inner->allocate(bytes));
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    inner->copy_data(to, from, bytes);
  }
#else
  c10::DataPtr allocate(std::size_t bytes) const override {
    return wrap(inner->allocate(bytes));
  }
#endif
  struct Block {
    c10::DataPtr data;
    std::int64_t* freed;
  };
  c10::DataPtr wrap(c10::DataPtr data) const {
    void* const block = data.get();
    const auto device = data.device();
    return {block, new Block{std::move(data), freed},
            [](void* context) {
              ++*static_cast<Block*>(context)->freed;
              delete static_cast<Block*>(context);
            },
            device};
  }
};

BOOST_AUTO_TEST_CASE(around_an_allocator_of_the_programs_own) {
  static std::int64_t freed = 0;
  static OwnAllocator allocator(&freed);  // blocks may outlive the test
  auto* const own = &allocator;
  c10::Allocator* const before = c10::GetCPUAllocator();
  c10::SetCPUAllocator(own);
  nn::Sequential model(nn::Functional([](const at::Tensor& x) { return x + 1; }));
  Report report(*model, memory_only());
  const auto x = torch::ones({1000});
  {
    const auto recording = report.record();
    model->forward(x);
  }
  BOOST_TEST(c10::GetCPUAllocator() == own);
  c10::SetCPUAllocator(before);
  BOOST_TEST(freed >= 1);
  const auto memory = report.results().root.forward.memory;
  BOOST_TEST(memory.kept == 4000);
  BOOST_TEST(memory.peak >= 4000);  // and a scalar
  BOOST_TEST(memory.peak < 4100);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
