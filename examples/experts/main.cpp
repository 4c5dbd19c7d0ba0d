// Which classes does each expert get? Trains a classifier of Fashion-MNIST with a mixture of eight experts,
// of which each image takes two: once as it comes, once with a loss that balances the experts. One recorder
// tells the load of each expert by class, the outputs of its images, and the weight that the router gives it.

#include <torch/torch.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <tuple>

#include <torchtap/core/context.hpp>
#include <torchtap/hooks/nn.hpp>
#include <torchtap/recorders/companion.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/by.hpp>
#include <torchtap/reductions/map.hpp>
#include <torchtap/reductions/moments.hpp>
#include <torchtap/reductions/series.hpp>
#include <torchtap/storage/file.hpp>

#include "../fashion_mnist/idx.hpp"

namespace tap = torchtap;
namespace nn = torch::nn;

namespace {

constexpr std::array<const char*, 10> kNames = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                                "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
constexpr std::int64_t kClasses = 10, kExperts = 8, kChosen = 2, kFeatures = 32, kBatch = 64;

/// Chooses two experts for each row: their weights, which sum to 1, and their numbers, both [N, 2].
struct RouterImpl : nn::Module {
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
    const at::Tensor probabilities = scores(x).softmax(1);
    const auto [best, chosen] = probabilities.topk(kChosen, 1);
    const at::Tensor load = torch::one_hot(chosen, kExperts).sum(1).to(at::kFloat).mean(0) / kChosen;
    imbalance = kExperts * load.dot(probabilities.mean(0));
    return {best / best.sum(1, true), chosen};
  }

  nn::Linear scores{register_module("scores", nn::Linear(kFeatures, kExperts))};
  at::Tensor imbalance;  ///< of the last batch, 1 at best: Fedus et al., "Switch Transformers", 2021
};
TORCHTAP_MODULE(Router);

/// Adds to each row what its two experts make of it: [N, features] to [N, features].
struct MoEImpl : nn::Module {
  MoEImpl() {
    for (std::int64_t i = 0; i < kExperts; ++i) {
      experts->push_back(nn::Sequential(nn::Linear(kFeatures, 64), nn::ReLU(), nn::Linear(64, kFeatures)));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto [weights, chosen] = router->forward(x);
    at::Tensor y = x;
    for (std::int64_t i = 0; i < kExperts; ++i) {
      const auto places = chosen.eq(i).nonzero().unbind(1);  // row, and whether first or second choice
      const at::Tensor mine = experts->ptr<nn::SequentialImpl>(i)->forward(x.index_select(0, places[0]));
      y = y.index_add(0, places[0], mine * weights.index({places[0], places[1]}).unsqueeze(1));
    }
    return y;
  }

  Router router{register_module("router", Router())};
  nn::ModuleList experts{register_module("experts", nn::ModuleList())};
};
TORCHTAP_MODULE(MoE);

/// Maps images to the scores of ten classes.
struct NetImpl : nn::Module {
  at::Tensor forward(const at::Tensor& images) { return head(moe->forward(stem->forward(images))); }

  nn::Sequential stem{register_module(
      "stem", nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 8, 5).padding(2).stride(2)), nn::ReLU(),
                             nn::MaxPool2d(2), nn::Flatten(), nn::Linear(8 * 7 * 7, kFeatures), nn::ReLU()))};
  MoE moe{register_module("moe", MoE())};
  nn::Linear head{register_module("head", nn::Linear(kFeatures, kClasses))};
};
TORCH_MODULE(Net);

void train(Net& net, const Dataset& data, std::int64_t epochs, double balance) {
  torch::optim::Adam optimizer(net->parameters(), 2e-3);
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (const auto& rows : torch::randperm(data.size()).split(kBatch)) {
      const at::Tensor scores = net(data.images.index_select(0, rows));
      const at::Tensor loss = nn::functional::cross_entropy(scores, data.labels.index_select(0, rows));
      optimizer.zero_grad();
      (loss + balance * net->moe->router->imbalance).backward();
      optimizer.step();
    }
  }
}

/// A row belongs to two experts: it stands twice, [N, 2, features], as its keys [N, 2] do.
tap::recorders::ForwardOutput make_recorder() {
  using namespace tap::reductions;
  const auto moments = [](MomentsOptions options) { return Moments(options.order(2)); };
  const auto weight_alone = [](const at::Tensor& /*output*/, const at::Tensor& weight) { return weight; };
  return tap::recorders::ForwardOutput(
      tap::recorders::RecorderOptions()
          .transform([](const at::Tensor& x) {
            return x.unsqueeze(1).expand({-1, kChosen, -1});
          })
          .with("weight", tap::recorders::output("./router", 0))
          .with("expert", tap::recorders::output("./router", 1))
          .reduction(by("labels", kClasses,
                        by("expert", kExperts,
                           Series(moments(MomentsOptions().over({0})),
                                  map("weight", weight_alone, moments(MomentsOptions().over_all(true))))))));
}

/// Which share of each class's images each expert gets, its load, and its mean weight.
void print(const tap::recorders::Subrecorder& experts) {
  const at::Tensor counts = experts.tensor("expert.count").to(at::kDouble), load = counts.sum(0);
  const at::Tensor weights = (experts.tensor("map.mean") * counts).nansum(0) / load;
  const auto row = [](const std::string& name, const at::Tensor& numbers, const char* format) {
    std::printf("%-14s", name.c_str());
    for (const at::Tensor& number : numbers.unbind()) std::printf(format, number.item<double>());
    std::printf("\n");
  };
  row("expert", torch::arange(kExperts), "%8.0f");
  for (std::int64_t i = 0; i < kClasses; ++i) row(kNames[i], kChosen * counts[i] / counts[i].sum(), "%8.3f");
  row("load", load / load.sum(), "%8.3f");
  row("mean weight", weights, "%8.3f");
}

/// Trains, tests, prints and saves; returns whether each image was counted at two experts.
bool run(const std::filesystem::path& folder, const Dataset& training_set, const Dataset& test_set,
         std::int64_t epochs, double balance) {
  torch::manual_seed(1);
  Net net;
  train(net, training_set, epochs, balance);

  const torch::NoGradGuard no_grad;
  auto experts = make_recorder();
  experts.attach(net, tap::selectors::names("moe"));
  std::int64_t right = 0;
  const auto images = test_set.images.split(250), labels = test_set.labels.split(250);
  for (std::size_t i = 0; i < images.size(); ++i) {
    const tap::core::Context named("labels", labels[i]);
    right += net(images[i]).argmax(1).eq(labels[i]).sum().item<std::int64_t>();
  }

  std::printf("%s: %lld of %lld right\n", folder.filename().c_str(), static_cast<long long>(right),
              static_cast<long long>(test_set.size()));
  print(experts[0]);
  const auto options = tap::storage::SaveOptions().mkdir(true).overwrite(true);
  experts.save(folder / "experts", options);
  tap::core::Value::Dict parameters;
  for (const auto& parameter : net->named_parameters()) parameters.emplace_back(parameter.key(), *parameter);
  tap::storage::save_value(folder / "parameters.pt", parameters, options);
  return experts[0].unmatched() == 0 &&
         experts[0].tensor("expert.count").sum().item<std::int64_t>() == kChosen * test_set.size();
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> given = {{"--data", "/usr/share/datasets/fashion-mnist"},
                                              {"--save", "routed"},
                                              {"--samples", "60000"},
                                              {"--test", "10000"},
                                              {"--epochs", "2"}};
  try {
    for (int i = 1; i + 1 < argc; i += 2) given.at(argv[i]) = argv[i + 1];
    const Dataset training_set = read_training_set(given["--data"], std::stoll(given["--samples"]));
    const Dataset test_set = read_test_set(given["--data"], std::stoll(given["--test"]));
    const std::filesystem::path folder = given["--save"];
    const std::int64_t epochs = std::stoll(given["--epochs"]);
    const bool right = run(folder / "free", training_set, test_set, epochs, 0) &&
                       run(folder / "balanced", training_set, test_set, epochs, 0.05);
    return right ? 0 : 1;
  } catch (const std::out_of_range&) {
    std::cerr << "usage: experts [--data FOLDER] [--save FOLDER] [--samples N] [--test N] [--epochs N]\n";
    return 2;
  } catch (const c10::Error& error) {
    std::cerr << "experts: " << error.what_without_backtrace() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "experts: " << error.what() << "\n";
  }
  return 1;
}
