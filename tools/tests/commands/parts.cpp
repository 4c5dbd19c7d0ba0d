// Records the same model in three parts and as a whole, reduced in every way, for the tests of merge and
// show.
//
// usage: parts FOLDER
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <torchtap/core/context.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>

int main(int, char** argv) {
  using namespace torchtap;
  using namespace torchtap::reductions;
  using recorders::RecorderOptions;
  at::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(8, 6), torch::nn::ReLU(), torch::nn::Linear(6, 4));
  std::vector<at::Tensor> batches;
  for (const std::int64_t rows : {5, 3, 4, 4, 2, 1}) batches.push_back(at::randn({rows, 8}));

  const auto rows = ParseOptions().over({0});
  const std::vector<std::pair<std::string, RecorderOptions>> ways{
      {"mean", RecorderOptions().reduction(Mean(MeanOptions().over({0})))},
      {"named",
       RecorderOptions().reduction(parse("sum,mean,moments,min,max,abs_max,norm:3,count,first,last,ema,"
                                         "histogram:16:-2:2,histogram:8,quantiles,covariance,gram,top_k:3",
                                         rows))},
      {"series", RecorderOptions().reduction(Series(Moments(MomentsOptions().over({0})),
                                                    every(2, Mean(MeanOptions().over_all(true)))))},
      {"window", RecorderOptions().reduction(window(3, Max(MaxOptions().over({0}))))},
      {"over", RecorderOptions().reduction(over({0}, Sum()))},
      {"kept", RecorderOptions()},
      {"slots", RecorderOptions().all_tensors().reduction(Moments(MomentsOptions().over_all(true)))},
      {"kept_slots", RecorderOptions().all_tensors()},
      {"by", RecorderOptions().reduction(parse("by(key, moments, count, max, log_histogram)", rows))},
      {"dense", RecorderOptions().reduction(where("mask", by("key", 6, Mean(MeanOptions().over({0})))))},
      {"joint", RecorderOptions().reduction(
                    parse("joint(other, covariance), cross_covariance(other), cka(other)", rows))},
      {"callable",
       RecorderOptions().reduction([](const at::Tensor& a, const at::Tensor& b) { return a.sum() + b; })},
      {"map", RecorderOptions().reduction(
                  map([](const at::Tensor& x) { return x.abs(); }, Mean(MeanOptions().over({0}))))},
  };
  const std::vector<std::pair<std::string, std::pair<std::size_t, std::size_t>>> parts{
      {"1", {0, 2}}, {"2", {2, 4}}, {"3", {4, 6}}, {"none", {0, 0}}, {"whole", {0, 6}}};
  for (const auto& [way, options] : ways) {
    for (const auto& [part, range] : parts) {
      recorders::ForwardOutput recorder(options);
      recorder.modules(*model);
      for (std::size_t i = range.first; i < range.second; ++i) {
        // Keys that other parts do not see, and one that all do.
        const at::Tensor row = at::arange(batches[i].size(0)),
                         key = at::where(row.eq(1), 5.0, row.sub(1).add(static_cast<double>(i / 2)));
        const core::Context named(
            {{"key", key.to(at::kLong)}, {"mask", key.ne(1)}, {"other", batches[i].cos()}});
        model->forward(batches[i]);
      }
      recorder.save(std::string(argv[1]) + "/" + way + "/" + part,
                    storage::SaveOptions().mkdir(true).sync(false));
    }
  }
  return 0;
}
