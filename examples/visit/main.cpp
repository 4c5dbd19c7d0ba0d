// Modules that return a struct: one specialisation tells torchtap where the tensors in it are, and one call
// registers the struct for values that pass between entries of a Sequential.

#include <torch/torch.h>

#include <iostream>
#include <string>

#include <torchtap/hooks/hooks.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/recorders/recorder.hpp>

namespace tap = torchtap;

struct Detections {
  at::Tensor boxes, scores;
  std::string source;
};

// Put this into the header that defines the struct, so that all files that call its module see it.
template <>
struct torchtap::hooks::Visit<Detections> {
  template <class Visitor>
  static void apply(Detections& value, Visitor&& visit) {
    visit(value.boxes);
    visit(value.scores);
  }
};

struct DetectorImpl : torch::nn::Module {
  Detections forward(const at::Tensor& x) {
    return {head(x).narrow(1, 0, 4), head(x).select(1, 4), "camera"};
  }
  torch::nn::Linear head = register_module("head", torch::nn::Linear(8, 5));
};
TORCH_MODULE(Detector);

/// Keeps detections with a positive score.
struct FilterImpl : torch::nn::Module {
  Detections forward(const Detections& found) {
    const at::Tensor kept = found.scores.gt(0);
    return {found.boxes.index({kept}), found.scores.index({kept}), found.source};
  }
};
TORCH_MODULE(Filter);

int main() {
  torch::manual_seed(0);
  torch::NoGradGuard no_grad;
  torch::nn::Sequential model(
      {{"detector", torch::nn::AnyModule(Detector())}, {"filter", torch::nn::AnyModule(Filter())}});
  const at::Tensor images = torch::randn({16, 8});

  tap::hooks::register_value<Detections>();  // they pass between entries of a Sequential

  // Each tensor has its own slot: 0 is boxes and 1 is scores, in the order of `visit`.
  tap::recorders::ForwardOutput outputs(tap::recorders::RecorderOptions().all_tensors());
  outputs.attach(model, tap::selectors::names("detector", "filter"));
  const auto bare = model->forward<Detections>(images);

  // Hooks see the tensors too, and may replace them.
  const auto handle = tap::hooks::attach(
      tap::model::find(*model, "detector"), tap::hooks::Kind::forward_output,
      [](tap::hooks::Event& event) { event.outputs()[1] = torch::ones_like(event.outputs()[1]); });
  const auto hooked = model->forward<Detections>(images);

  const auto scores = outputs.at("detector").slot(1).tensors();
  std::cout << outputs.at("detector").slots() << " tensors per call; " << bare.scores.size(0) << " of "
            << scores.at(0).size(0) << " detections are kept, and all " << hooked.scores.size(0)
            << " where a hook sets their scores to 1\n";
  const bool right = outputs.at("detector").slots() == 2 &&
                     scores.at(0).gt(0).sum().item<int64_t>() == bare.scores.size(0) &&
                     outputs.at("filter").slot(0).tensors().at(0).equal(bare.boxes) &&
                     hooked.scores.size(0) == 16 && hooked.source == "camera";
  std::cout << (right ? "The recorded tensors equal those of the structs.\n" : "WRONG\n");
  return right ? 0 : 1;
}
