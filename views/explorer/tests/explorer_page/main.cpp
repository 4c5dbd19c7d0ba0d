// Trains three small networks with explorers and serves their page, for tests in a browser (page.mjs). What
// it is told comes by lines: what it did, it says by a line each.
//
// usage: explorer_page_server DATASET [FOLDER]   FOLDER: also saves the runs there, as r0, r1, r2
//
// Runs: r0, which goes on when it is told to; r1, in which a convolution's output overflows; r2, which is r0
// but for one module. All of them have seen `steps` steps.
#include <torch/torch.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <torchtap/views/explorer/detail/http_server.hpp>
#include <torchtap/views/explorer/detail/watched_models.hpp>
#include <torchtap/views/explorer/explorer.hpp>

#include "fashion_mnist/idx.hpp"
#include "zoo/resnet.hpp"

namespace {

namespace explorer = torchtap::views::explorer;
using Run = explorer::detail::Run;

constexpr int steps = 12, overflow = 7, batch = 16;
constexpr const char* token = "0123456789abcdef0123456789abcdef";

class Training {
 public:
  Training(const Dataset& data, const std::string& name, const std::string& folder) : data_(data) {
    torch::manual_seed(0);
    model_ = zoo::ResNet18(zoo::ResNet18Options().num_classes(10).in_channels(1).width(8));
    optimizer_ = std::make_unique<torch::optim::SGD>(model_->parameters(), 0.05);
    auto options = explorer::ExplorerOptions().every(1).name(name);
    if (!folder.empty()) options.save(folder);
    watched_.emplace(std::move(options));
    watched_->attach(*model_);
  }

  void step() {
    const std::int64_t from = batch * (step_++ % (data_.size() / batch));
    optimizer_->zero_grad();
    const at::Tensor scores = model_->forward(data_.images.narrow(0, from, batch));
    const at::Tensor loss = torch::nn::functional::cross_entropy(scores, data_.labels.narrow(0, from, batch));
    loss.backward();
    optimizer_->step();
    watched_->scalar("loss", loss);
  }
  void scale(const std::string& parameter, double by) {
    const torch::NoGradGuard no_grad;
    model_->named_parameters()[parameter].mul_(by);
  }
  /// The run, which has ended.
  std::shared_ptr<Run> finish() {
    auto run = this->run();
    for (const std::string& error : watched_->errors()) std::cerr << error << '\n';
    watched_.reset();
    return run;
  }
  std::shared_ptr<Run> run() const { return explorer::detail::models_of(*watched_).first()->run(); }
  explorer::Explorer& watched() { return *watched_; }

 private:
  const Dataset& data_;
  zoo::ResNet18 model_{nullptr};
  std::unique_ptr<torch::optim::SGD> optimizer_;
  std::optional<explorer::Explorer> watched_;
  std::int64_t step_ = 0;
};

struct Page {
  std::vector<std::shared_ptr<Run>> runs;
  std::unique_ptr<explorer::detail::HttpServer> server;
  std::string url;

  void start() {
    auto options = explorer::ServeOptions().token(token).control(true);
    // The second time at the same place.
    if (!url.empty()) options.port(std::stol(url.substr(url.rfind(':', url.find('#')) + 1)));
    server = std::make_unique<explorer::detail::HttpServer>(runs, options);
    url = server->url();
  }
};

std::string obey(Training& training, Page& page, const std::string& line) {
  std::istringstream words(line);
  std::string what;
  words >> what;
  if (what == "train") {
    int count = 0;
    words >> count;
    for (int i = 0; i < count; ++i) training.step();
    return "trained";
  }
  if (what == "stop") {
    page.server.reset();
    return "stopped";
  }
  if (what == "start") {
    page.start();
    return page.url;
  }
  if (what == "export") {
    std::string file;
    words >> file;
    training.watched().export_page(file);
    return "exported";
  }
  if (what == "finish") {
    training.finish();
    return "finished";
  }
  return "error: no such thing: " + line;
}

int run(const std::string& dataset, const std::string& folder) {
  torch::set_num_threads(1);  // other tests run, too
  const Dataset data = read_training_set(dataset, 1024);
  const auto at = [&](const char* name) { return folder.empty() ? "" : folder + "/" + name; };
  Page page;
  Training training(data, "lr=0.05", at("r0"));
  for (int i = 0; i < steps; ++i) training.step();
  page.runs.push_back(training.run());

  Training broken(data, "overflow", at("r1"));
  for (int i = 0; i < steps; ++i) {
    if (i == overflow) broken.scale("layer3.0.conv1.weight", 1e38);
    broken.step();
  }
  page.runs.push_back(broken.finish());

  Training changed(data, "changed", at("r2"));
  changed.scale("layer4.1.bn2.weight", 20);
  for (int i = 0; i < steps; ++i) changed.step();
  page.runs.push_back(changed.finish());

  page.start();
  std::cout << page.url << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << obey(training, page, line) << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: explorer_page_server DATASET [FOLDER]\n";
    return 2;
  }
  try {
    return run(argv[1], argc > 2 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
