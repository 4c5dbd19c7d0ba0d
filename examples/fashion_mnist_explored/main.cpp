// Trains a small ResNet-18 on Fashion-MNIST and shows it as a live page:
//
//   fashion_mnist_explored 2000 run
//
// prints the address of the page, trains 2000 steps, records each tenth, writes the run to "run" and the page
// with it to "run/page.html", and goes on serving until it is interrupted.
//
// usage: fashion_mnist_explored [STEPS DIRECTORY]    without arguments it checks itself
#include <ATen/Parallel.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include <torchtap/views/explorer/explorer.hpp>

#include "../fashion_mnist/idx.hpp"
#include "../zoo/resnet.hpp"

namespace explorer = torchtap::views::explorer;
namespace fs = std::filesystem;

namespace {

constexpr const char* kData = "/usr/share/datasets/fashion-mnist";
constexpr std::int64_t kBatch = 32;

/// Trains, and tells `page` the loss of each step and how many test images are classified rightly. Returns
/// the last loss.
double train(zoo::ResNet18& net, std::int64_t steps, explorer::Explorer* page) {
  const Dataset data = read_training_set(kData, steps * kBatch), test = read_test_set(kData, 200);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  double last = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto rows = torch::randint(data.size(), {kBatch}, at::kLong);
    optimizer.zero_grad();
    const auto loss = torch::nn::functional::cross_entropy(net(data.images.index_select(0, rows)),
                                                           data.labels.index_select(0, rows));
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (page != nullptr) page->scalar("loss", last);
    if (step % 20 != 19) continue;
    const torch::NoGradGuard no_grad;
    net->eval();
    const auto right = net(test.images).argmax(1).eq(test.labels).to(at::kFloat).mean();
    net->train();
    if (page != nullptr) page->scalar("accuracy", right);
  }
  return last;
}

zoo::ResNet18 make_net() {
  torch::manual_seed(0);
  return zoo::ResNet18(zoo::ResNet18Options().num_classes(10).in_channels(1).width(16));
}

/// Whether the page has all that was watched, and the training does not know of it.
bool check() {
  constexpr std::int64_t steps = 30;
  const std::string folder = fs::temp_directory_path() / ("torchtap-example-" + std::to_string(::getpid()));
  double watched = 0;
  std::string text, url;
  {
    auto net = make_net();
    explorer::Explorer page(explorer::ExplorerOptions().every(5).save(folder));
    page.attach(*net);
    url = page.serve();
    watched = train(net, steps, &page);
    page.export_page(folder + "/page.html");
    std::ifstream file(folder + "/page.html");
    text.assign(std::istreambuf_iterator<char>(file), {});
    for (const auto& error : page.errors()) std::cerr << error << '\n';
    if (!page.errors().empty()) return false;
  }
  const explorer::Server again({folder});  // from the file
  const std::vector<fs::path> files(fs::recursive_directory_iterator(folder), {});
  for (auto file = files.rbegin(); file != files.rend(); ++file)
    fs::remove(*file);  // folders after their files
  fs::remove(folder);
  auto net = make_net();
  const double alone = train(net, steps, nullptr);
  std::cout << "a page of " << text.size() << " bytes; loss " << watched << ", alone " << alone << '\n';
  for (const char* const part : {"layer1.0.conv1", "layer4.1.bn2", "fc", "accuracy", "eval"}) {
    if (text.find('"' + std::string(part) + '"') == std::string::npos) return false;
  }
  return watched == alone && url.find("#token=") != std::string::npos;
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  if (argc < 3) return check() ? 0 : 1;
  auto net = make_net();
  explorer::Explorer page(explorer::ExplorerOptions().every(10).save(argv[2]));
  page.attach(*net);
  std::cout << page.serve() << std::endl;
  std::cout << "last loss " << train(net, std::atol(argv[1]), &page) << std::endl;
  page.export_page(std::string(argv[2]) + "/page.html");
  ::pause();
}
