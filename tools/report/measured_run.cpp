#include "measured_run.hpp"

#include <torch/csrc/autograd/grad_mode.h>

#include <map>
#include <optional>

#include <torchtap/views/report/report.hpp>

#include "models/model.hpp"
#include "models/output_sum.hpp"
#include "terminal/interrupt.hpp"
#include "terminal/message_text.hpp"
#include "terminal/progress.hpp"

namespace torchtap::tools {
namespace {

namespace report = views::report;

report::OnNonFinite on_non_finite(const std::string& word) {
  static const std::map<std::string, report::OnNonFinite> words{{"ignore", report::OnNonFinite::ignore},
                                                                {"note", report::OnNonFinite::note},
                                                                {"raise", report::OnNonFinite::raise}};
  return words.at(word);
}

void clear_gradients(const torch::jit::Module& model) {
  for (const at::Tensor& parameter : model.parameters()) parameter.mutable_grad() = at::Tensor();
}

}  // namespace

Measured measure(const MeasureOptions& options) {
  const at::Device device(options.device);
  torch::jit::Module model = load_model(options.model, device);
  const torch::jit::Method method = find_method(model, options.method);
  model.train(options.train);
  Inputs inputs(options.inputs);
  const auto batch = inputs.next();
  TORCH_CHECK_VALUE(batch.has_value(), "the files given with --input hold no batch.");
  const auto arguments = to_arguments(model, options.method, *batch, device, false);
  const at::AutoGradMode mode(options.backward);
  report::Report report(selectors::modules(model, options.method),
                        report::ReportOptions()
                            .memory(!options.no_memory)
                            .work(!options.no_work)
                            .non_finite(on_non_finite(options.non_finite))
                            .synchronize(!device.is_cpu())
                            .warmup(options.warmup));
  Measured measured;
  const Interrupt interrupt;
  try {
    Progress progress("running", options.warmup + options.repeat);
    for (std::int64_t i = 0; i < options.warmup + options.repeat && interrupt.signal() == 0; ++i) {
      auto given = copies(arguments);
      clear_gradients(model);
      auto recording = report.record();
      const c10::IValue result = method(std::move(given));
      if (options.backward) {
        recording.phase(report::Phase::other);
        const at::Tensor sum = sum_of_outputs(result);
        recording.phase(report::Phase::backward);
        sum.backward();
      }
      recording.stop();
      progress.advance();
    }
  } catch (const std::exception& error) {
    measured.error = explain(error);
  }
  measured.signal = interrupt.signal();
  measured.results = report.results();
  return measured;
}

}  // namespace torchtap::tools
