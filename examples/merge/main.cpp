// Merges the recordings of two runs on parts of the data: loads them, restores the reductions from the state
// beside the results, merges them, adds further samples, and saves the result.

#include <torch/torch.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/moments.hpp>
#include <torchtap/reductions/restore.hpp>
#include <torchtap/storage/recording.hpp>
#include <torchtap/storage/save.hpp>

namespace tap = torchtap;

int main() {
  torch::manual_seed(0);
  torch::NoGradGuard no_grad;
  torch::nn::Sequential model({{"hidden", torch::nn::Linear(8, 16)}, {"act", torch::nn::Tanh()}});
  std::vector<at::Tensor> batches;
  for (int i = 0; i < 9; ++i) batches.push_back(torch::randn({32, 8}) + i);

  // Two jobs, perhaps on two machines.
  const auto options = tap::storage::SaveOptions().mkdir(true).overwrite(true);
  for (const int part : {0, 1}) {
    tap::recorders::ForwardOutput recorder(
        tap::reductions::Moments(tap::reductions::MomentsOptions().over({0})));
    recorder.attach(model, tap::selectors::names("act"));
    for (int i = 3 * part; i < 3 * part + 3; ++i) model->forward(batches[i]);
    recorder.save("merge.part" + std::to_string(part), options);
  }

  // Load, restore, merge.
  const auto first = tap::storage::load("merge.part0");
  const auto second = tap::storage::load("merge.part1");
  tap::reductions::Any moments = tap::reductions::restore(first.at("act").state().at(0));
  moments.merge(tap::reductions::restore(second.at("act").state().at(0)));

  // Continue with any reduction that the files hold.
  for (int i = 6; i < 9; ++i) moments.update(model->forward(batches[i]));

  // Save it as a recording that can be merged again.
  tap::storage::Entry entry;
  entry.path = "act";
  entry.type = first.at("act").type();
  entry.kind = first.at("act").kind();
  entry.samples = first.at("act").samples() + second.at("act").samples() + 3;
  entry.reduction = moments.describe();
  entry.value = tap::core::to_value(moments.results());
  entry.state.push_back(tap::core::save(moments).value());
  tap::storage::save("merge.all", {entry}, options);

  // The same in one run over all data.
  tap::recorders::ForwardOutput whole(tap::reductions::Moments(tap::reductions::MomentsOptions().over({0})));
  whole.attach(model, tap::selectors::names("act"));
  for (const auto& batch : batches) model->forward(batch);

  const auto all = tap::storage::load("merge.all");
  std::cout << all.at("act").path() << ": " << all.at("act").samples() << " samples, " << moments.count()
            << " rows of " << all.at("act").tensor("mean").sizes() << "\n";
  bool right = all.at("act").samples() == 9 && moments.count() == 9 * 32;
  for (const char* result : {"mean", "variance", "skewness", "kurtosis"}) {
    right = right && all.at("act").tensor(result).allclose(whole[0].tensor(result), 1e-8, 1e-10);
  }
  std::cout << (right ? "The results equal those of one run over all data.\n" : "WRONG\n");
  return right ? 0 : 1;
}
