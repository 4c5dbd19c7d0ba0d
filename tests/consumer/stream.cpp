#include <ATen/Functions.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>

#include <torchtap/views/stream/stream.hpp>

namespace stream = torchtap::views::stream;

int main() {
  char folder[] = "/tmp/torchtap-consumer-XXXXXX";
  if (::mkdtemp(folder) == nullptr) return 1;
  int status = 1;
  {
    stream::Publisher publisher("consumer", stream::PublisherOptions().directory(folder));
    stream::Source loss = publisher.source("loss");
    stream::Reader reader("consumer", stream::Subscription(), stream::ReaderOptions().directory(folder));
    loss.publish(at::ones({3}));
    const auto frame = reader.next(std::chrono::seconds(30));
    if (frame && stream::to_tensor(*frame).equal(at::ones({3}))) status = 0;
  }
  ::rmdir(folder);
  return status;
}
