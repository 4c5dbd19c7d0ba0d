// Where does a classifier look? Grad-CAM (Selvaraju et al. 2017) of ten images of Fashion-MNIST, one of each
// class: the maps of a layer, weighted by their mean gradients. Two recorders have both. Writes one picture,
// grad_cam.ppm: the images above, and where the classifier looks, in red, below.
//
// usage: grad_cam [options of fashion_mnist]
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <vector>

#include <torchtap/recorders/recorder.hpp>
#include <torchtap/storage/file.hpp>

#include "../fashion_mnist/arguments.hpp"
#include "../fashion_mnist/classifier.hpp"

namespace tap = torchtap;

/// Which part of each image speaks for the class that the classifier chooses: [N, 28, 28], 0 to 1.
static at::Tensor grad_cam(torch::nn::Sequential& classifier, const at::Tensor& images) {
  const auto layer = tap::selectors::names("relu2");  // the last one with large maps, [N, 32, 14, 14]
  tap::recorders::ForwardOutput maps;
  tap::recorders::BackwardOutput gradients;
  maps.attach(classifier, layer);
  gradients.attach(classifier, layer);
  classifier->forward(images).amax(1).sum().backward();  // an image's score depends on no other image

  const at::Tensor weights = gradients[0].tensors().at(0).mean({2, 3}, /*keepdim=*/true);
  const at::Tensor cam = (weights * maps[0].tensors().at(0)).sum(1, /*keepdim=*/true).relu();
  const at::Tensor large = at::upsample_bilinear2d(cam, {28, 28}, /*align_corners=*/false).squeeze(1);
  return large / large.amax({1, 2}, /*keepdim=*/true).clamp_min(1e-12);
}

/// Images and where the classifier looks, both [N, 28, 28] and from 0 to 1, as a portable pixmap.
static void write_picture(const std::filesystem::path& file, const at::Tensor& images,
                          const at::Tensor& looked_at) {
  const at::Tensor rest = images * (1 - looked_at);  // red where it looks, grey elsewhere
  const at::Tensor below = torch::stack({torch::max(images, looked_at), rest, rest}, -1);
  const at::Tensor both = torch::stack({images.unsqueeze(-1).expand_as(below), below});
  const at::Tensor page = both.permute({0, 2, 1, 3, 4}).reshape({2 * 28, -1, 3}).mul(255).round();
  const at::Tensor pixels = page.to(at::kByte).repeat_interleave(3, 0).repeat_interleave(3, 1);
  std::ofstream stream(file, std::ios::binary);
  stream << "P6\n" << pixels.size(1) << ' ' << pixels.size(0) << "\n255\n";
  stream.write(static_cast<const char*>(pixels.data_ptr()), pixels.numel());
  TORCH_CHECK(stream.flush(), file, ": cannot be written.");
}

int main(int argc, char** argv) try {
  const auto arguments = parse_arguments(argc, argv);
  if (!arguments) return 0;
  torch::manual_seed(static_cast<std::uint64_t>(arguments->seed));
  if (arguments->threads > 0) at::set_num_threads(static_cast<int>(arguments->threads));
  torch::nn::Sequential classifier = make_classifier();
  const Dataset training_set = read_training_set(arguments->data, arguments->samples);
  train(classifier, training_set, {arguments->epochs, arguments->batch}, [](const Step&) {});

  const Dataset test = read_test_set(arguments->data, arguments->test);
  std::vector<at::Tensor> first;  // of each class
  for (std::int64_t label = 0; label < 10; ++label) first.push_back(test.labels.eq(label).nonzero()[0]);
  const at::Tensor rows = torch::cat(first), images = test.images.index_select(0, rows);
  const at::Tensor looked_at = grad_cam(classifier, images);

  tap::core::Value::Dict result = {{"rows", rows}, {"looked_at", looked_at}};
  for (const auto& parameter : classifier->named_parameters())
    result.emplace_back(parameter.key(), parameter->detach());
  const std::filesystem::path folder = arguments->save;
  tap::storage::save_value(folder / "grad_cam.pt", result,
                           tap::storage::SaveOptions().mkdir(true).overwrite(true));
  write_picture(folder / "grad_cam.ppm", (images.squeeze(1) * 0.3530 + 0.2860).clamp(0, 1), looked_at);
  return 0;
} catch (const std::exception& error) {
  std::cerr << "grad_cam: " << error.what() << "\n";
  return 1;
}
