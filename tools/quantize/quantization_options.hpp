#pragma once

#include <CLI/CLI.hpp>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <torchtap/quantization/parameters.hpp>

/// The options of calibrate and quantize that say how ranges follow from distributions.
namespace torchtap::tools {

/// The choices of an option.
template <std::size_t N>
std::vector<std::string> words_of(const std::array<std::string_view, N>& names) {
  return {names.begin(), names.end()};
}

/// Adds --method and --percentile.
inline void add_method_options(CLI::App& command, quantization::QuantizationOptions& options) {
  command
      .add_option_function<std::string>(
          "--method", [&options](const std::string& name) { options.method(quantization::method_of(name)); },
          "How the range of a tensor is chosen; values beyond it are clipped")
      ->check(CLI::IsMember(words_of(quantization::method_names)))
      ->default_str(std::string(name_of(options.method())));
  command
      .add_option_function<double>(
          "--percentile", [&options](double percentile) { options.percentile(percentile); },
          "How much of the values --method percentile keeps inside of the range, in percent")
      ->default_str("99.99");
}

}  // namespace torchtap::tools
