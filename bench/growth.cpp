/// What grows with the number of modules, samples or lines, at two sizes: the cost of one more should be the
/// same. Prints a line for each: what, size, seconds, and the most memory that the process has had. With a
/// command (torchtap) as the second argument its own are measured, too.
///
///     bench_growth FOLDER [TORCHTAP]

#include <ATen/Functions.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>

#include <torchtap/base/remove_folder.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/storage/recover.hpp>

namespace {

using namespace torchtap;
using recorders::ForwardOutput;
namespace fs = std::filesystem;

fs::path folder;
std::string command;

/// In a process of its own, so that its memory is its own.
void alone(const std::function<void()>& work) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    std::fflush(stdout);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) std::exit(1);
}

void measure(const char* what, std::int64_t size, const std::function<void()>& work) {
  const auto before = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  std::printf("%s\t%lld\t%.6f\t%ld\n", what, static_cast<long long>(size), took.count(),
              used.ru_maxrss / 1024);
}

/// A command, whose peak of memory is that of the children.
void run(const char* what, std::int64_t size, const std::string& arguments) {
  if (command.empty()) return;
  const std::string line = command + " " + arguments + " >/dev/null 2>&1";
  const auto before = std::chrono::steady_clock::now();
  const int status = std::system(line.c_str());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
  rusage used{};
  ::getrusage(RUSAGE_CHILDREN, &used);
  if (status != 0) std::fprintf(stderr, "%s: status %d\n", line.c_str(), status);
  std::printf("%s\t%lld\t%.6f\t%ld\n", what, static_cast<long long>(size), took.count(),
              used.ru_maxrss / 1024);
}

std::string at(const std::string& name) {
  return (folder / name).string();
}

const auto kAnew = storage::SaveOptions().mkdir(true).overwrite(true).sync(false);

/// What saving a recording costs at least: a file for each module, of the size of its entry.
void write_files(std::int64_t size) {
  const std::string content(fs::file_size(at("raw") + "/0.pt"), 'x');
  fs::create_directories(at("bare"));
  measure("write(2) of as many files", size, [&] {
    for (std::int64_t i = 0; i < size; ++i) {
      const std::string file = at("bare") + "/" + std::to_string(i) + ".pt";
      const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      const auto written = ::write(descriptor, content.data(), content.size());
      if (written != static_cast<ssize_t>(content.size()) || ::close(descriptor) != 0) std::exit(1);
    }
  });
}

void modules(std::int64_t size) {
  // Each size writes to new folders: files that replace others cost a file system more.
  for (const char* former : {"raw", "bare", "spool", "one", "all"}) torchtap::base::remove_folder(at(former));

  const torch::NoGradGuard no_grad;
  torch::nn::Sequential model;
  for (std::int64_t i = 0; i < size; ++i) model->push_back("m" + std::to_string(i), torch::nn::Identity());
  const at::Tensor x = at::ones({2, 8});
  {
    ForwardOutput recorder;
    measure("attach to modules", size, [&] { recorder.attach(model); });
    model->forward(x);
    measure("save what modules recorded", size, [&] { recorder.save(at("raw"), kAnew); });
    write_files(size);
    measure("detach from modules", size, [&] { recorder.detach(); });
  }
  {
    const auto how = storage::SpoolOptions().mkdir(true).overwrite(true).sync(false);
    ForwardOutput recorder(recorders::RecorderOptions().spool(at("spool"), how));
    measure("attach to modules, spooled", size, [&] { recorder.attach(model); });
    model->forward(x);
    recorder.flush();
    // As after a crash: the journal lists every shard, and nothing is finished.
    torchtap::base::remove_folder(at("cut"));
    fs::copy(at("spool"), at("cut"), fs::copy_options::recursive);
    measure("finish a spool", size, [&] { recorder.save(at("spool")); });
  }
  measure("recover a spool", size, [&] { storage::recover(at("cut")); });
  run("torchtap show", size, "show " + at("raw"));
  run("torchtap convert --entry", size,
      "convert " + at("raw") + " --to safetensors --overwrite --entry m1 --save " + at("one"));
  run("torchtap convert", size, "convert " + at("raw") + " --to safetensors --overwrite --save " + at("all"));
  run("torchtap compare", size, "compare " + at("raw") + " " + at("spool"));
}

void samples(std::int64_t size) {
  const torch::NoGradGuard no_grad;
  torch::nn::Sequential model{torch::nn::Identity()};
  const at::Tensor x = at::ones({4});
  const auto how = storage::SpoolOptions().mkdir(true).overwrite(true).sync(false);
  {
    ForwardOutput recorder(recorders::RecorderOptions().spool(at("samples"), how));
    recorder.attach(model, selectors::names("0"));
    for (std::int64_t i = 0; i < size; ++i) model->forward(x);
    recorder.save(at("samples"));
  }
  alone([&] {
    double sum = 0;
    measure("each_tensor of samples of 16 bytes", size, [&] {
      for (const at::Tensor& sample : storage::load(at("samples")).at(0).each_tensor())
        sum += sample.data_ptr<float>()[0];
    });
    if (sum != static_cast<double>(size)) std::exit(1);
  });
  run("torchtap show --stats of samples of 16 bytes", size, "show " + at("samples") + " --stats");
}

void kept(std::int64_t size) {
  alone([&] {
    const torch::NoGradGuard no_grad;
    torch::nn::Sequential model{torch::nn::Identity()};
    const at::Tensor x = at::ones({4});
    ForwardOutput recorder;
    recorder.attach(model, selectors::names("0"));
    for (std::int64_t i = 0; i < size; ++i) model->forward(x);
    recorder.save(at("kept"), kAnew);
  });
  alone([&] {
    measure("tensors() of kept samples of 16 bytes", size, [&] {
      if (static_cast<std::int64_t>(storage::load(at("kept")).at(0).tensors().size()) != size) std::exit(1);
    });
  });
  run("torchtap show --stats of kept samples", size, "show " + at("kept") + " --stats");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: bench_growth FOLDER [TORCHTAP] [SIZE]\n";
    return 2;
  }
  folder = fs::path(argv[1]) / "growth";
  if (argc > 2) command = argv[2];
  const std::int64_t size = argc > 3 ? std::atoll(argv[3]) : 5000;
  torch::set_num_threads(1);
  fs::create_directories(folder);
  for (const std::int64_t n : {size, 4 * size}) alone([&] { modules(n); });
  for (const std::int64_t n : {50 * size, 200 * size}) alone([&] { samples(n); });
  for (const std::int64_t n : {50 * size, 200 * size}) kept(n);
  torchtap::base::remove_folder(folder);
  return 0;
}
