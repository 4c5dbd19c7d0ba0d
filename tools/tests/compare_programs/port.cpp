// A port of torchvision's ResNet-18, which is compared with its original. Built twice: as it is, for torchtap
// preload, and with the two lines that write fingerprints (TORCHTAP_TEST_PRINTS).
//
// usage: port WEIGHTS.pt IMAGES.pt [--eps PATH=VALUE] [--script MODEL.pt] [--threads N] [--prints FILE]
#include <torch/script.h>
#include <torch/torch.h>
#include <zoo/resnet.hpp>

#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#ifdef TORCHTAP_TEST_PRINTS
#include <torchtap/views/compare/fingerprints.hpp>
#endif

namespace {

c10::IValue load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return torch::pickle_load({std::istreambuf_iterator<char>(file), {}});
}

void copy_weights(torch::nn::Module& model, const c10::IValue& weights) {
  torch::NoGradGuard no_grad;
  const auto from = weights.toGenericDict();
  for (auto& parameter : model.named_parameters())
    parameter.value().copy_(from.at(parameter.key()).toTensor());
  for (auto& buffer : model.named_buffers()) buffer.value().copy_(from.at(buffer.key()).toTensor());
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options;
  for (int i = 3; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  torch::NoGradGuard no_grad;
  const at::Tensor images = load(argv[2]).toTensor();
  std::optional<torch::jit::Module> scripted;
  zoo::ResNet18 model{nullptr};
  if (options.count("--script") != 0) {
    scripted = torch::jit::load(options["--script"]);
  } else {
    model = zoo::ResNet18();
    copy_weights(*model, load(argv[1]));
    model->eval();
    if (options.count("--eps") != 0) {
      const std::string eps = options["--eps"], path = eps.substr(0, eps.find('='));
      auto norm = std::dynamic_pointer_cast<torch::nn::BatchNorm2dImpl>(model->named_modules()[path]);
      norm->options.eps(std::stod(eps.substr(eps.find('=') + 1)));
    }
  }
#ifdef TORCHTAP_TEST_PRINTS
  torchtap::views::compare::Fingerprints prints(options.at("--prints"));
  scripted ? prints.attach(*scripted) : prints.attach(*model);
#endif
  const auto forward = [&] {
    return scripted ? scripted->forward({images}).toTensor() : model->forward(images);
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < (options.count("--threads") != 0 ? std::stoi(options["--threads"]) : 1); ++i) {
    threads.emplace_back([&] {
      torch::NoGradGuard here;
      forward();
    });
  }
  std::cout << forward().sum().item<float>() << '\n';
  for (auto& thread : threads) thread.join();
}
