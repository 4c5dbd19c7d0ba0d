#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <CLI/CLI.hpp>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/write_file.hpp>
#include <torchtap/quantization/int8.hpp>

#include "commands.hpp"
#include "models/inputs.hpp"
#include "models/model.hpp"
#include "options/option_checks.hpp"
#include "quantization_options.hpp"
#include "terminal/message_text.hpp"
#include "terminal/progress.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

std::string quantize_examples() {
  return c10::str(R"(
Converts a TorchScript file to one that computes in int8 on the CPU, by LibTorch's quantized operators. The model runs on
calibration data, some hundred images like those that it will meet; labels are not needed. Convolutions, linear layers and
what lies between them get activations of uint8 and weights of int8; what has no quantized operator stays in floating
point. Any program that loads TorchScript runs the result; torchtap evaluate says how often it is right.
What is written is loaded and run on the first batch before, and its error is printed (SQNR).

The methods are those of torchtap calibrate.

)",
                  describe_inputs(), R"(

Examples:
  torchtap quantize model.pt --idx3 train-images.gz --save model.int8.pt
  torchtap quantize model.pt --input batch.pt --batch 32 --method entropy --save model.int8.pt
  torchtap evaluate model.int8.pt --idx3 t10k-images.gz --labels t10k-labels.gz

Exit status: 0, or 2 if the model cannot be converted, the result does not run, or something cannot be read or written.)");
}

struct QuantizeOptions {
  std::string model;
  InputOptions inputs;
  quantization::QuantizationOptions how =
      quantization::QuantizationOptions().dtype(quantization::Dtype::uint8);
  std::string save;
  bool overwrite = false;
};

/// The signal-to-noise ratio of the outputs in decibels: ten times the logarithm of their squares over the
/// squares of the differences. Infinite if nothing differs.
double signal_to_noise(const c10::IValue& expected, const c10::IValue& got) {
  const auto tensors = [](const c10::IValue& result) {
    std::vector<at::Tensor> all;
    result.visit([&](const c10::IValue& part) {
      if (part.isTensor() && part.toTensor().defined() && part.toTensor().is_floating_point()) {
        const at::Tensor& tensor = part.toTensor();
        all.push_back((tensor.is_quantized() ? tensor.dequantize() : tensor).to(at::kDouble));
      }
      return false;
    });
    return all;
  };
  const auto wanted = tensors(expected), found = tensors(got);
  TORCH_CHECK_VALUE(wanted.size() == found.size(), "it returns ", found.size(), " tensors in place of ",
                    wanted.size(), ".");
  double signal = 0, noise = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    TORCH_CHECK_VALUE(wanted[i].sizes() == found[i].sizes(), "it returns a tensor of shape ",
                      found[i].sizes(), " in place of ", wanted[i].sizes(), ".");
    signal += wanted[i].square().sum().item<double>();
    noise += wanted[i].sub(found[i]).square().sum().item<double>();
  }
  return 10 * std::log10(signal / noise);
}

/// Loads a converted model from the bytes of its file, and runs both on a batch: either may fail.
double tried(torch::jit::Module& model, const std::string& file, const std::vector<c10::IValue>& batch) {
  const c10::IValue expected = model.forward(copies(batch));
  try {
    std::istringstream stream(file);
    return signal_to_noise(expected, torch::jit::load(stream).forward(copies(batch)));
  } catch (const std::exception& error) {
    std::string why = explain(error);
    why.resize(std::min(why.find('\n'), why.size()));  // without the trace of TorchScript
    if (!why.empty() && why.back() == '.') why.pop_back();
    TORCH_CHECK_VALUE(false, "the model was converted, but its file does not run with the engine ",
                      c10::toString(at::globalContext().qEngine()), ", so nothing is written: ", why, ".");
  }
}

void quantize_file(const QuantizeOptions& options) {
  check_free(options.save, options.overwrite);
  torch::jit::Module model = load_model(options.model);
  find_method(model, "forward");  // throws if there is none
  model.eval();
  Inputs inputs(options.inputs);
  const at::AutoGradMode without_gradients(false);
  std::vector<c10::IValue> first;
  const auto run = [&](torch::jit::Module& observed) {
    Progress progress("calibrating", inputs.count());
    while (const auto batch = inputs.next()) {
      auto arguments = to_arguments(observed, "forward", *batch, at::kCPU, false);
      if (first.empty()) first = copies(arguments);
      observed.forward(std::move(arguments));
      progress.advance();
    }
  };
  std::ostringstream written;
  quantization::to_int8(model, run, options.how).save(written);
  const std::string file = written.str();
  const double decibels = tried(model, file, first);
  base::write_file("torchtap", options.save, [&](std::ostream& stream) { stream << file; });
  std::cout << counted(inputs.count(), "call") << ", " << name_of(options.how.method()) << ", in "
            << printable(options.save);
  std::error_code error;
  const auto size = std::filesystem::file_size(options.save, error);
  if (!error) std::cout << ": " << bytes_text(static_cast<std::int64_t>(size));
  const auto before = std::filesystem::file_size(options.model, error);
  if (!error) std::cout << " instead of " << bytes_text(static_cast<std::int64_t>(before));
  std::cout << "; on the first batch the signal is " << to_text(decibels, 3) << " dB above the error\n";
}

}  // namespace

void add_quantize(CLI::App& app) {
  auto options = std::make_shared<QuantizeOptions>();
  CLI::App* command =
      app.add_subcommand("quantize", "Convert a TorchScript file to one that computes in int8");
  command->footer(quantize_examples());
  command->add_option("model", options->model, "A file of torch.jit.script or torch.jit.trace")->required();
  add_input_options(*command, options->inputs);
  add_library_option(*command);
  add_method_options(*command, options->how);
  command->add_option("-o,--save", options->save, "TorchScript file to write")->required()->check(place());
  add_overwrite(*command, options->overwrite);
  command->callback([options] { quantize_file(*options); });
}

}  // namespace torchtap::tools
