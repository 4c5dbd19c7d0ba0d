// A reduction of your own: the mean entropy of a classifier's class distributions. With four member functions
// it works wherever torchtap's reductions do; a few more make it faster and savable.

#include <torch/torch.h>

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/moments.hpp>
#include <torchtap/reductions/series.hpp>

namespace tap = torchtap;

/// Mean entropy in bits of softmax(logits); samples are `[rows, classes]`.
class Entropy {
 public:
  // Required: add a sample, merge, count, return results. A call that throws must leave the object unchanged.
  void update(const at::Tensor& logits) {
    check(logits);
    const at::Tensor log_p = logits.to(torch::kDouble).log_softmax(1);
    sum_ -= (log_p.exp() * log_p).sum().item<double>() / std::log(2.0);
    rows_ += logits.size(0);
  }
  void merge(const Entropy& other) {
    sum_ += other.sum_;
    rows_ += other.rows_;
  }
  std::int64_t count() const { return rows_; }
  tap::core::Results results() const {
    if (rows_ == 0) return {};
    return {{"bits", torch::tensor(sum_ / static_cast<double>(rows_), torch::kDouble)}};
  }

  // Optional: describe(), a name for messages and manifests; check(), which throws what `update` would throw,
  // so that a Series updates all reductions or none; fresh(); commutative(), so that threads may fold side by
  // side; cereal's serialize, for snapshots.
  std::string describe() const { return "Entropy"; }
  void check(const at::Tensor& logits) const {
    TORCH_CHECK_VALUE(logits.dim() == 2 && logits.is_floating_point(),
                      "Entropy::update: expected floating-point logits of shape [rows, classes], got ",
                      logits.scalar_type(), " of shape ", logits.sizes(), ".");
  }
  Entropy fresh() const { return {}; }
  bool commutative() const { return true; }
  template <class Archive>
  void serialize(Archive& archive) {
    archive(sum_, rows_);
  }

 private:
  double sum_ = 0;
  std::int64_t rows_ = 0;
};

int main() {
  torch::manual_seed(0);
  torch::NoGradGuard no_grad;
  torch::nn::Sequential model({{"hidden", torch::nn::Linear(8, 16)},
                               {"relu", torch::nn::ReLU()},
                               {"head", torch::nn::Linear(16, 4)}});
  std::vector<at::Tensor> batches;
  for (int i = 0; i < 6; ++i) batches.push_back(torch::randn({32, 8}));

  // In a recorder, alone and in a Series with one of torchtap's.
  const auto make_recorder = [&] {
    tap::recorders::ForwardOutput recorder(tap::reductions::Series(
        Entropy{}, tap::reductions::Moments(tap::reductions::MomentsOptions().over_all(true))));
    recorder.attach(model, tap::selectors::names("head"));
    return recorder;
  };
  auto whole = make_recorder();
  for (const auto& batch : batches) model->forward(batch);
  whole.detach();

  // Two halves, the second resumed from a snapshot of the first, then merged.
  auto first = make_recorder();
  for (int i = 0; i < 3; ++i) model->forward(batches[i]);
  first.detach();
  first.snapshot("own_reduction.snapshot");
  auto resumed = make_recorder();
  resumed.restore("own_reduction.snapshot");
  resumed.detach();
  auto second = make_recorder();
  for (int i = 3; i < 6; ++i) model->forward(batches[i]);
  second.detach();
  resumed.merge(second);

  // The same by hand.
  const at::Tensor p = model->forward(torch::cat(batches)).to(torch::kDouble).softmax(1);
  const at::Tensor by_hand = -(p * p.log2()).sum(1).mean();

  const at::Tensor bits = whole[0].tensor("entropy.bits");
  std::cout << "mean entropy: " << bits.item<double>() << " of at most 2 bits, over " << whole[0].samples()
            << " batches\n";
  bool refused = false;
  try {
    Entropy{}.update(torch::zeros({3}));
  } catch (const c10::ValueError& error) {
    std::cout << error.what_without_backtrace() << '\n';
    refused = true;
  }
  const bool right = refused && bits.allclose(by_hand, 1e-6, 1e-6) &&
                     resumed[0].tensor("entropy.bits").allclose(bits, 1e-12, 1e-12) &&
                     resumed[0].tensor("moments.mean").allclose(whole[0].tensor("moments.mean"));
  std::cout << (right ? "It equals the one computed by hand, for one stream and for two merged ones.\n"
                      : "WRONG\n");
  return right ? 0 : 1;
}
