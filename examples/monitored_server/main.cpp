// A server that classifies images and watches itself: it learns once what images look like inside the
// network, raises an alarm when those that come look otherwise, and leaves the inputs of that moment to be
// run again.
//
// usage: monitored_server FOLDER [--port N] [--samples N] [--data FOLDER]
//        monitored_server FOLDER --replay INCIDENT
//
// The first run trains the classifier and learns the reference from images that it was not trained with; both
// stay in FOLDER. POST /classify takes images of 28 × 28 bytes one behind the other and gives a label a line;
// GET /metrics is for Prometheus; POST /stop ends the server. client.py sends images of which the later ones
// are noisy.
#include <torch/torch.h>

#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>

#include <torchtap/views/monitor/incident.hpp>
#include <torchtap/views/monitor/monitor.hpp>

#include "../fashion_mnist/classifier.hpp"
#include "../fashion_mnist/idx.hpp"
#include "http.hpp"

namespace monitor = torchtap::views::monitor;

namespace {

constexpr std::int64_t kHeldOut = 6400, kBatch = 32, kImage = 28 * 28;

struct Settings {
  std::filesystem::path folder;
  std::string data = "/usr/share/datasets/fashion-mnist", replay;
  int port = 0;
  std::int64_t samples = 19200;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--", 0) != 0 && settings.folder.empty()) {
      settings.folder = word;
    } else if (i + 1 == argc) {
      throw std::invalid_argument(word + " needs a value");
    } else if (word == "--port") {
      settings.port = std::stoi(argv[++i]);
    } else if (word == "--samples") {
      settings.samples = std::stoll(argv[++i]);
    } else if (word == "--data") {
      settings.data = argv[++i];
    } else if (word == "--replay") {
      settings.replay = argv[++i];
    } else {
      throw std::invalid_argument("unknown option " + word);
    }
  }
  if (settings.folder.empty()) throw std::invalid_argument("usage: monitored_server FOLDER [options]");
  return settings;
}

/// Trains the classifier, and learns the reference from the images behind the ones that it is trained with.
void prepare(torch::nn::Sequential& classifier, const Settings& settings) {
  const Dataset all = read_training_set(settings.data, settings.samples + kHeldOut);
  const Dataset training{all.images.narrow(0, 0, settings.samples),
                         all.labels.narrow(0, 0, settings.samples)};
  train(classifier, training, {1, 64, 1e-3}, [](const Step& step) {
    if (step.index % 100 == 0) std::cerr << "loss " << step.loss << '\n';
  });
  classifier->eval();
  const torch::NoGradGuard no_grad;
  monitor::Monitor learning(classifier, "", monitor::MonitorOptions().learn(settings.folder / "reference"));
  for (const auto& images : all.images.narrow(0, settings.samples, kHeldOut).split(kBatch))
    classifier->forward(images);
  learning.flush();
  torch::save(classifier, (settings.folder / "model.pt").string());
}

int replay(torch::nn::Sequential& classifier, const std::string& incident) {
  bool same = true;
  for (const auto& forwarded : monitor::replay(incident, *classifier)) {
    std::cout << "forward " << forwarded.forward << ": "
              << (forwarded.same_bits ? "the same bits" : "other bits") << '\n';
    same = same && forwarded.same_bits;
  }
  return same ? 0 : 1;
}

int run(const Settings& settings) {
  std::filesystem::create_directories(settings.folder);
  torch::manual_seed(1);
  auto classifier = make_classifier();
  if (std::filesystem::exists(settings.folder / "model.pt")) {
    torch::load(classifier, (settings.folder / "model.pt").string());
    classifier->eval();
  } else {
    prepare(classifier, settings);
  }
  if (!settings.replay.empty()) return replay(classifier, settings.replay);

  const torch::NoGradGuard no_grad;
  // Each forward is looked at (`cost(1)`): the classifier is small beside the rest of a server.
  monitor::Monitor watch(
      classifier, (settings.folder / "reference").string(),
      monitor::MonitorOptions().model("clothes").incidents((settings.folder / "incidents").string()).cost(1));
  watch.on_alarm([](const monitor::Alarm& alarm) { std::cout << alarm << std::endl; });
  serve(settings.port, [&](const Request& request) -> Response {
    if (request.target == "GET /metrics") {
      watch.flush();
      return {"text/plain; version=0.0.4", watch.metrics()};
    }
    if (request.target == "POST /stop") return {"text/plain", "", 200, true};
    if (request.target != "POST /classify") throw std::invalid_argument("there is no " + request.target);
    const auto bytes = static_cast<std::int64_t>(request.body.size());
    if (bytes == 0 || bytes % kImage != 0) throw std::invalid_argument("images have 784 bytes each");
    std::string body = request.body;
    const auto images = torch::from_blob(body.data(), {bytes / kImage, 28, 28}, torch::kByte);
    const auto labels = classifier->forward(as_input(images)).argmax(1);
    std::string text;
    for (std::int64_t i = 0; i < labels.size(0); ++i)
      text += std::to_string(labels[i].item<std::int64_t>()) + "\n";
    return {"text/plain", text};
  });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << '\n';
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
  }
  return 2;
}
