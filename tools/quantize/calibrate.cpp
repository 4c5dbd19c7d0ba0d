#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>

#include <iostream>
#include <memory>
#include <string>

#include <torchtap/base/write_file.hpp>
#include <torchtap/quantization/calibration.hpp>
#include <torchtap/storage/file.hpp>
#include <torchtap/storage/recording.hpp>

#include "commands.hpp"
#include "options/option_checks.hpp"
#include "quantization_options.hpp"
#include "terminal/message_text.hpp"

namespace torchtap::tools {
namespace {

constexpr char kCalibrateExamples[] = R"(
From a recording of distributions to the scale and zero point of each tensor, by which integers stand for its values:
real = (integer - zero_point) * scale. record --learn records what it needs, the model's input included, and leaves norms out,
which convolutions absorb. With --reduce log_histogram,min,max you choose the modules, and with --over 0,2,3 each channel of
a convolution has a scale of its own. Recordings of several ranks or days are merged first (torchtap merge).

  --method   the range that the integers cover
    min_max     from the least to the largest value: nothing is clipped
    percentile  without the outermost values, as ONNX Runtime's calibrator
    mse         with the least squared error, as torch.ao's HistogramObserver
    entropy     with the least Kullback-Leibler divergence, as TensorRT's calibrator
  --to       what --save writes
    json        scales, zero points and ranges, for torchtap evaluate and Calibration::load of C++
    tensorrt    the text of a calibration cache; needs --symmetric
    observers   a state_dict of minima and maxima for a model of torch.ao.quantization.prepare in Python

Examples:
  torchtap record model.pt --idx3 images.gz --learn ranges/
  torchtap calibrate ranges/ --method mse --save int8.json
  torchtap calibrate ranges/ --method percentile --percentile 99.9 --dtype uint8 --save uint8.json
  torchtap calibrate ranges/ --method entropy --symmetric --to tensorrt --save calibration.cache

A tensor of which no finite value was recorded stays in floating point, and is named on stderr.

Exit status: 0, or 2 if no tensor has a range, or something cannot be read or written.)";

struct CalibrateOptions {
  std::string recording;
  quantization::QuantizationOptions how;
  std::string to = "json";
  std::string save;
  bool overwrite = false;
};

void calibrate_recording(const CalibrateOptions& options) {
  check_free(options.save, options.overwrite);
  const auto calibration = quantization::calibrate(storage::load(options.recording), options.how);
  TORCH_CHECK_VALUE(!calibration.empty(), "\"", options.recording,
                    "\" has no tensor: none of its modules ran. torchtap show lists them.");
  if (options.to == "json") {
    calibration.save(options.save);
  } else if (options.to == "observers") {
    storage::save_value(options.save, calibration.observers(),
                        storage::SaveOptions().overwrite(options.overwrite));
  } else {
    const std::string text = calibration.tensorrt_cache();
    base::write_file("torchtap", options.save, [&](std::ostream& stream) { stream << text; });
  }
  for (const std::string& what : calibration.left_out()) {
    std::cerr << "torchtap: " << printable(what)
              << " stays in floating point: no finite value was recorded of it.\n";
  }
  std::cout << counted(static_cast<std::int64_t>(calibration.size()), "tensor") << ", "
            << name_of(options.how.method()) << ", in " << printable(options.save) << '\n';
}

}  // namespace

void add_calibrate(CLI::App& app) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command =
      app.add_subcommand("calibrate", "Choose scales and zero points from recorded distributions");
  command->footer(kCalibrateExamples);
  command->add_option("recording", options->recording, "A recording of distributions")
      ->required()
      ->check(CLI::ExistingDirectory);
  quantization::QuantizationOptions& how = options->how;
  add_method_options(*command, how);
  command
      ->add_option_function<std::string>(
          "--dtype", [&how](const std::string& name) { how.dtype(quantization::dtype_of(name)); },
          "The integers of the recorded tensors")
      ->check(CLI::IsMember(words_of(quantization::dtype_names)))
      ->default_str(std::string(name_of(how.dtype())));
  command->add_flag_callback(
      "--symmetric", [&how] { how.symmetric(true); },
      "The zero point in the middle of the integers, and a range as wide on both sides of zero");
  command
      ->add_option_function<std::string>(
          "--weights",
          [&how](const std::string& name) {
            how.weights(name == "none" ? std::nullopt : std::optional(quantization::dtype_of(name)));
          },
          "The integers of the weights of the recorded modules")
      ->check(CLI::IsMember({"int8", "int4", "none"}))
      ->default_str("int8");
  command->add_option("--to", options->to, "What is written")
      ->check(CLI::IsMember({"json", "tensorrt", "observers"}))
      ->capture_default_str();
  command->add_option("-o,--save", options->save, "File to write")->required()->check(place());
  add_overwrite(*command, options->overwrite);
  command->callback([options] { calibrate_recording(*options); });
}

}  // namespace torchtap::tools
