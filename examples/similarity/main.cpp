// How alike are two ResNet-18 that differ in their seeds? Trains both on Fashion-MNIST and compares each
// block of one with each block of the other by linear CKA (Kornblith et al. 2019) over the test images, which
// ranks share:
//
//   examples/fashion_mnist_ranks/run.py 3 build/examples/similarity --save similar/
//   examples/similarity/check.py similar/ --picture similarity.svg
//
// It is one process where RANK is not set. Exit status 1 if the merged recorders miss an image.
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <torchtap/core/context.hpp>
#include <torchtap/distributed/distributed.hpp>
#include <torchtap/recorders/companion.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/any_series.hpp>
#include <torchtap/reductions/linear_cka.hpp>
#include <torchtap/storage/file.hpp>

#include "../fashion_mnist/idx.hpp"
#include "../zoo/resnet.hpp"

namespace tap = torchtap;
namespace rec = torchtap::recorders;

namespace {

const std::vector<std::string> kBlocks{"layer1.0", "layer1.1", "layer2.0", "layer2.1",
                                       "layer3.0", "layer3.1", "layer4.0", "layer4.1"};

struct Arguments {
  std::map<std::string, std::string> texts{{"--data", "/usr/share/datasets/fashion-mnist"},
                                           {"--save", "similar"}};
  std::map<std::string, std::int64_t> numbers{
      {"--samples", 6000}, {"--test", 10000}, {"--epochs", 2}, {"--batch", 250}, {"--width", 64}};

  Arguments(int argc, char** argv) {
    for (int i = 1; i < argc; i += 2) {
      const auto text = texts.find(argv[i]);
      const auto number = numbers.find(argv[i]);
      const bool valued = i + 1 < argc;
      if (valued && text != texts.end()) {
        text->second = argv[i + 1];
      } else if (valued && number != numbers.end() && std::atol(argv[i + 1]) > 0) {
        number->second = std::atol(argv[i + 1]);
      } else {
        throw std::invalid_argument(
            "usage: similarity [--data FOLDER] [--save FOLDER] [--samples N] [--test N] [--epochs N] "
            "[--batch N] [--width CHANNELS]");
      }
    }
  }
};

/// The same model on each rank, as each trains with the same seed and one thread.
zoo::ResNet18 trained(std::uint64_t seed, const Dataset& data, const Arguments& arguments) {
  torch::manual_seed(seed);
  zoo::ResNet18 model(
      zoo::ResNet18Options().num_classes(10).in_channels(1).width(arguments.numbers.at("--width")));
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  for (std::int64_t epoch = 0; epoch < arguments.numbers.at("--epochs"); ++epoch) {
    for (const auto& rows : torch::randperm(data.size()).chunk((data.size() + 63) / 64)) {
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(model->forward(data.images.index_select(0, rows)),
                                           data.labels.index_select(0, rows))
          .backward();
      optimizer.step();
    }
  }
  model->eval();
  return model;
}

/// Maps [N, C, H, W] become rows [N, C].
at::Tensor pooled(const at::Tensor& maps) {
  return maps.mean({2, 3});
}

/// Linear CKA of each block of `model` with each of `other`, which may be the same model.
rec::ForwardOutput each_with_each(const zoo::ResNet18& model, const zoo::ResNet18& other) {
  rec::RecorderOptions options;
  std::vector<tap::reductions::Any> members;
  for (const auto& path : kBlocks) {
    options.with(path, rec::output(other, "/" + path).map(pooled));
    members.emplace_back(tap::reductions::LinearCKA(path));
  }
  rec::ForwardOutput alike(options.transform(pooled).reduction(tap::reductions::AnySeries(members)));
  alike.attach(model, tap::selectors::names(kBlocks));
  return alike;
}

/// The rows themselves, for check.py.
rec::ForwardOutput rows_of(const zoo::ResNet18& model) {
  rec::ForwardOutput rows(rec::RecorderOptions().transform(pooled));
  rows.attach(model, tap::selectors::names(kBlocks));
  return rows;
}

tap::core::Value state_of(const zoo::ResNet18& model) {
  tap::core::Value::Dict state;
  for (const auto& parameter : model->named_parameters())
    state.emplace_back(parameter.key(), parameter->detach());
  for (const auto& buffer : model->named_buffers()) state.emplace_back(buffer.key(), *buffer);
  return state;
}

void print(const rec::Recorder& alike) {
  std::cout << "linear CKA, blocks of the first model by blocks of the second:\n" << std::setw(8) << "";
  for (const auto& path : kBlocks) std::cout << std::setw(10) << path;
  std::cout << std::fixed << std::setprecision(4);
  for (const auto& block : alike) {
    std::cout << '\n' << block.path();
    for (const auto& [name, value] : block.results()) std::cout << std::setw(10) << value.item<double>();
  }
  std::cout << std::endl;
}

/// Returns whether each image was recorded with its companions.
bool complete(const rec::Recorder& alike, const rec::Recorder& rows, std::int64_t images) {
  for (const auto& block : alike) {
    if (block.unmatched() != 0) return false;
  }
  for (const auto& block : rows) {
    if (torch::cat(block.tensors()).size(0) != images) return false;
  }
  return true;
}

bool run(const Arguments& arguments) {
  at::set_num_threads(1);
  ::setenv("RANK", "0", /*replace=*/0);
  ::setenv("WORLD_SIZE", "1", /*replace=*/0);
  const auto group = tap::distributed::from_environment();

  const std::string& folder = arguments.texts.at("--data");
  const Dataset training = read_training_set(folder, arguments.numbers.at("--samples"));
  const Dataset test = read_test_set(folder, arguments.numbers.at("--test"));
  zoo::ResNet18 first = trained(1, training, arguments), second = trained(2, training, arguments);

  auto alike = each_with_each(first, second), itself = each_with_each(first, first);
  auto first_rows = rows_of(first), second_rows = rows_of(second);
  const torch::NoGradGuard no_grad;
  // Neighbouring images, so that the rows of all ranks are in the order of the images.
  const auto mine = test.images.tensor_split(group.size()).at(group.rank());
  for (const auto& batch : mine.split(arguments.numbers.at("--batch"))) {
    const tap::core::Context together;  // both forwards are about the same images
    first->forward(batch);
    second->forward(batch);
  }

  const auto to_root = tap::distributed::MergeRanksOptions().everywhere(false).samples(std::int64_t{1} << 32);
  for (rec::Recorder* const recorder : {&alike, &itself, &first_rows, &second_rows})
    tap::distributed::merge_ranks(*recorder, group, to_root);
  if (group.rank() != 0) return true;

  print(alike);
  const std::filesystem::path save = arguments.texts.at("--save");
  const auto options = tap::storage::SaveOptions().mkdir(true).overwrite(true);
  alike.save(save / "alike", options);
  itself.save(save / "itself", options);
  first_rows.save(save / "first", options);
  second_rows.save(save / "second", options);
  tap::storage::save_value(save / "first.pt", state_of(first), options);
  tap::storage::save_value(save / "second.pt", state_of(second), options);
  return complete(alike, first_rows, test.size()) && complete(itself, second_rows, test.size());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(Arguments(argc, argv)) ? 0 : 1;
  } catch (const c10::Error& error) {
    std::cerr << "similarity: " << error.what_without_backtrace() << '\n';
  } catch (const std::exception& error) {
    std::cerr << "similarity: " << error.what() << '\n';
  }
  return 1;
}
