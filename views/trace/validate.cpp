// Runs the operations of a pass again on the kept tensors, and compares bits.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <ostream>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/hooks/values.hpp>
#include <torchtap/operations/scope.hpp>
#include <torchtap/views/trace/detail/graph.hpp>
#include <torchtap/views/trace/detail/units.hpp>

namespace torchtap::views::trace {
namespace {

using detail::Log;
using detail::Operation;
using detail::Read;

/// Their results are memory that has not been written, or that lies outside of every tensor.
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
  // Formulas of gradients take tensors of which they need only the shape, or which they do not always need.
  return name.find("_like") != std::string::npos || name.find("::new_") != std::string::npos ||
         name.find("backward") != std::string::npos ||
         std::find(functions.begin(), functions.end(), name) != functions.end();
}

/// Whether it was called in a function of torch.func's transforms (vmap, grad), which is over: called like
/// that again it would look for the transform, also if all of its tensors are plain.
bool in_transform(const Operation& operation) {
  const auto& keys = operation.keys;
  return (keys.included_ - keys.excluded_)
      .has_any(c10::DispatchKeySet({c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                                    c10::DispatchKey::FuncTorchDynamicLayerBackMode}));
}

/// Whether its values can be read again: not those of a nested tensor or inside of a transform of torch.func,
/// and there are none of a tensor by which PyTorch's compilers try shapes out.
bool has_values(const detail::Value& value) {
  if (value.nested || value.of_transform) return false;
  const at::Tensor& kept = value.kept;
  if (!kept.defined() || !kept.has_storage() || kept.numel() == 0) return true;
  try {
    return kept.storage().device_type() != at::kMeta && kept.storage().data() != nullptr;
  } catch (const c10::Error&) {  // which refuses
    return false;
  }
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

/// Other values of the same kind.
at::Tensor changed(const at::Tensor& tensor) {
  const base::RecordingMode quiet;
  return tensor.detach() * -0.75 + 0.5;
}

/// Values that few functions take as one: different, positive, and small. `which` chooses among two.
at::Tensor plain_values(const at::Tensor& tensor, int which) {
  const base::RecordingMode quiet;
  const double from = which == 0 ? 0.2 : 0.9, to = which == 0 ? 0.9 : 0.1;
  return at::linspace(from, to, tensor.numel(), tensor.options().dtype(at::kDouble))
      .reshape(tensor.sizes())
      .to(tensor.scalar_type());
}

/// Gives a tensor other values in its memory, at each place.
void change_in_place(const at::Tensor& tensor) {
  const base::RecordingMode quiet;
  const at::Tensor plain = tensor.detach(), values = plain_values(tensor, 0);
  plain.copy_(at::where(plain == values, values + 1, values));
}

bool has_plain_values(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_nested() && at::isFloatingType(tensor.scalar_type()) &&
         tensor.layout() == at::kStrided && tensor.numel() > 0;
}

/// Calls an operation with these tensors as its reads. Returns its results, then what it wrote to and did not
/// return.
std::vector<at::Tensor> call(const Operation& operation, const std::vector<at::Tensor>& tensors) {
  const auto argument = [&](std::size_t index) -> c10::IValue {
    c10::List<at::Tensor> list;
    c10::List<hooks::TorchOptional<at::Tensor>> optional_list;
    auto form = Read::Form::inside;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Read& read = operation.reads[i];
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
    return operation.arguments[index];
  };
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < operation.arguments.size(); ++i) stack.push_back(argument(i));
  if (operation.generator.defined()) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_state(operation.generator);
  }
  {
    const c10::InferenceMode normal(false);
    const c10::AutoGradMode grad_mode(operation.grad_mode);
    const c10::impl::ForceDispatchKeyGuard keys(operation.keys);
    const operations::Unseen unseen;
    operation.handle.callBoxed(&stack);
  }
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : stack) {
    operations::for_each_tensor(value, [&](const at::Tensor& tensor) { results.push_back(tensor); });
  }
  const std::size_t returned = results.size();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto is_it = [&](const at::Tensor& result) { return result.is_same(tensors[i]); };
    const auto end = results.begin() + static_cast<std::ptrdiff_t>(returned);
    if (operation.reads[i].written && tensors[i].defined() && std::none_of(results.begin(), end, is_it)) {
      results.push_back(tensors[i]);
    }
  }
  return results;
}

/// A tensor as the kernel saw it: some choose another way by whether gradients are required.
at::Tensor with_gradient(at::Tensor tensor, bool required) {
  if (!required || tensor.is_inference()) return tensor;
  const c10::AutoGradMode enabled(true);
  return tensor.detach().requires_grad_(true);
}

/// An operation that is run again on kept tensors.
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
    return call(operation_, tensors);
  }

 private:
  at::Tensor prepared(const Read& read) const {
    const detail::Value& value = log_.values[read.value];
    TORCH_CHECK_VALUE(value.kept.defined(), "an argument was not kept");
    return with_gradient(kept_tensor(value, "an argument"), value.requires_grad);
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

/// Runs the whole pass again in separate memory, so that views and writes through them are as they were.
class Rerun {
 public:
  /// With `all`, every operation runs; otherwise what is kept stands for results that have not changed.
  Rerun(const Log& log, bool all) : log_(log), all_(all), tensors_(log.values.size()) {}

  /// Runs an operation. Returns whether it saw other values than in the pass, in its arguments or, if all of
  /// its results are views of them, in its results.
  bool run(const Operation& operation) {
    std::vector<at::Tensor> arguments;
    bool other = false;
    for (const Read& read : operation.reads) {
      arguments.push_back(read.value < 0 ? at::Tensor() : tensor_of(read.value));
      if (read.value >= 0 && !operation.view) other = other || !is_as_kept(read.value, arguments.back());
    }
    const auto values = results_of(operation);
    if (!all_ && !other && !operation.view && !operation.in_place && operation.written.empty()) {
      const base::RecordingMode quiet;
      for (const std::int64_t value : values) {
        tensors_[value] = with_gradient(log_.values[value].kept.clone(), log_.values[value].requires_grad);
      }
      return false;
    }
    const auto made = call(operation, arguments);
    TORCH_CHECK(made.size() == values.size(), "it gave ", made.size(), " results instead of ", values.size());
    const bool undetermined = is_undetermined(operation.facts->name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      tensors_[values[i]] = made[i];
      if (undetermined && made[i].sizes() == log_.values[values[i]].kept.sizes()) {
        const base::RecordingMode quiet;
        made[i].detach().copy_(log_.values[values[i]].kept);
      }
      if (operation.view) other = other || !is_as_kept(values[i], made[i]);
    }
    return other;
  }

  /// Whether the operation gave the same bits as in the pass.
  bool repeated(const Operation& operation) const {
    const auto values = results_of(operation);
    return std::all_of(values.begin(), values.end(),
                       [&](auto value) { return is_as_kept(value, tensors_[value]); });
  }

  /// Changes the written values of an operation. Returns whether it could: all of it.
  bool change(const Operation& operation) {
    const auto values = results_of(operation);
    for (const std::int64_t value : values) {
      if (!has_plain_values(tensors_[value])) return false;
    }
    for (const std::int64_t value : values) change_in_place(tensors_[value]);
    return true;
  }

 private:
  bool is_as_kept(std::int64_t value, const at::Tensor& tensor) const {
    return same_bits(tensor, log_.values[value].kept);
  }

  const at::Tensor& tensor_of(std::int64_t number) {
    at::Tensor& tensor = tensors_[number];
    if (tensor.defined()) return tensor;
    const detail::Value& value = log_.values[number];
    const at::Tensor kept = kept_tensor(value, "an argument");
    if (value.of >= 0 && value.origin == detail::Origin::operation) {
      tensor = tensor_of(value.of);  // another value of the same name
    } else if (value.of >= 0 && value.origin == detail::Origin::outside) {
      const at::Tensor base = tensor_of(value.of);
      const base::RecordingMode quiet;
      tensor =
          at::empty({0}, kept.options()).set_(base.storage(), value.offset, kept.sizes(), kept.strides());
    } else {
      const base::RecordingMode quiet;
      tensor = kept.clone();
      // What is made of a number promotes otherwise than a tensor without dimensions: int64 * 2.5 is float32.
      if (kept.unsafeGetTensorImpl()->is_wrapped_number())
        tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
      if (kept.layout() == at::kStrided && !kept.is_quantized() && !kept.is_nested() && value.offset > 0) {
        const at::Tensor memory = at::empty({value.offset + kept.numel()}, kept.options());
        tensor = memory.narrow(0, value.offset, kept.numel()).view(kept.sizes()).copy_(kept);
      }
    }
    if (!tensor.requires_grad()) tensor = with_gradient(tensor, value.requires_grad);
    return tensor;
  }

  const Log& log_;
  const bool all_;
  std::vector<at::Tensor> tensors_;  // by value
};

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
    if (found_.findings.empty()) check_parents();
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
    const bool readable =
        std::all_of(results.begin(), results.end(),
                    [&](std::int64_t value) { return has_values(log_.values[value]); }) &&
        std::all_of(operation.reads.begin(), operation.reads.end(), [&](const Read& read) {
          return read.value < 0 || log_.values[read.value].nested || has_values(log_.values[read.value]);
        });
    if (own_generator || !readable || in_transform(operation) || is_undetermined(operation.facts->name)) {
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
      add(Fault::Kind::changed, index, error.what_without_backtrace());
      return;
    }
    std::vector<at::Tensor> again;
    try {
      again = replay->run();
    } catch (const c10::Error& error) {
      add(Fault::Kind::threw, index, error.what_without_backtrace());
      return;
    } catch (const std::exception& error) {
      add(Fault::Kind::threw, index, error.what());
      return;
    }
    if (!same_bits(again, kept)) {
      add(Fault::Kind::differs, index, difference(again, kept));
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
      const Read& read = operation.reads[i];
      if (!can_change(read) || log_.values[read.value].origin == detail::Origin::parameter) continue;
      ++found_.perturbed;
      if (matters(operation, i, results)) continue;
      found_.unconfirmed.push_back(
          finding(Fault::Kind::ignores_parent, index,
                  "with other values of \"" + operation.handle.schema().arguments()[read.argument].name() +
                      "\" it gave the same bits: it may need their shape alone, or be constant around them"));
    }
  }

  bool can_change(const Read& read) const {
    if (read.value < 0 || read.written || read.form == Read::Form::inside) return false;
    return has_plain_values(log_.values[read.value].kept);
  }

  /// Whether the results depend on a read, with the other arguments as they are, or with plain values in
  /// them: a product with zeros would not show it.
  bool matters(const Operation& operation, std::size_t index, const std::vector<at::Tensor>& results) const {
    try {
      Replay alone(log_, operation);
      alone.tensor(index) = changed(alone.tensor(index));
      if (!same_bits(alone.run(), results)) return true;
      Replay first(log_, operation), second(log_, operation);
      for (std::size_t i = 0; i < operation.reads.size(); ++i) {
        if (!can_change(operation.reads[i])) continue;
        first.tensor(i) = plain_values(first.tensor(i), 0);
        second.tensor(i) = plain_values(second.tensor(i), i == index ? 1 : 0);
      }
      return !same_bits(first.run(), second.run());
    } catch (const std::exception&) {
      return true;  // it refuses other values, so it looks at them
    }
  }

  /// Changes the written values of an operation, in a run of the whole pass: an operation that sees the
  /// change has to descend from it, and its children have to see it.
  void check_parents() {
    Rerun plain(log_, true);
    for (std::size_t i = 0; i < log_.operations.size(); ++i) {
      std::string why;
      try {
        const bool other = plain.run(log_.operations[i]);
        if (other || !plain.repeated(log_.operations[i])) why = "it did not give the same bits";
      } catch (const std::exception& error) {
        why = base::first_line(error);
      }
      if (why.empty()) continue;
      found_.unconfirmed.push_back(
          finding(Fault::Kind::not_repeated, i, "in a run of the whole pass, " + why));
      return;
    }
    for (const std::size_t index : worth_following()) follow(index);
  }

  /// The operations whose parents are hardest to know (because they write through views or before them), and
  /// some others: each costs a run of the pass.
  std::vector<std::size_t> worth_following() const {
    constexpr std::size_t most_written = 16, most_others = 4;
    std::vector<bool> mixed(log_.operations.size(), false);
    for (const detail::Mixture& mixture : log_.mixtures) {
      for (const std::int64_t value : mixture) {
        if (log_.values[value].producer >= 0) mixed[log_.values[value].producer] = true;
      }
    }
    std::vector<std::size_t> written, others;
    for (std::size_t i = 0; i < log_.operations.size(); ++i) {
      const Operation& operation = log_.operations[i];
      if (operation.view || graph_.node_of_operation[i] < 0) continue;
      (mixed[i] || operation.in_place || !operation.written.empty() ? written : others).push_back(i);
    }
    std::vector<std::size_t> chosen;
    const auto choose = [&](const std::vector<std::size_t>& from, std::size_t most) {
      const std::size_t count = std::min(most, from.size());
      for (std::size_t i = 0; i < count; ++i) chosen.push_back(from[i * from.size() / count]);
    };
    choose(written, most_written);
    choose(others, most_others);
    return chosen;
  }

  void follow(std::size_t index) {
    const std::int64_t first = graph_.node_of_operation[index];
    const std::int64_t results = graph_.nodes[first].results;
    std::vector<bool> descends(graph_.nodes.size(), false), sees(graph_.nodes.size(), false);
    const auto is_result = [&](std::int64_t node) { return node >= first && node < first + results; };
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const auto& parents = graph_.nodes[i].parents;
      descends[i] = std::any_of(parents.begin(), parents.end(),
                                [&](std::int64_t parent) { return is_result(parent) || descends[parent]; });
    }
    Rerun run(log_, false);
    std::size_t end = 0;
    try {
      for (; end < log_.operations.size(); ++end) {
        const std::int64_t node = graph_.node_of_operation[end];
        const bool other = run.run(log_.operations[end]);
        if (end == index && !run.change(log_.operations[end])) return;
        if (end <= index || node < 0 || node == first || !other) continue;
        if (!descends[node]) {
          return add(Fault::Kind::lacks_parent, end,
                     "it reads what " + label_of(index) + " wrote, which is none of its ancestors");
        }
        sees[node] = true;
      }
    } catch (const std::exception&) {  // the operation refuses such values; the earlier ones count
    }
    ++found_.followed;
    for (std::size_t i = 0; i < end; ++i) {
      const std::int64_t node = graph_.node_of_operation[i];
      if (node < 0 || node == first || sees[node]) continue;
      const auto& parents = graph_.nodes[node].parents;
      if (std::any_of(parents.begin(), parents.end(), is_result)) {
        sees[node] = true;
        add(Fault::Kind::false_parent, i,
            "it reads nothing of what its parent " + label_of(index) + " wrote");
      }
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
      const base::RecordingMode quiet;
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

  Fault finding(Fault::Kind kind, std::size_t index, std::string message) const {
    return {kind, label_of(index), log_.operations[index].facts->full, std::move(message)};
  }

  void add(Fault::Kind kind, std::size_t index, std::string message) {
    found_.findings.push_back(finding(kind, index, std::move(message)));
  }

  const detail::Graph& graph_;
  const Log& log_;
  Validation found_;
};

const char* text_of(Fault::Kind kind) {
  switch (kind) {
    case Fault::Kind::differs:
      return "differs";
    case Fault::Kind::threw:
      return "threw";
    case Fault::Kind::changed:
      return "was changed after the pass";
    case Fault::Kind::lacks_parent:
      return "lacks a parent";
    case Fault::Kind::false_parent:
      return "has a false parent";
    case Fault::Kind::ignores_parent:
      return "may ignore a parent";
    case Fault::Kind::not_repeated:
      return "ended the check of parents";
  }
  return "";
}

}  // namespace

Validation History::validate() const {
  TORCH_CHECK_VALUE(
      graph_->log != nullptr,
      "views::trace::History::validate: this history was loaded from a file, which has results and not "
      "what else an operation needs; validate before saving.");
  TORCH_CHECK_VALUE(
      graph_->replayable(),
      "views::trace::History::validate: needs everything as it was; log with TraceOptions().save(Save::all), "
      "without predicate, transform, dtype, device or memory budget.");
  const std::lock_guard lock(graph_->log->mutex);
  const operations::Unseen unseen;
  const c10::InferenceMode normal(false);
  return Validator(*graph_).run();
}

std::ostream& Validation::print(std::ostream& out) const {
  using detail::counted;
  out << counted(confirmed, "operation") << " gave the same bits again";
  if (random > 0) out << ", " << random << " of them with random numbers";
  out << "; " << counted(perturbed, "parent") << " " << (perturbed == 1 ? "was" : "were") << " changed, and "
      << counted(followed, "operation") << " followed through the pass.";
  if (!undetermined.empty()) {
    out << "\nNot judged, because their arguments do not determine them, or no values were there: "
        << base::quoted(undetermined) << ".";
  }
  const auto list = [&](const std::vector<Fault>& all) {
    for (const Fault& finding : all) {
      out << "\n"
          << finding.label << " (" << finding.function << ") " << text_of(finding.kind) << ": "
          << finding.message;
    }
  };
  list(findings);
  if (!unconfirmed.empty()) {
    out << "\nNot confirmed, and no mistake for that:";
    list(unconfirmed);
  }
  return out << "\n";
}

}  // namespace torchtap::views::trace
