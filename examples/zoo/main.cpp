// Trains the zoo's networks for a few steps on real data, to show that they work: a small ResNet-18 and a
// MobileNet classify Fashion-MNIST, a UNet segments the garment in noisy images of it, and a GPT predicts the
// characters of a text. Exit status 1 if a loss did not fall.

#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "../fashion_mnist/idx.hpp"
#include "gpt.hpp"
#include "mobilenet.hpp"
#include "resnet.hpp"
#include "unet.hpp"

namespace F = torch::nn::functional;

namespace {

constexpr const char* kUsage = "usage: zoo --text FILE [--data FOLDER] [--threads N]";

struct Arguments {
  std::string text;
  std::string data = "/usr/share/datasets/fashion-mnist";
  int threads = 1;  // more threads mostly wait for each other on a busy machine, as these nets are small
};

int parse_count(const std::string& text) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1) {
    throw std::invalid_argument(kUsage);
  }
  return count;
}

Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(kUsage);
    if (name == "--text") {
      arguments.text = argv[i + 1];
    } else if (name == "--data") {
      arguments.data = argv[i + 1];
    } else if (name == "--threads") {
      arguments.threads = parse_count(argv[i + 1]);
    } else {
      throw std::invalid_argument(kUsage);
    }
  }
  if (arguments.text.empty()) throw std::invalid_argument(kUsage);
  return arguments;
}

struct Losses {
  double first, last;
};

/// Minimises `loss`, which draws a new batch in each call.
Losses train(torch::nn::Module& net, int64_t steps, const std::function<torch::Tensor()>& loss) {
  torch::optim::Adam optimizer(net.parameters(), torch::optim::AdamOptions(2e-3));
  Losses losses{};
  net.train();
  for (int64_t step = 0; step < steps; ++step) {
    const torch::Tensor value = loss();
    optimizer.zero_grad();
    value.backward();
    optimizer.step();
    losses.last = value.item<double>();
    if (step == 0) losses.first = losses.last;
  }
  return losses;
}

/// Prints the losses; returns false if the training failed.
bool report(const char* net, const Losses& losses, const char* measure, double value) {
  std::printf("%-10s loss %.3f at the first step, %.3f at the last; %s %.3f\n", net, losses.first,
              losses.last, measure, value);
  std::fflush(stdout);
  return losses.last < losses.first;
}

torch::Tensor random_rows(int64_t rows, int64_t batch) {
  return torch::randint(rows, {batch}, torch::kLong);
}

template <class Net>
bool run_classifier(const char* name, Net net, int64_t steps, const Dataset& training_set,
                    const Dataset& test_set) {
  const Losses losses = train(*net, steps, [&] {
    const torch::Tensor rows = random_rows(training_set.size(), 64);
    return F::cross_entropy(net(training_set.images.index_select(0, rows)),
                            training_set.labels.index_select(0, rows));
  });

  const torch::NoGradGuard no_grad;
  net->eval();
  const torch::Tensor right = net(test_set.images).argmax(1).eq(test_set.labels);
  return report(name, losses, "accuracy on test images",
                right.to(torch::kFloat).mean().template item<double>());
}

/// 1 where a garment is, 0 on the background, which is black throughout: `[N, 1, 28, 28]`.
torch::Tensor foreground(const torch::Tensor& images) {
  return images.gt(images.min()).to(torch::kFloat);
}

torch::Tensor with_noise(const torch::Tensor& images) {
  return images + torch::randn_like(images);
}

bool run_unet(const torch::Tensor& training_images, const torch::Tensor& test_images) {
  zoo::UNet net(zoo::UNetOptions(1, 1).width(8).depth(3));
  const Losses losses = train(*net, 100, [&] {
    const torch::Tensor images = training_images.index_select(0, random_rows(training_images.size(0), 16));
    return F::binary_cross_entropy_with_logits(net(with_noise(images)), foreground(images));
  });

  const torch::NoGradGuard no_grad;
  net->eval();
  const torch::Tensor found = net(with_noise(test_images)).gt(0);
  const torch::Tensor wanted = foreground(test_images).to(torch::kBool);
  const double common = found.logical_and(wanted).sum().item<double>();
  const double either = found.logical_or(wanted).sum().item<double>();
  return report("UNet", losses, "intersection over union on test images", common / either);
}

/// The bytes of a file mapped to numbers below `vocab`, the number of different bytes.
struct Text {
  torch::Tensor tokens;  // [length] int64
  int64_t vocab = 0;
};

Text read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  if (!stream || bytes.empty()) throw std::runtime_error(path + ": cannot be read");
  std::array<int64_t, 256> token_of;
  token_of.fill(-1);
  Text text;
  std::vector<int64_t> tokens;
  for (const unsigned char byte : bytes) {
    if (token_of[byte] < 0) token_of[byte] = text.vocab++;
    tokens.push_back(token_of[byte]);
  }
  text.tokens = torch::tensor(tokens, torch::kLong);
  return text;
}

/// The loss of predicting each token of a few passages from the preceding ones. `tokens` is `[length]`.
torch::Tensor loss_on_passages(zoo::GPT& net, const torch::Tensor& tokens, int64_t batch, int64_t context) {
  const torch::Tensor passages = tokens.unfold(0, context + 1, 1);
  const torch::Tensor chosen = passages.index_select(0, random_rows(passages.size(0), batch));
  const torch::Tensor logits = net(chosen.slice(1, 0, context));
  return F::cross_entropy(logits.flatten(0, 1), chosen.slice(1, 1).flatten());
}

bool run_gpt(const Text& text) {
  constexpr int64_t kContext = 64;
  const int64_t learned = text.tokens.size(0) * 9 / 10;
  if (text.tokens.size(0) - learned <= kContext) throw std::runtime_error("The text is too short to learn");
  zoo::GPT net(zoo::GPTOptions(text.vocab).context(kContext).layers(2).heads(4).width(64));
  const Losses losses =
      train(*net, 150, [&] { return loss_on_passages(net, text.tokens.slice(0, 0, learned), 8, kContext); });

  const torch::NoGradGuard no_grad;
  net->eval();
  const torch::Tensor unseen = loss_on_passages(net, text.tokens.slice(0, learned), 64, kContext);
  return report("GPT", losses, "loss on the text's unseen end", unseen.item<double>());
}

bool run(const Arguments& arguments) {
  at::set_num_threads(arguments.threads);
  torch::manual_seed(1);
  const Text text = read_text(arguments.text);
  const Dataset training_set = read_training_set(arguments.data, 10000);
  const Dataset test_set = read_test_set(arguments.data, 1000);
  const bool resnet = run_classifier(
      "ResNet-18", zoo::ResNet18(zoo::ResNet18Options().num_classes(10).in_channels(1).width(16)), 100,
      training_set, test_set);
  const bool mobilenet =
      run_classifier("MobileNet", zoo::MobileNet<>(1, 10, 16), 100, training_set, test_set);
  const bool unet = run_unet(training_set.images, test_set.images);
  const bool gpt = run_gpt(text);
  return resnet && mobilenet && unet && gpt;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (run(parse_arguments(argc, argv))) return 0;
    std::cerr << "zoo: a loss did not fall\n";
  } catch (const std::invalid_argument& error) {
    std::cerr << error.what() << "\n";
    return 2;
  } catch (const c10::Error& error) {
    std::cerr << "zoo: " << error.what_without_backtrace() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "zoo: " << error.what() << "\n";
  }
  return 1;
}
