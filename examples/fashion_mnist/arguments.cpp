#include "arguments.hpp"

#include <charconv>
#include <functional>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace {

struct Option {
  std::string_view name, meta, help;
  std::function<void(const std::string&)> set;
  std::string standard;
};

constexpr std::int64_t kMost = 1'000'000'000;

Option number(std::string_view name, std::string_view help, std::int64_t& value, std::int64_t least,
              const char* standard = nullptr) {
  const auto set = [name, least, &value](const std::string& text) {
    std::int64_t read = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), read);
    if (error != std::errc() || end != text.data() + text.size() || read < least || read > kMost) {
      throw std::invalid_argument(std::string(name) + " takes a whole number from " + std::to_string(least) +
                                  " to " + std::to_string(kMost) + ", not \"" + text + "\"");
    }
    value = read;
  };
  return {name, "N", help, set, standard != nullptr ? standard : std::to_string(value)};
}

Option text(std::string_view name, std::string_view help, std::string& value) {
  const auto set = [name, &value](const std::string& given) {
    if (given.empty()) throw std::invalid_argument(std::string(name) + " takes a folder, not an empty name");
    value = given;
  };
  return {name, "FOLDER", help, set, value};
}

}  // namespace

std::optional<Arguments> parse_arguments(int argc, char** argv) {
  Arguments arguments;
  const std::vector<Option> options = {
      text("--data", "folder of Fashion-MNIST's four idx files", arguments.data),
      text("--save", "folder for recordings and the figure; replaces older ones", arguments.save),
      number("--samples", "images to train with, of 60000", arguments.samples, 1),
      number("--test", "images to test and record with, of 10000", arguments.test, 1),
      number("--epochs", "passes over the training images", arguments.epochs, 1),
      number("--batch", "images in a training batch", arguments.batch, 1),
      number("--seed", "the same seed and threads give the same numbers", arguments.seed, 0),
      number("--threads", "threads to compute with", arguments.threads, 1, "as LibTorch chooses"),
  };
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      std::cout << "Trains a small classifier on Fashion-MNIST with torchtap's recorders attached, prints,\n"
                   "saves and draws the results.\n\nusage: fashion_mnist [options]\n\n";
      for (const auto& option : options) {
        std::string left = "  " + std::string(option.name) + " " + std::string(option.meta);
        left.resize(20, ' ');
        std::cout << left << option.help << " (" << option.standard << ")\n";
      }
      return std::nullopt;
    }
    std::optional<std::string> value;  // accepts "--epochs 2" and "--epochs=2"
    if (const auto equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    const Option* found = nullptr;
    for (const auto& option : options) {
      if (option.name == name) found = &option;
    }
    if (found == nullptr) throw std::invalid_argument("unknown option \"" + name + "\"");
    if (!value && ++i == argc) throw std::invalid_argument(name + " needs a value");
    found->set(value ? *value : argv[i]);
  }
  return arguments;
}
