#include <boost/test/unit_test.hpp>
#include <torch/torch.h>
#include <torchtap/hooks/hooks.hpp>

namespace hooks = torchtap::hooks;
using hooks::Event;
using hooks::Kind;

struct BlockImpl : torch::nn::Cloneable<BlockImpl> {
  explicit BlockImpl(int64_t n) : n(n) { reset(); }
  void reset() override {
    fc = register_module("fc", torchtap::nn::Linear(n, n));
    lstm = register_module("lstm", torchtap::nn::LSTM(n, n));
  }
  at::Tensor forward(const at::Tensor& x) { return fc(fc(x)) + std::get<0>(lstm(x)); }
  int64_t n;
  torchtap::nn::Linear fc{nullptr};
  torchtap::nn::LSTM lstm{nullptr};
};
TORCHTAP_MODULE(Block);

BOOST_AUTO_TEST_CASE(smoke) {
  torch::nn::Sequential model(torch::nn::Linear(8, 8), torch::nn::ReLU(), Block(8), torch::nn::LSTM(8, 4));
  std::vector<std::string> log;
  std::vector<hooks::Handle> handles;
  for (const auto& ref : torchtap::core::walk_modules(*model)) {
    for (auto kind : {Kind::forward_pre, Kind::forward, Kind::backward_input, Kind::backward_output}) {
      handles.push_back(hooks::attach(ref, kind, [&log](Event& e) {
        log.push_back(c10::str(int(e.kind()), " ", e.path(), " ", e.type(), " call ", e.call_index(), " slot ", e.slot()));
      }));
    }
  }
  auto x = torch::randn({2, 3, 8}, torch::requires_grad());
  auto y = model->forward<std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>>>(x);
  std::get<0>(y).sum().backward();
  for (auto& l : log) std::cout << l << "\n";
  handles.clear();
  log.clear();
  model->forward<std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>>>(x);
  BOOST_TEST(log.empty());
}
