#include "classifier.hpp"

torch::nn::Sequential make_classifier() {
  using namespace torch::nn;
  return Sequential({{"conv1", Conv2d(Conv2dOptions(1, 16, 5).padding(2))},
                     {"relu1", ReLU()},
                     {"pool1", MaxPool2d(2)},
                     {"conv2", Conv2d(Conv2dOptions(16, 32, 5).padding(2))},
                     {"relu2", ReLU()},
                     {"pool2", MaxPool2d(2)},
                     {"flatten", Flatten()},
                     {"fc1", Linear(32 * 7 * 7, 64)},
                     {"relu3", ReLU()},
                     {"fc2", Linear(64, 10)}});
}

void train(torch::nn::Sequential& classifier, const Dataset& data, const Training& training,
           const std::function<void(const Step&)>& on_step) {
  torch::optim::Adam optimizer(classifier->parameters(), training.learning_rate);
  const std::int64_t steps = training.epochs * ((data.size() + training.batch - 1) / training.batch);
  std::int64_t step = 0;
  classifier->train();
  for (std::int64_t epoch = 0; epoch < training.epochs; ++epoch) {
    for (const auto& rows : torch::randperm(data.size()).split(training.batch)) {
      const auto images = data.images.index_select(0, rows);
      const auto labels = data.labels.index_select(0, rows);
      const auto loss = torch::nn::functional::cross_entropy(classifier->forward(images), labels);
      optimizer.zero_grad();
      loss.backward();
      on_step({step++, steps, images, labels, loss.item<double>()});
      optimizer.step();
    }
  }
}
