// Runs the operations of a pass again on what was kept, and compares bits.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <ostream>

#include <torchtap/core/detail/error.hpp>
#include <torchtap/core/detail/recording_mode.hpp>
#include <torchtap/hooks/values.hpp>
#include <torchtap/operations/scope.hpp>
#include <torchtap/views/trace/detail/graph.hpp>

namespace torchtap::views::trace {
namespace {

using detail::Log;
using detail::Operation;
using detail::Read;

/// Their results are memory that nobody has written to, or that lies outside of every tensor.
bool is_undetermined(const std::string& name) {
  static constexpr std::array<std::string_view, 8> memory{
      "aten::resize_",  "aten::resize_as_", "aten::resize",   "aten::set_",
      "aten::set_data", "aten::from_file",  "aten::_resize_", "aten::_empty_per_channel_affine_quantized"};
  return name.find("empty") != std::string::npos ||
         std::find(memory.begin(), memory.end(), name) != memory.end();
}

/// Their results may be the same whatever one of their arguments holds.
bool may_ignore(const std::string& name) {
  static constexpr std::array<std::string_view, 16> functions{
      "aten::where",      "aten::masked_fill", "aten::masked_fill_", "aten::clamp",
      "aten::clamp_",     "aten::hardtanh",    "aten::hardtanh_",    "aten::copy_",
      "aten::zero_",      "aten::fill_",       "aten::expand_as",    "aten::view_as",
      "aten::reshape_as", "aten::type_as",     "aten::maximum",      "aten::minimum"};
  // Formulas of gradients are given tensors of which they need the shape alone, or not always.
  return name.find("_like") != std::string::npos || name.find("::new_") != std::string::npos ||
         name.find("backward") != std::string::npos ||
         std::find(functions.begin(), functions.end(), name) != functions.end();
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.layout() != b.layout() || a.is_nested() != b.is_nested())
    return false;
  if (a.is_nested()) return true;
  if (a.sizes() != b.sizes()) return false;
  if (a.layout() != at::kStrided || a.is_quantized()) return true;
  const auto plain = [](const at::Tensor& tensor) {
    return detail::without_names(tensor.detach()).resolve_conj().resolve_neg().cpu().contiguous();
  };
  const at::Tensor x = plain(a), y = plain(b);
  return x.nbytes() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

/// Other values of the same kind: `which` chooses among two ways.
at::Tensor changed(const at::Tensor& tensor, int which) {
  const core::detail::RecordingMode quiet;
  const at::Tensor plain = tensor.detach();
  return which == 0 ? plain * -0.75 + 0.5 : plain * 0.5 - 1.25;
}

/// An operation that is run again.
class Replay {
 public:
  Replay(const Log& log, const Operation& operation) : log_(log), operation_(operation) {
    for (const Read& read : operation.reads) {
      tensors_.push_back(read.value < 0 ? at::Tensor() : prepared(read));
    }
  }

  /// The tensors of the `index`th read, to be changed.
  at::Tensor& tensor(std::size_t index) { return tensors_[index]; }

  /// Its results, then what it wrote to and did not return.
  std::vector<at::Tensor> run() const {
    std::vector<at::Tensor> tensors;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      tensors.push_back(operation_.reads[i].written && tensors_[i].defined() ? tensors_[i].clone()
                                                                             : tensors_[i]);
    }
    torch::jit::Stack stack;
    for (std::size_t i = 0; i < operation_.arguments.size(); ++i) stack.push_back(argument(i, tensors));
    if (operation_.generator.defined()) {
      at::Generator generator = at::detail::getDefaultCPUGenerator();
      const std::lock_guard lock(generator.mutex());
      generator.set_state(operation_.generator);
    }
    {
      const c10::InferenceMode normal(false);
      const c10::AutoGradMode grad_mode(operation_.grad_mode);
      const c10::impl::ForceDispatchKeyGuard keys(operation_.keys);
      const operations::Unseen unseen;
      operation_.handle.callBoxed(&stack);
    }
    std::vector<at::Tensor> results;
    for (const c10::IValue& value : stack) {
      operations::for_each_tensor(value, [&](const at::Tensor& tensor) { results.push_back(tensor); });
    }
    const std::size_t returned = results.size();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto is_it = [&](const at::Tensor& result) { return result.is_same(tensors[i]); };
      const auto end = results.begin() + static_cast<std::ptrdiff_t>(returned);
      if (operation_.reads[i].written && tensors[i].defined() && std::none_of(results.begin(), end, is_it)) {
        results.push_back(tensors[i]);
      }
    }
    return results;
  }

 private:
  /// What was kept, as the kernel saw it: some choose another way by whether gradients are required.
  at::Tensor prepared(const Read& read) const {
    const detail::Value& value = log_.values[read.value];
    TORCH_CHECK_VALUE(value.kept.defined(), "an argument was not kept");
    at::Tensor tensor = kept_tensor(value, "an argument");
    if (value.requires_grad && !tensor.is_inference()) {
      const c10::AutoGradMode enabled(true);
      tensor = tensor.detach().requires_grad_(true);
    }
    return tensor;
  }

  c10::IValue argument(std::size_t index, const std::vector<at::Tensor>& tensors) const {
    c10::List<at::Tensor> list;
    c10::List<hooks::TorchOptional<at::Tensor>> optional_list;
    auto form = Read::Form::inside;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Read& read = operation_.reads[i];
      if (read.argument != index) continue;
      form = read.form;
      if (form == Read::Form::plain) return tensors[i];
      if (form == Read::Form::list) list.push_back(tensors[i]);
      if (form != Read::Form::optional_list) continue;
      optional_list.push_back(tensors[i].defined() ? hooks::TorchOptional<at::Tensor>(tensors[i])
                                                   : hooks::TorchOptional<at::Tensor>());
    }
    if (form == Read::Form::list) return list;
    if (form == Read::Form::optional_list) return optional_list;
    return operation_.arguments[index];
  }

  const Log& log_;
  const Operation& operation_;
  std::vector<at::Tensor> tensors_;
};

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](const auto& x, const auto& y) { return same_bits(x, y); });
}

std::vector<std::int64_t> results_of(const Operation& operation) {
  std::vector<std::int64_t> values(operation.results.begin(), operation.results.end());
  values.insert(values.end(), operation.written.begin(), operation.written.end());
  return values;
}

class Validator {
 public:
  explicit Validator(const detail::Graph& graph) : graph_(graph), log_(*graph.log) {}

  Validation run() {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    at::Tensor state;
    {
      const std::lock_guard lock(generator.mutex());
      state = generator.get_state();
    }
    for (std::size_t i = 0; i < log_.operations.size(); ++i) check(i);
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
    return std::move(found_);
  }

 private:
  void check(std::size_t index) {
    const Operation& operation = log_.operations[index];
    const auto results = results_of(operation);
    if (results.empty()) return;
    const bool own_generator =
        std::any_of(operation.arguments.begin(), operation.arguments.end(),
                    [](const c10::IValue& argument) { return argument.isGenerator(); });
    const bool nested = std::any_of(results.begin(), results.end(),
                                    [&](std::int64_t value) { return log_.values[value].nested; });
    if (own_generator || nested || is_undetermined(operation.facts->name)) {
      found_.undetermined.push_back(label_of(index));
      return;
    }
    std::optional<Replay> replay;
    std::vector<at::Tensor> kept;
    try {
      replay.emplace(log_, operation);
      for (const std::int64_t value : results) {
        TORCH_CHECK_VALUE(log_.values[value].kept.defined(), "a result was not kept");
        kept.push_back(kept_tensor(log_.values[value], "a result"));
      }
    } catch (const c10::Error& error) {
      add(Finding::Kind::changed, index, error.what_without_backtrace());
      return;
    }
    std::vector<at::Tensor> again;
    try {
      again = replay->run();
    } catch (const c10::Error& error) {
      add(Finding::Kind::threw, index, error.what_without_backtrace());
      return;
    } catch (const std::exception& error) {
      add(Finding::Kind::threw, index, error.what());
      return;
    }
    if (!same_bits(again, kept)) {
      add(Finding::Kind::differs, index, difference(again, kept));
      return;
    }
    ++found_.confirmed;
    if (operation.generator.defined()) ++found_.random;
    perturb(index, again);
  }

  /// Changes one parent at a time; the results have to change.
  void perturb(std::size_t index, const std::vector<at::Tensor>& results) {
    const Operation& operation = log_.operations[index];
    const bool floating = std::any_of(results.begin(), results.end(), [](const at::Tensor& result) {
      return at::isFloatingType(result.scalar_type()) && result.layout() == at::kStrided &&
             !result.is_nested() && result.numel() > 0;
    });
    if (!floating || may_ignore(operation.facts->name)) return;
    for (std::size_t i = 0; i < operation.reads.size(); ++i) {
      if (!can_change(operation.reads[i])) continue;
      ++found_.perturbed;
      if (!matters(operation, i, results)) {
        add(Finding::Kind::ignores_parent, index,
            "argument " + std::to_string(operation.reads[i].argument) + " may have any value");
      }
    }
  }

  bool can_change(const Read& read) const {
    if (read.value < 0 || read.written || read.form == Read::Form::inside) return false;
    const detail::Value& value = log_.values[read.value];
    return value.origin != detail::Origin::parameter && at::isFloatingType(value.dtype) &&
           value.kept.layout() == at::kStrided && !value.kept.is_nested() && value.kept.numel() > 0;
  }

  /// Whether the results depend on a read: as the other arguments are, or with other values in them, since a
  /// product with zeros does not tell.
  bool matters(const Operation& operation, std::size_t index, const std::vector<at::Tensor>& results) const {
    try {
      Replay alone(log_, operation);
      alone.tensor(index) = changed(alone.tensor(index), 0);
      if (!same_bits(alone.run(), results)) return true;
      Replay first(log_, operation), second(log_, operation);
      for (std::size_t i = 0; i < operation.reads.size(); ++i) {
        if (!can_change(operation.reads[i])) continue;
        first.tensor(i) = changed(first.tensor(i), 1);
        second.tensor(i) = changed(second.tensor(i), i == index ? 0 : 1);
      }
      return !same_bits(first.run(), second.run());
    } catch (const std::exception&) {
      return true;  // it refuses other values, so it looks at them
    }
  }

  static std::string difference(const std::vector<at::Tensor>& again, const std::vector<at::Tensor>& kept) {
    if (again.size() != kept.size()) {
      return c10::str(again.size(), " results instead of ", kept.size());
    }
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (same_bits(again[i], kept[i])) continue;
      if (again[i].is_nested() || again[i].sizes() != kept[i].sizes() ||
          again[i].scalar_type() != kept[i].scalar_type()) {
        return c10::str("result ", i, " has another shape or dtype");
      }
      const core::detail::RecordingMode quiet;
      const auto wide = kept[i].is_complex() ? at::kComplexDouble : at::kDouble;
      const double most =
          (again[i].detach().cpu().to(wide) - kept[i].detach().cpu().to(wide)).abs().max().item<double>();
      return c10::str("result ", i, " differs by up to ", most);
    }
    return "";
  }

  std::string label_of(std::size_t index) const {
    const std::int64_t node = graph_.node_of_operation[index];
    return node >= 0 ? graph_.nodes[node].label : log_.operations[index].facts->full;
  }

  void add(Finding::Kind kind, std::size_t index, std::string message) {
    found_.findings.push_back(
        {kind, label_of(index), log_.operations[index].facts->full, std::move(message)});
  }

  const detail::Graph& graph_;
  const Log& log_;
  Validation found_;
};

const char* text_of(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::differs:
      return "differs";
    case Finding::Kind::threw:
      return "threw";
    case Finding::Kind::ignores_parent:
      return "ignores a parent";
    case Finding::Kind::changed:
      return "was changed after the pass";
  }
  return "";
}

}  // namespace

Validation History::validate() const {
  TORCH_CHECK_VALUE(
      graph_->log != nullptr,
      "trace::History::validate: this history was loaded from a file, which has results and not "
      "what else an operation needs; validate before saving.");
  TORCH_CHECK_VALUE(
      graph_->replayable(),
      "trace::History::validate: needs everything as it was; log with Options().save(Save::all), "
      "without predicate, transform, dtype, device or memory budget.");
  const std::lock_guard lock(graph_->log->mutex);
  const operations::Unseen unseen;
  const c10::InferenceMode normal(false);
  return Validator(*graph_).run();
}

std::ostream& Validation::print(std::ostream& out) const {
  out << confirmed << " operations gave the same bits again";
  if (random > 0) out << ", " << random << " of them with random numbers";
  out << "; " << perturbed << " parents were changed.";
  if (!undetermined.empty()) {
    out << "\nNot determined by their arguments: " << core::detail::quoted(undetermined) << ".";
  }
  for (const Finding& finding : findings) {
    out << "\n"
        << finding.label << " (" << finding.function << ") " << text_of(finding.kind) << ": "
        << finding.message;
  }
  return out << "\n";
}

}  // namespace torchtap::views::trace
