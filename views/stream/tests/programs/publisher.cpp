// Publishes numbered tensors, for tests that read from other processes.
//
// usage: publisher DIRECTORY NAME READERS COUNT ELEMENTS [HERTZ [MIB]]
//   waits for so many readers, and then publishes COUNT tensors [2, ELEMENTS] filled with their number;
//   readers may share MIB of memory, 8 if it does not say
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <torchtap/views/stream/stream.hpp>

using namespace torchtap::views::stream;

namespace {

/// A system call that strace shows.
void mark(const char* text) {
  (void)!::write(STDERR_FILENO, text, 6);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  at::set_num_threads(1);
  const std::int64_t memory = std::int64_t{argc > 7 ? std::atol(argv[7]) : 8} << 20;
  Publisher publisher(
      argv[2], PublisherOptions().directory(argv[1]).bytes(memory).wait_at_most(std::chrono::seconds(20)));
  Source source = publisher.source("layer1.0", "Conv2d", Kind::forward_output);
  const auto readers = static_cast<std::size_t>(std::atoi(argv[3]));
  while (publisher.readers().size() < readers) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const long count = std::atol(argv[4]);
  const double hertz = argc > 6 ? std::atof(argv[6]) : 0;
  at::Tensor tensor = at::zeros({2, std::atol(argv[5])});
  auto* const values = tensor.data_ptr<float>();
  const auto publish = [&](long i) {
    std::fill(values, values + tensor.numel(), static_cast<float>(i));
    if (i % 10 == 0 && hertz == 0 && readers != 0) publisher.annotate("ten " + std::to_string(i / 10));
    source.publish(tensor);
    if (hertz > 0) std::this_thread::sleep_for(std::chrono::duration<double>(1 / hertz));
  };
  publish(0);  // the first time the dynamic linker has work to do
  mark("BEGIN\n");
  for (long i = 1; i < count; ++i) publish(i);
  mark("END..\n");
}
