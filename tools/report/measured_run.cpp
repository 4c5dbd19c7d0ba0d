#include "measured_run.hpp"

#include <torch/csrc/autograd/grad_mode.h>

#include <functional>
#include <map>
#include <memory>

#include <torchtap/views/report/report.hpp>
#include <torchtap/views/text/units.hpp>

#include "models/exported_packages.hpp"
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

/// A model, and how to call it with the inputs that were asked for.
struct Measurable {
  std::vector<model::ModuleRef> modules;
  std::function<void()> prepare;  ///< before each call, outside of what is measured
  std::function<c10::IValue()> call;
  std::vector<std::string> notes;
};

Batch first_batch(const InputOptions& options) {
  auto batch = Inputs(options).next();
  TORCH_CHECK_VALUE(batch.has_value(), "the files given with --input hold no batch.");
  return *std::move(batch);
}

Measurable script(const MeasureOptions& options, at::Device device) {
  const auto model = std::make_shared<torch::jit::Module>(load_model(options.model, device));
  const torch::jit::Method method = find_method(*model, options.method);
  model->train(options.train);
  const auto arguments = to_arguments(*model, options.method, first_batch(options.inputs), device, false);
  const auto given = std::make_shared<std::vector<c10::IValue>>();
  const auto prepare = [model, arguments, given] {
    *given = copies(arguments);
    clear_gradients(*model);
  };
  auto modules = selectors::modules(*model, options.method).vector();
  return {std::move(modules), prepare, [model, method, given] { return method(std::move(*given)); }, {}};
}

Measurable package(const MeasureOptions& options, at::Device device) {
  TORCH_CHECK_VALUE(
      options.method == "forward" && !options.train && !options.backward,
      "a package (.pt2) has one method, in the mode in which it was exported, and no gradients; --method, "
      "--train and --backward are for TorchScript files.");
  const auto loaded = std::make_shared<Package>(options.model);
  std::vector<std::string> notes{
      "This is compiled code, whose operations and parameters cannot be seen: multiply-accumulates, bytes, "
      "parameters, NaN and Inf were not measured, and are 0 here. `torchtap record --reduce count` finds "
      "NaN."};
  auto modules = loaded->timed();
  if (const std::size_t more = loaded->modules().size() - modules.size(); more != 0) {
    notes.push_back(views::text::counted(static_cast<std::int64_t>(more), "module") +
                    " whose inputs or outputs were not tapped count as part of the module around: export the "
                    "model with torchtap.export.tapped(model, inputs=True).");
  }
  const auto call = [loaded, batch = first_batch(options.inputs), device] {
    return loaded->call(batch, device);
  };
  return {std::move(modules), [] {}, call, std::move(notes)};
}

}  // namespace

Measured measure(const MeasureOptions& options) {
  const at::Device device(options.device);
  const bool compiled = is_package(options.model);
  const Measurable model = compiled ? package(options, device) : script(options, device);
  const at::AutoGradMode mode(options.backward);
  report::Report report(
      selectors::ModuleView(model.modules),
      report::ReportOptions()
          .memory(!options.no_memory)
          .work(!options.no_work && !compiled)
          .non_finite(compiled ? report::OnNonFinite::ignore : on_non_finite(options.non_finite))
          .synchronize(!device.is_cpu())
          .warmup(options.warmup));
  Measured measured;
  const Interrupt interrupt;
  try {
    Progress progress("running", options.warmup + options.repeat);
    for (std::int64_t i = 0; i < options.warmup + options.repeat && interrupt.signal() == 0; ++i) {
      model.prepare();
      auto recording = report.record();
      const c10::IValue result = model.call();
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
  measured.results.notes.insert(measured.results.notes.begin(), model.notes.begin(), model.notes.end());
  return measured;
}

}  // namespace torchtap::tools
