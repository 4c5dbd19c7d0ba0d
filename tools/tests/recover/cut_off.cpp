// Spools to the given directory and is killed in the middle: 100 samples are sealed, 900 are not.
#include <ATen/Functions.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include <torchtap/storage/recording.hpp>
#include <torchtap/storage/spool.hpp>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  torchtap::storage::Spool spool(argv[1], torchtap::storage::SpoolOptions().mkdir(true));
  torchtap::storage::Entry entry;
  entry.path = "layer1.conv";
  entry.type = "torch::nn::Conv2dImpl";
  entry.kind = "ForwardOutput";
  auto& stream = spool.add(entry);
  for (int i = 0; i < 1000; ++i) {
    stream.append(at::full({100}, i, at::kFloat));
    if (i == 99) spool.flush();
  }
  const std::string part = std::string(argv[1]) + "/0-1.part";
  while (!std::filesystem::exists(part) || std::filesystem::file_size(part) < 100000) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ::raise(SIGKILL);
}
