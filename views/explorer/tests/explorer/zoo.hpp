#pragma once

// The networks of examples/zoo, with data to run them on.

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "support.hpp"
#include "zoo/detector.hpp"
#include "zoo/gpt.hpp"
#include "zoo/mobilenet.hpp"
#include "zoo/resnet.hpp"
#include "zoo/tagger.hpp"
#include "zoo/unet.hpp"
#include "zoo/vae.hpp"

/// `zoo::Gaussian` is left out on purpose: calls whose results hooks cannot read.
template <>
struct torchtap::hooks::Visit<zoo::VAEOutput> {
  template <class Visitor>
  static void apply(zoo::VAEOutput& value, Visitor&& visit) {
    visit(value.reconstruction);
    visit(value.mean);
    visit(value.log_variance);
  }
};

namespace support {

/// A network with its forward on some data, which returns something to go backward from.
struct Network {
  std::shared_ptr<nn::Module> model;
  std::function<at::Tensor()> forward;
};

template <class Holder, class Function>
Network network(Holder model, Function&& forward) {
  return {model.ptr(), [model, forward]() mutable { return forward(model); }};
}

inline Network make_resnet() {
  return network(zoo::ResNet18(zoo::ResNet18Options().num_classes(10).width(8)),
                 [x = torch::randn({2, 3, 32, 32})](auto& model) { return model(x).square().mean(); });
}
inline Network make_unet() {
  return network(zoo::UNet(zoo::UNetOptions(1, 2).width(4).depth(2)),
                 [x = torch::randn({2, 1, 21, 18})](auto& model) { return model(x).square().mean(); });
}
inline Network make_gpt() {
  return network(zoo::GPT(zoo::GPTOptions(20).context(16).layers(2).heads(2).width(16)),
                 [x = torch::randint(20, {2, 9})](auto& model) { return model(x).logsumexp(-1).mean(); });
}
inline Network make_vae() {
  return network(zoo::VAE(12, 8, 3), [x = torch::rand({4, 12})](auto& model) {
    const auto out = model(x);
    return torch::binary_cross_entropy(out.reconstruction.to(at::kFloat), x) + out.mean.square().mean() +
           out.log_variance.exp().mean();
  });
}
inline Network make_tagger() {
  return network(zoo::Tagger(20, 5, 8), [x = torch::randint(20, {3, 7}), lengths = torch::tensor({7, 2, 4})](
                                            auto& model) { return model(x, lengths).square().mean(); });
}
inline Network make_detector() {
  return network(zoo::Detector(3), [x = torch::randn({2, 3, 16, 16})](auto& model) {
    const auto found = model(x);
    return found.at("boxes").square().mean() + found.at("scores").mean();
  });
}
inline Network make_mobilenet() {
  return network(zoo::MobileNet<zoo::Separable>(3, 10, 4, 2),
                 [x = torch::randn({2, 3, 16, 16})](auto& model) { return model(x).square().mean(); });
}

struct Entry {
  const char* name;
  Network (*make)();
};
inline std::ostream& operator<<(std::ostream& out, const Entry& entry) {
  return out << entry.name;
}

inline const Entry zoo_entries[]{{"ResNet-18", make_resnet},
                                 {"U-Net", make_unet},
                                 {"GPT", make_gpt},
                                 {"VAE", make_vae},
                                 {"tagger", make_tagger},
                                 {"detector", make_detector},
                                 {"MobileNet", make_mobilenet}};

}  // namespace support
