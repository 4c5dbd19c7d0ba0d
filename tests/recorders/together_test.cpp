// The tensors of one event are folded all or none.
#include <torch/torch.h>

#include <atomic>
#include <thread>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/reductions/reductions.hpp>

#include "../support.hpp"

using namespace torchtap_test;
using namespace torchtap::recorders;
using namespace torchtap::reductions;

namespace {

using Two = std::tuple<at::Tensor, at::Tensor>;

/// Hands out two tensors.
struct PairImpl : torch::nn::Module {
  Two forward(const at::Tensor& first, const at::Tensor& second) { return {first, second}; }
};
TORCH_MODULE(Pair);

/// A reduction without `check`: only an update can tell.
struct Picky {
  void update(const at::Tensor& sample) {
    TORCH_CHECK_VALUE(!sample.is_sparse() && sample.numel() == 3, "Picky: expected 3 elements, got ",
                      sample.numel(), ".");
    sum = sum.defined() ? sum + sample : sample.clone();
    ++seen;
  }
  void merge(const Picky& other) {
    if (other.seen == 0) return;
    sum = sum.defined() ? sum + other.sum : other.sum.clone();
    seen += other.seen;
  }
  std::int64_t count() const { return seen; }
  torchtap::core::Results results() const {
    return seen == 0 ? torchtap::core::Results{} : torchtap::core::Results{{"value", sum}};
  }
  at::Tensor sum;
  std::int64_t seen = 0;
};

template <class Reduction>
void check_all_or_none(const Reduction& reduction, const std::string& result) {
  torch::nn::Sequential model{Pair()};
  ForwardOutput outputs(Options().all_tensors().reduction(reduction));
  outputs.modules(*model, torchtap::selectors::names("0"));
  const auto good = torch::ones({3}), bad = torch::ones({4});
  // Nothing was seen yet: what was folded of the first event is given back with the second slot.
  BOOST_CHECK_THROW(model->forward<Two>(good, at::Tensor(torch::ones({3}).to_sparse())), c10::Error);
  BOOST_TEST(outputs[0].samples() == 0);
  BOOST_TEST(outputs[0].slots() == 0);
  model->forward<Two>(good, good);
  model->forward<Two>(good, good);
  const auto value = [&](std::int64_t slot) {
    const auto found = outputs[0].slot(slot);
    return found.is_tensor() ? found.tensor() : found.at(result).tensor();
  };
  const auto first = value(0).clone(), second = value(1).clone();
  BOOST_CHECK_THROW(model->forward<Two>(good, bad), c10::Error);
  BOOST_CHECK_THROW(model->forward<Two>(bad, good), c10::Error);
  BOOST_TEST(outputs[0].samples() == 2);
  BOOST_TEST(value(0).equal(first));
  BOOST_TEST(value(1).equal(second));
  model->forward<Two>(good, good);
  BOOST_TEST(outputs[0].samples() == 3);
  BOOST_TEST(value(0).equal(value(1)));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(together)

BOOST_AUTO_TEST_CASE(what_one_tensor_refuses_no_slot_has_seen) {
  check_all_or_none(Sum{}, "");
  check_all_or_none(Series(Moments{}, Max{}), "moments.mean");
  check_all_or_none(Picky{}, "");
}

BOOST_AUTO_TEST_CASE(threads_fold_all_or_none) {
  torch::nn::Sequential model{Pair()};
  ForwardOutput outputs(Options().all_tensors().reduction(Sum{}));
  outputs.modules(*model, torchtap::selectors::names("0"));
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        try {
          model->forward<Two>(torch::ones({3}), torch::ones({(i + t) % 3 == 0 && i > 0 ? 4 : 3}));
        } catch (const c10::Error&) {
          ++refused;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  BOOST_TEST(refused > 0);
  BOOST_TEST(outputs[0].samples() == 800 - refused);
  const auto expected = torch::full({3}, static_cast<double>(800 - refused));
  BOOST_TEST(outputs[0].slot(0).tensor().equal(expected.to(outputs[0].slot(0).tensor().scalar_type())));
  BOOST_TEST(outputs[0].slot(1).tensor().equal(outputs[0].slot(0).tensor()));
}

BOOST_AUTO_TEST_SUITE_END()
