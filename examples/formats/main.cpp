// What would each module's output lose in a format of low precision? Records it for a ResNet-18 that Python
// exported and a GPT of the zoo, and prints a table of the signal to noise ratios:
//
//   build/examples/formats resnet18.script.pt --save formats/
//   examples/formats/check.py formats/ --picture formats.svg
//
// Exit status 1 if a module has no results, or merged results differ from those of one recorder in a bit.
#include <torch/script.h>
#include <torch/torch.h>

#include <filesystem>
#include <initializer_list>
#include <iomanip>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/quantization/formats.hpp>
#include <torchtap/torchtap.hpp>

#include "../zoo/gpt.hpp"

namespace tap = torchtap;
namespace rec = torchtap::recorders;
using tap::quantization::Formats;
using tap::quantization::FormatsOptions;

namespace {

Formats everything() {
  return Formats(FormatsOptions().over_all(true));
}

void print(const std::string& model, const rec::Recorder& recorded) {
  const auto formats = everything().formats();
  std::cout << model << ", signal to noise in dB"
            << std::string(model.size() < 10 ? 10 - model.size() : 0, ' ');
  for (const auto& format : formats) std::cout << std::setw(8) << format;
  std::cout << '\n' << std::fixed << std::setprecision(1);
  for (const auto& module : recorded) {
    std::cout << std::left << std::setw(33) << module.path() << std::right;
    const auto results = module.results();
    for (const auto& format : formats)
      std::cout << std::setw(8) << results.at(format + ".sqnr").item<double>();
    std::cout << '\n';
  }
}

/// Records the outputs of the modules without modules inside, over four batches, and saves what formats would
/// cost and, for check.py, the outputs themselves.
template <class Model, class Forward>
bool record(const std::string& name, Model& model, const std::filesystem::path& folder,
            const Forward& forward) {
  int batch = 0;
  const auto of_batches = [&](int remainder) {
    return rec::RecorderOptions().reduction(everything()).condition([&batch, remainder] {
      return batch % 2 == remainder;
    });
  };
  rec::ForwardOutput costs(everything()), first(of_batches(0)), second(of_batches(1)), samples;
  for (auto* recorder : std::initializer_list<rec::Recorder*>{&costs, &first, &second, &samples})
    recorder->attach(model, tap::selectors::leaves());
  const torch::NoGradGuard no_grad;
  for (; batch < 4; ++batch) forward();
  first.merge(second);
  print(name, costs);
  const auto options = tap::storage::SaveOptions().mkdir(true).overwrite(true);
  costs.save(folder / name / "costs", options);
  samples.save(folder / name / "samples", options);
  bool good = costs.size() > 0;
  for (std::int64_t i = 0; i < costs.size(); ++i)
    good = good && costs[i].samples() > 0 && costs[i].results() == first[i].results();
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 || std::string(argv[2]) != "--save") {
    std::cerr << "usage: formats RESNET.pt --save FOLDER\n";
    return 2;
  }
  torch::manual_seed(0);
  torch::jit::Module resnet = torch::jit::load(argv[1]);
  resnet.eval();
  bool good = record("resnet18", resnet, argv[3], [&] { resnet.forward({torch::randn({2, 3, 64, 64})}); });

  zoo::GPT gpt(zoo::GPTOptions(96).context(64).layers(2).heads(4).width(64));
  torch::optim::Adam optimizer(gpt->parameters(), 1e-3);
  const auto tokens = [] { return torch::arange(64).add(torch::randint(96, {8, 1})).remainder(96); };
  for (int step = 0; step < 20; ++step) {  // to count on: the next token is one more
    const torch::Tensor x = tokens();
    optimizer.zero_grad();
    const torch::Tensor loss =
        torch::nn::functional::cross_entropy(gpt->forward(x).flatten(0, 1), x.add(1).remainder(96).flatten());
    loss.backward();
    optimizer.step();
  }
  gpt->eval();
  good = record("gpt", gpt, argv[3], [&] { gpt->forward(tokens()); }) && good;
  return good ? 0 : 1;
}
