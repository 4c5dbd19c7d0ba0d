#pragma once

#include <cstdint>
#include <optional>
#include <string>

struct Arguments {
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::string save = "analysis";
  std::int64_t samples = 19200;
  std::int64_t test = 10000;
  std::int64_t epochs = 2;
  std::int64_t batch = 64;
  std::int64_t seed = 1;
  std::int64_t threads = 0;
};

/// Parses the command line; returns nothing if it asks for help, which is printed. Throws
/// `std::invalid_argument` that describes the error.
std::optional<Arguments> parse_arguments(int argc, char** argv);
