// Publishes what the layers of a classifier make of one image while it is trained, so that others can watch:
//
//   fashion_mnist_watched 20000 1 &
//   torchtap watch fashion-mnist --picture conv1
//   torchtap video fashion-mnist --names 'conv*,scores' --save training.mp4
//
// usage: fashion_mnist_watched [SAMPLES [READERS]]    waits for so many readers; without arguments it checks
// itself
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include <torchtap/recorders/recorders.hpp>
#include <torchtap/views/stream/stream.hpp>

#include "../fashion_mnist/classifier.hpp"

namespace stream = torchtap::views::stream;
using namespace std::chrono_literals;

namespace {

constexpr const char* kData = "/usr/share/datasets/fashion-mnist";
constexpr std::int64_t kEvery = 10;  // steps between two looks

/// Trains, and lets `look` do something in every tenth step. Returns the last loss.
double train_and(const Dataset& data, const std::function<void(torch::nn::Sequential&, const Step&)>& look) {
  torch::manual_seed(0);
  auto classifier = make_classifier();
  double loss = 0;
  train(classifier, data, Training{1, 64, 1e-3}, [&](const Step& step) {
    loss = step.loss;
    if (step.index % kEvery == 0) look(classifier, step);
  });
  return loss;
}

/// The same with a publisher. What the layers do with `image` is sent, and not what they do with the training
/// set.
double train_watched(const Dataset& data, const at::Tensor& image, stream::Publisher& publisher) {
  bool looking = false;
  auto sent = torchtap::recorders::RecorderOptions().stream(publisher);
  sent.condition([&looking](const torchtap::recorders::Sample&) { return looking; });
  torchtap::recorders::ForwardOutput layers(sent);
  stream::Source loss = publisher.source("loss");
  return train_and(data, [&](torch::nn::Sequential& classifier, const Step& step) {
    if (layers.size() == 0) layers.attach(*classifier);
    publisher.annotate("step " + std::to_string(step.index) + " of " + std::to_string(step.count) +
                       ", loss " + std::to_string(step.loss));
    looking = true;
    {
      const torch::NoGradGuard no_grad;
      classifier->forward(image);
    }
    looking = false;
    loss.publish(torch::tensor(step.loss));
  });
}

/// Whether a reader gets a picture of conv1 for each look, and the training does not know of it.
bool check() {
  const Dataset data = read_training_set(kData, 2000);
  const at::Tensor image = read_test_set(kData, 1).images;
  const std::string folder = "/tmp/torchtap-example-" + std::to_string(::getpid());
  std::int64_t frames = 0;
  std::int64_t missed = 0;
  double watched = 0;
  {
    stream::Publisher publisher("fashion-mnist", stream::PublisherOptions().directory(folder));
    stream::Reader reader("fashion-mnist", stream::Subscription().names({"conv1"}),
                          stream::ReaderOptions().directory(folder));
    watched = train_watched(data, image, publisher);
    while (auto frame = reader.next(0s)) {
      const bool fits = stream::to_tensor(*frame).sizes() == at::IntArrayRef({1, 16, 28, 28});
      frames += fits && frame->path == "conv1" ? 1 : 0;
    }
    missed = reader.missed();
  }
  ::rmdir(folder.c_str());
  const double alone = train_and(data, [](torch::nn::Sequential&, const Step&) {});
  std::cout << frames << " pictures of conv1, " << missed << " missed; loss " << watched << ", alone "
            << alone << '\n';
  return frames == 4 && missed == 0 && watched == alone;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return check() ? 0 : 1;
  const Dataset data = read_training_set(kData, std::atol(argv[1]));
  stream::Publisher publisher("fashion-mnist");
  while (argc > 2 && publisher.readers().size() < static_cast<std::size_t>(std::atol(argv[2])))
    std::this_thread::sleep_for(10ms);
  std::cout << "last loss " << train_watched(data, read_test_set(kData, 1).images, publisher) << '\n';
}
