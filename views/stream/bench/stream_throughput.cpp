/// How fast tensors reach another process that wants all of them: bench/stream_queue compares it with
/// torch.multiprocessing's queue. Prints "BYTES SECONDS": of a tensor, and for each of them.
///
/// usage: bench_stream_throughput BYTES COUNT
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>

#include <torchtap/views/stream/stream.hpp>

namespace stream = torchtap::views::stream;

namespace {

/// Reads `count` tensors, looks at each page of them, and then writes a byte to `done`.
[[noreturn]] void read(const std::string& directory, std::int64_t count, int done) {
  stream::Reader reader("bench", stream::Subscription().when_full(stream::WhenFull::wait),
                        stream::ReaderOptions().directory(directory).wait(std::chrono::seconds(20)));
  volatile float sum = 0;
  while (reader.received() < count && !reader.ended()) {
    const auto frame = reader.next(std::chrono::seconds(1));
    if (!frame.has_value()) continue;
    const auto* const numbers = static_cast<const float*>(frame->data);
    for (std::uint64_t i = 0; i < frame->data_bytes / sizeof(float); i += 1024) sum = sum + numbers[i];
    reader.release();
  }
  const char all = reader.missed() == 0 ? 1 : 0;
  ::_exit(::write(done, &all, 1) == 1 ? 0 : 1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::int64_t bytes = std::strtoll(argv[1], nullptr, 10);
  const std::int64_t count = std::strtoll(argv[2], nullptr, 10);
  std::string directory = "/tmp/torchtap-bench-XXXXXX";
  int done[2];
  if (::mkdtemp(directory.data()) == nullptr || ::pipe(done) != 0) return 1;
  const pid_t reader = ::fork();
  if (reader == 0) read(directory, count, done[1]);
  ::close(done[1]);  // so that its end is seen
  at::set_num_threads(1);
  char all = 0;
  {
    stream::Publisher publisher(
        "bench", stream::PublisherOptions().directory(directory).wait_at_most(std::chrono::seconds(20)));
    while (publisher.readers().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stream::Source source = publisher.source("bench");
    const at::Tensor tensor = at::ones({bytes / static_cast<std::int64_t>(sizeof(float))});
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < count; ++i) source.publish(tensor);
    if (::read(done[0], &all, 1) != 1) all = 0;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("%lld %.9f\n", static_cast<long long>(bytes), seconds.count() / static_cast<double>(count));
  }
  ::waitpid(reader, nullptr, 0);
  ::rmdir(directory.c_str());
  return all == 1 ? 0 : 1;
}
