// What does padding do to the statistics of a transformer? Trains a GPT (examples/zoo, which knows nothing of
// torchtap) on the sentences of a text, padded to the longest of their batch, and records each layer over the
// same sentences in batches of 1, 8 and 64. One recorder has the numbers with padding, which depend on the
// batches, and under where("mask", …) those without, which do not.

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <torchtap/core/context.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/abs_max.hpp>
#include <torchtap/reductions/by.hpp>
#include <torchtap/reductions/map.hpp>
#include <torchtap/reductions/mean.hpp>
#include <torchtap/reductions/moments.hpp>
#include <torchtap/reductions/series.hpp>
#include <torchtap/reductions/where.hpp>
#include <torchtap/storage/file.hpp>

#include "zoo/gpt.hpp"

namespace tap = torchtap;
namespace F = torch::nn::functional;

namespace {

constexpr std::int64_t kLongest = 192, kPadding = 256;  // tokens are bytes, and one that stands for none
constexpr std::array<std::int64_t, 3> kBatches = {1, 8, 64};

/// The sentences of a text, as far as they are neither short nor long: tokens [length] each.
std::vector<at::Tensor> read_sentences(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  TORCH_CHECK_VALUE(stream.is_open(), path, ": cannot be read.");
  std::vector<at::Tensor> sentences;
  std::vector<std::int64_t> tokens;
  for (auto byte = std::istreambuf_iterator<char>(stream); byte != std::istreambuf_iterator<char>(); ++byte) {
    const bool space = *byte == ' ' || *byte == '\n';
    const bool ends = !tokens.empty() && (tokens.back() == '.' || tokens.back() == ':') && space;
    if (!space || !(tokens.empty() || tokens.back() == ' ' || ends)) {
      tokens.push_back(space ? ' ' : static_cast<unsigned char>(*byte));
    }
    if (!ends) continue;
    const auto length = static_cast<std::int64_t>(tokens.size());
    if (length >= 8 && length <= kLongest) sentences.push_back(torch::tensor(tokens));
    tokens.clear();
  }
  TORCH_CHECK_VALUE(sentences.size() >= 64, path, ": ", sentences.size(), " sentences are too few.");
  return sentences;
}

/// [sentences, longest]
at::Tensor padded(const std::vector<at::Tensor>& sentences) {
  return torch::nn::utils::rnn::pad_sequence(sentences, /*batch_first=*/true, kPadding);
}

/// The mean loss of predicting each byte of a batch from those before it, without padding.
at::Tensor loss_on(zoo::GPT& net, const at::Tensor& tokens) {
  return F::cross_entropy(net(tokens.slice(1, 0, -1)).flatten(0, 1), tokens.slice(1, 1).flatten(),
                          F::CrossEntropyFuncOptions().ignore_index(kPadding));
}

void train(zoo::GPT& net, const std::vector<at::Tensor>& sentences, std::int64_t steps) {
  torch::optim::Adam optimizer(net->parameters(), 2e-3);
  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<at::Tensor> batch;
    for (const at::Tensor& i : torch::randint(static_cast<std::int64_t>(sentences.size()), {16}).unbind()) {
      batch.push_back(sentences[i.item<std::int64_t>()]);
    }
    const at::Tensor loss = loss_on(net, padded(batch));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 25 == 0 || step + 1 == steps) {
      std::printf("step %lld: loss %.3f\n", static_cast<long long>(step), loss.item<double>());
      std::fflush(stdout);
    }
  }
}

/// The outputs of layers, [batch, tokens, features]: mean, variance, largest magnitude, and the mean norm of
/// the tokens at each position; without padding, and with it.
tap::recorders::ForwardOutput make_recorder() {
  using namespace tap::reductions;
  const auto norm = [](const at::Tensor& tokens) { return tokens.norm(2, -1); };
  const Series statistics(Moments(MomentsOptions().over_all(true).order(2)),
                          AbsMax(AbsMaxOptions().over_all(true)),
                          map(norm, by("position", kLongest, Mean(MeanOptions().over({0})))));
  return tap::recorders::ForwardOutput(Series(where("mask", statistics), statistics));
}

/// Runs all sentences, `batch` at a time.
tap::recorders::ForwardOutput record(zoo::GPT& net, const std::vector<at::Tensor>& sentences,
                                     std::int64_t batch) {
  const torch::NoGradGuard no_grad;
  auto layers = make_recorder();
  layers.attach(net,
                tap::selectors::names("drop", "blocks.?", "blocks.?.attn", "blocks.?.mlp", "ln_f", "head"));
  for (auto first = sentences.begin(); first != sentences.end();) {
    const auto last = first + std::min<std::ptrdiff_t>(batch, sentences.end() - first);
    const at::Tensor tokens = padded({first, last});
    const tap::core::Context named(
        {{"mask", tokens.ne(kPadding)}, {"position", torch::arange(tokens.size(1)).expand_as(tokens)}});
    net(tokens);
    first = last;
  }
  layers.detach();
  return layers;
}

double deviation(const tap::recorders::Subrecorder& layer, const std::string& which) {
  return std::sqrt(layer.tensor(which + "moments.variance").item<double>());
}

bool run(const std::string& text, const std::filesystem::path& folder, std::int64_t steps) {
  torch::manual_seed(1);
  const auto sentences = read_sentences(text);
  zoo::GPT net(zoo::GPTOptions(kPadding + 1).context(kLongest).layers(3).heads(4).width(64));
  train(net, sentences, steps);
  net->eval();

  const auto options = tap::storage::SaveOptions().mkdir(true).overwrite(true);
  std::vector<tap::recorders::ForwardOutput> recorded;
  for (const std::int64_t batch : kBatches) {
    recorded.push_back(record(net, sentences, batch));
    recorded.back().save(folder / ("batch_" + std::to_string(batch)), options);
  }
  tap::core::Value::Dict parameters;
  for (const auto& parameter : net->named_parameters()) parameters.emplace_back(parameter.key(), *parameter);
  tap::storage::save_value(folder / "parameters.pt", parameters, options);
  tap::storage::save_value(folder / "sentences.pt", padded(sentences), options);

  bool right = true;
  std::printf("\nstandard deviation   without padding (batches of 1, 8, 64)   with padding\n");
  for (const auto& layer : recorded[0]) {
    std::printf("%-19s", layer.path().c_str());
    for (const char* which : {"where.", "series."}) {
      for (auto& batches : recorded) std::printf("  %9.5f", deviation(batches.at(layer.path()), which));
    }
    for (auto& batches : recorded) {
      const double same = deviation(batches.at(layer.path()), "where.") / deviation(layer, "where.");
      right = right && std::abs(same - 1) < 1e-5;
    }
    std::printf("\n");
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> given = {{"--text", ""}, {"--save", "padded"}, {"--steps", "300"}};
  try {
    for (int i = 1; i + 1 < argc; i += 2) given.at(argv[i]) = argv[i + 1];
    return run(given["--text"], given["--save"], std::stoll(given["--steps"])) ? 0 : 1;
  } catch (const std::out_of_range&) {
    std::cerr << "usage: padding --text FILE [--save FOLDER] [--steps N]\n";
    return 2;
  } catch (const c10::Error& error) {
    std::cerr << "padding: " << error.what_without_backtrace() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "padding: " << error.what() << "\n";
  }
  return 1;
}
