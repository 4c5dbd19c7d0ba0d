// The networks of examples/zoo: every operation gives the same bits again, however the network runs.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <functional>
#include <memory>
#include <optional>

#include "support.hpp"
#include "tests/convolves.hpp"
#include "zoo/detector.hpp"
#include "zoo/gpt.hpp"
#include "zoo/mobilenet.hpp"
#include "zoo/resnet.hpp"
#include "zoo/tagger.hpp"
#include "zoo/unet.hpp"
#include "zoo/vae.hpp"

namespace {

using namespace support;

/// A network with its forward on some data, which returns something to go backward from.
struct Network {
  std::shared_ptr<nn::Module> model;
  std::function<at::Tensor()> forward;
};

template <class Holder, class Function>
Network network(Holder model, Function&& forward) {
  return {model.ptr(), [model, forward]() mutable { return forward(model); }};
}

struct Entry {
  std::string name;
  std::function<Network()> make;
};
std::ostream& operator<<(std::ostream& out, const Entry& entry) {
  return out << entry.name;
}

const Entry entries[]{
    {"ResNet-18",
     [] {
       return network(zoo::ResNet18(zoo::ResNet18Options().num_classes(10).width(8)),
                      [x = torch::randn({2, 3, 64, 64})](auto& model) { return model(x).square().sum(); });
     }},
    {"U-Net",
     [] {
       return network(zoo::UNet(zoo::UNetOptions(1, 2).width(4).depth(2)),
                      [x = torch::randn({2, 1, 21, 18})](auto& model) { return model(x).square().sum(); });
     }},
    {"GPT",
     [] {
       return network(zoo::GPT(zoo::GPTOptions(20).context(16).layers(2).heads(2).width(16)),
                      [x = torch::randint(20, {2, 9})](auto& model) { return model(x).logsumexp(-1).sum(); });
     }},
    {"VAE",
     [] {
       return network(zoo::VAE(12, 8, 3), [x = torch::rand({4, 12})](auto& model) {
         const auto out = model(x);
         return torch::binary_cross_entropy(out.reconstruction.to(at::kFloat), x) + out.mean.square().sum() +
                out.log_variance.exp().sum();
       });
     }},
    {"tagger",
     [] {
       return network(zoo::Tagger(20, 5, 8),
                      [x = torch::randint(20, {3, 7}), lengths = torch::tensor({7, 2, 4})](auto& model) {
                        return model(x, lengths).square().sum();
                      });
     }},
    {"detector",
     [] {
       return network(zoo::Detector(3), [x = torch::randn({2, 3, 16, 16})](auto& model) {
         const auto found = model(x);
         return found.at("boxes").square().sum() + found.at("scores").sum();
       });
     }},
    {"MobileNet", [] {
       return network(zoo::MobileNet<zoo::Separable>(3, 10, 4, 2),
                      [x = torch::randn({2, 3, 16, 16})](auto& model) { return model(x).square().sum(); });
     }}};

void check(const Network& network, bool backward, const std::string& how) {
  trace::Tracer tracer(*network.model, trace::TraceOptions().save(trace::Save::all));
  tracer.run([&] {
    const at::Tensor loss = network.forward();
    if (backward) loss.backward();
  });
  const trace::History history = tracer.finish();
  const trace::Validation validation = history.validate();
  BOOST_TEST(bool(validation), how << ": " << text(validation));
  BOOST_TEST(validation.confirmed > 10, how);
}

BOOST_DATA_TEST_CASE(networks_of_the_zoo_give_the_same_bits_again, boost::unit_test::data::make(entries),
                     entry) {
  torch::manual_seed(0);
  at::set_num_threads(1);
  const Network network = entry.make();
  check(network, true, "train, with backward");
  network.model->eval();
  check(network, true, "eval, with backward");
  {
    const torch::NoGradGuard no_grad;
    check(network, false, "eval, without gradients");
    if (torchtap_test::convolves(at::kBFloat16)) {
      const Autocast autocast;
      check(network, false, "with autocast");
    }
  }
  const c10::InferenceMode mode;
  check(network, false, "in inference mode");
}

}  // namespace
