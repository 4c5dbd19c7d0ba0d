// A model in int8 by LibTorch's passes over graphs, with the statistics of recorders.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/round.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/fold_conv_bn.h>
#include <torch/csrc/jit/passes/quantization/finalize.h>
#include <torch/csrc/jit/passes/quantization/insert_observers.h>
#include <torch/csrc/jit/passes/quantization/insert_quant_dequant.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/model/walk.hpp>
#include <torchtap/quantization/int8.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/first.hpp>
#include <torchtap/reductions/log_histogram.hpp>
#include <torchtap/reductions/max.hpp>
#include <torchtap/reductions/min.hpp>
#include <torchtap/reductions/series.hpp>

namespace torchtap::quantization {
namespace {

/// The module that LibTorch's passes copy to each tensor that they quantize, and ask for scale and zero
/// point. It computes nothing: a recorder reads what comes by, and the attributes are set afterwards.
torch::jit::Module observer_module(const std::string& name, at::ScalarType type, at::QScheme scheme) {
  torch::jit::Module module("__torch__.torchtap.quantization." + name);
  const auto integer = c10::IntType::get();
  module.register_attribute("dtype", integer, static_cast<std::int64_t>(type));
  module.register_attribute("qscheme", integer, static_cast<std::int64_t>(scheme));
  module.register_attribute("ch_axis", integer, std::int64_t{0});
  module.register_attribute("scale", c10::TensorType::get(), at::full({1}, 1.F));
  module.register_attribute("zero_point", c10::TensorType::get(), at::zeros({1}, at::kInt));
  module.define(R"(
def forward(self, x: Tensor) -> Tensor:
    return x
def calculate_qparams(self) -> Tuple[Tensor, Tensor]:
    return self.scale, self.zero_point
)");
  return module;
}

void set_observed(const model::ModuleRef& module, const at::Tensor& scale, const at::Tensor& zero_point) {
  torch::jit::Module script = module.script();
  script.setattr("scale", scale.cpu());
  script.setattr("zero_point", zero_point.cpu());
}

/// The path of the module that an observer belongs to.
std::string owner_of(const model::ModuleRef& observer) {
  const std::string& path = observer.path();
  const auto dot = path.rfind('.');
  return dot == std::string::npos ? std::string() : path.substr(0, dot);
}

/// The rest of the observers in a converted graph.
struct Converted {
  std::int64_t operators = 0;  // that compute in int8
  bool unseen = false;         // a scale is NaN: no value came by its observer
};
void look_into(const torch::jit::Block& block, Converted& found) {
  for (const torch::jit::Node* const node : block.nodes()) {
    for (const torch::jit::Block* const inner : node->blocks()) look_into(*inner, found);
    const std::string name = node->kind().toQualString();
    const bool quantized = name.rfind("quantized::", 0) == 0;
    if (quantized) ++found.operators;
    if (!quantized && name != "aten::quantize_per_tensor") continue;
    for (const torch::jit::Value* const input : node->inputs()) {
      const auto constant = torch::jit::toIValue(input);
      if (constant && constant->isDouble() && std::isnan(constant->toDouble())) found.unseen = true;
    }
  }
}

/// Real values for the quantized ones in `value`, before the node where `graph` inserts.
torch::jit::Value* dequantized(torch::jit::Graph& graph, torch::jit::Value* value) {
  const c10::TypePtr type = value->type();
  const auto tuple = type->cast<c10::TupleType>();
  const bool tensors =
      type->isSubtypeOf(*c10::TensorType::get()) || type->isSubtypeOf(*c10::ListType::ofTensors());
  if (value->node()->kind() == c10::aten::dequantize || (!tensors && !tuple)) return value;
  if (!tuple) {
    torch::jit::Node* const node = graph.insertNode(graph.create(c10::aten::dequantize, {value}));
    node->output()->setType(type);
    return node->output();
  }
  const bool made_here = value->node()->kind() == c10::prim::TupleConstruct;
  const auto parts =
      made_here ? value->node()->inputs() : graph.insertNode(graph.createTupleUnpack(value))->outputs();
  std::vector<torch::jit::Value*> real;
  for (torch::jit::Value* const part : parts) real.push_back(dequantized(graph, part));
  return graph.insertNode(graph.createTuple(real, tuple->schema() ? tuple : nullptr))->output();
}

/// The passes call `dequantize` of whole tuples, which runs in memory, but reading it from a file gives it
/// the type of a list, and the file cannot be loaded.
void dequantize_parts(torch::jit::Graph& graph, torch::jit::Block& block) {
  for (auto node = block.nodes().begin(); node != block.nodes().end();) {
    torch::jit::Node* const one = *node++;
    for (torch::jit::Block* const inner : one->blocks()) dequantize_parts(graph, *inner);
    if (one->kind() != c10::aten::dequantize || !one->input()->type()->cast<c10::TupleType>()) continue;
    const torch::jit::WithInsertPoint before(one);
    one->output()->replaceAllUsesWith(dequantized(graph, one->input()));
    torch::jit::Node* const whole = one->input()->node();
    one->destroy();
    if (whole->kind() == c10::prim::TupleConstruct && !whole->hasUses()) whole->destroy();
  }
}

/// The methods that a graph calls, directly or through other methods.
struct Called {
  std::set<std::pair<const c10::ClassType*, std::string>> methods;
  std::set<std::string> of_interfaces;  // whichever module they are of

  void by(const torch::jit::Block& block) {
    for (const torch::jit::Node* const node : block.nodes()) {
      for (const torch::jit::Block* const inner : node->blocks()) by(*inner);
      if (node->kind() != c10::prim::CallMethod) continue;
      const std::string& name = node->s(c10::attr::name);
      if (const auto type = node->input(0)->type()->cast<c10::ClassType>()) {
        add(*type, name);
      } else {
        of_interfaces.insert(name);
      }
    }
  }
  void add(const c10::ClassType& type, const std::string& name) {
    if (!methods.emplace(&type, name).second) return;
    torch::jit::GraphFunction& function = torch::jit::toGraphFunction(type.getMethod(name));
    function.ensure_defined();
    by(*function.graph()->block());
  }
};

/// A copy in its own compilation unit, because the passes leave functions there and remove others. It has no
/// methods that `forward` does not call: the passes remove modules that only such a method uses, and then ask
/// for them.
torch::jit::Module script_copy(const torch::jit::Module& model) {
  std::stringstream stream;
  model.save(stream);
  torch::jit::Module copy = torch::jit::load(stream);
  Called called;
  called.add(*copy.type(), "forward");
  for (const torch::jit::Module& part : copy.modules()) {
    std::vector<std::string> unused;
    for (const auto* const method : part.type()->methods()) {
      const std::string& name = method->name();
      if (name.rfind("__", 0) != 0 && called.methods.count({part.type().get(), name}) == 0 &&
          called.of_interfaces.count(name) == 0)
        unused.push_back(name);
    }
    for (const std::string& name : unused) part.type()->unsafeRemoveMethod(name);
  }
  return copy;
}

/// LibTorch's passes change a class, but values only in those modules that `forward` calls. Another module of
/// the same class would have fewer values than its class has names, or others. Here it loses observers that
/// its class has no more, and gets `made(type)` for each value that it lacks.
void complete(const torch::jit::Module& module, const std::vector<c10::TypePtr>& observers,
              const std::function<c10::IValue(const c10::TypePtr&)>& made) {
  const auto object = module._ivalue();
  const c10::ClassType& type = *object->type();
  const auto is = [&](std::size_t i, const c10::TypePtr& other) {
    return i < type.numAttributes() && type.getAttribute(i) == other;
  };
  for (std::size_t i = object->slots().size(); i-- > 0;) {
    const c10::IValue& value = object->slots()[i];
    if (!value.isObject()) continue;
    const c10::TypePtr held = value.toObject()->type();
    if (std::find(observers.begin(), observers.end(), held) != observers.end() && !is(i, held))
      object->unsafeRemoveSlot(i);
  }
  for (std::size_t i = object->slots().size(); i < type.numAttributes(); ++i)
    object->setSlot(i, made(type.getAttribute(i)));
  for (std::size_t i = 0; i < type.numAttributes(); ++i) {
    if (type.getAttribute(i)->is_module())
      complete(torch::jit::Module(object->getSlot(i).toObject()), observers, made);
  }
}

/// A value of a type that a module has and never uses.
c10::IValue unused(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::FloatType:
      return 0.;
    case c10::TypeKind::IntType:
      return 0;
    case c10::TypeKind::BoolType:
      return false;
    case c10::TypeKind::TensorType:
      return at::Tensor();
    default:
      return {};
  }
}

void check_convertible(const torch::jit::Module& model, const QuantizationOptions& options) {
  TORCH_CHECK_VALUE(options.dtype() == Dtype::uint8,
                    "quantization::to_int8: activations are uint8, because "
                    "LibTorch's operators demand it, but QuantizationOptions::dtype is ",
                    name_of(options.dtype()), "; pass QuantizationOptions().dtype(Dtype::uint8).");
  TORCH_CHECK_VALUE(options.weights() == Dtype::int8,
                    "quantization::to_int8: weights are int8, because "
                    "LibTorch's operators demand it, but QuantizationOptions::weights is ",
                    options.weights() ? name_of(*options.weights()) : "nothing",
                    "; leave it at Dtype::int8.");
  TORCH_CHECK_VALUE(at::globalContext().qEngine() != at::QEngine::NoQEngine,
                    "quantization::to_int8: no quantized engine is set, so that no operator could run; set "
                    "one of at::globalContext().supportedQEngines() by setQEngine.");
  for (const auto& part : model.named_modules()) {
    TORCH_CHECK_VALUE(!part.value.hasattr("training") || !part.value.is_training(),
                      "quantization::to_int8: module \"", part.name,
                      "\" is in training mode, in which batch norms cannot be folded into convolutions; call "
                      "model.eval() first.");
  }
}

/// Whether a value is read behind a node.
bool is_read_behind(const torch::jit::Value& value, const torch::jit::Node& node) {
  const auto& uses = value.uses();
  return std::any_of(uses.begin(), uses.end(), [&](const auto& use) { return use.user->isAfter(&node); });
}

/// Computes beside the tensor what changes it in place, `y.relu_()`, and has what comes behind use that,
/// where nothing can tell the difference. LibTorch's passes move such changes behind their uses, and its
/// operators of quantized tensors are wrong in place.
void without_changes_in_place(torch::jit::Block& block) {
  for (auto at = block.nodes().begin(); at != block.nodes().end();) {
    torch::jit::Node* const node = *at++;
    for (torch::jit::Block* const inner : node->blocks()) without_changes_in_place(*inner);
    const std::string name = node->kind().toQualString();
    const bool in_place = name.rfind("aten::", 0) == 0 && name.back() == '_' && name[name.size() - 2] != '_';
    if (!in_place || node->outputs().size() != 1) continue;
    torch::jit::Value* const changed = node->input(0);
    changed->replaceAllUsesDominatedByNodeWith(node, node->output());
    const auto& made_of = changed->node()->inputs();  // the tensor may be one of these, or a view of it
    const bool seen = changed->node()->kind() == torch::jit::prim::Param || is_read_behind(*changed, *node) ||
                      std::any_of(made_of.begin(), made_of.end(),
                                  [&](const auto* value) { return is_read_behind(*value, *node); });
    if (seen) continue;
    const auto kind = c10::Symbol::fromQualString(name.substr(0, name.size() - 1));
    torch::jit::Node* const beside = block.owningGraph()->create(kind, node->inputs(), 1)->insertBefore(node);
    if (beside->maybeSchema() == nullptr) {
      beside->destroy();
      continue;
    }
    beside->output()->copyMetadata(node->output());
    node->output()->replaceAllUsesWith(beside->output());
    node->destroy();
  }
}

}  // namespace

torch::jit::Module to_int8(const torch::jit::Module& model,
                           const std::function<void(torch::jit::Module&)>& run,
                           const QuantizationOptions& options) {
  check_convertible(model, options);
  const torch::jit::Module activation = observer_module("Activation", at::kQUInt8, at::kPerTensorAffine);
  const torch::jit::Module weight = observer_module("Weight", at::kQInt8, at::kPerChannelSymmetric);
  torch::jit::Module copy = script_copy(model);
  for (const auto& part : copy.modules()) {
    if (const auto forward = part.find_method("forward"))
      without_changes_in_place(*forward->graph()->block());
  }
  torch::jit::Module prepared = torch::jit::FoldConvBatchNorm(copy);
  prepared = torch::jit::InsertObservers(prepared, "forward", {{"", torch::jit::QConfig(activation, weight)}},
                                         /*inplace=*/true);
  const std::vector<c10::TypePtr> observers{activation.type(), weight.type()};
  complete(prepared, observers, [&](const c10::TypePtr& type) -> c10::IValue {
    return (type == observers[1] ? weight : activation).deepcopy()._ivalue();
  });

  std::vector<model::ModuleRef> activations, weights;
  for (const model::ModuleRef& module : model::walk_modules(prepared)) {
    if (module.script().type() == activation.type()) activations.push_back(module);
    if (module.script().type() == weight.type()) weights.push_back(module);
  }
  const std::string nothing =
      "quantization::to_int8: nothing in the model (" + model.type()->repr_str() +
      ") can be quantized: it has no convolution, linear layer or other operator that LibTorch has in int8.";
  TORCH_CHECK_VALUE(!activations.empty(), nothing);

  using namespace reductions;  // NOLINT(google-build-using-namespace): six names
  recorders::ForwardPre ranges(Series(LogHistogram(LogHistogramOptions(5).over_all(true)),
                                      Min(MinOptions().over_all(true)), Max(MaxOptions().over_all(true))));
  recorders::ForwardPre values(First{});
  ranges.attach(activations);
  if (!weights.empty()) values.attach(weights);
  {
    const at::NoGradGuard no_gradients;
    run(prepared);
  }
  ranges.detach();
  values.detach();
  TORCH_CHECK_VALUE(ranges.samples() > 0,
                    "quantization::to_int8: `run` never called the model; call forward "
                    "of the module that it is given, on calibration data.");

  // Other engines add products of neighbours in 16 bits, where activations of eight bits would saturate.
  const at::QEngine engine = at::globalContext().qEngine();
  const bool seven_bits = engine != at::QEngine::QNNPACK && engine != at::QEngine::ONEDNN;
  std::vector<std::string> unseen;
  for (std::size_t i = 0; i < activations.size(); ++i) {
    const auto& range = ranges[static_cast<std::int64_t>(i)];
    const core::Results counted = range.results();
    if (counted.empty()) {  // right if it is in a branch for training, which `Finalize` removes
      const std::string owner = owner_of(activations[i]);
      const std::string place = owner.empty() ? "the model's own forward" : '"' + owner + '"';
      if (std::find(unseen.begin(), unseen.end(), place) == unseen.end()) unseen.push_back(place);
      set_observed(activations[i], at::full({1}, std::numeric_limits<float>::quiet_NaN()),
                   at::zeros({1}, at::kInt));
      continue;
    }
    Parameters found;
    try {
      found = parameters(counted, options);
    } catch (c10::Error& error) {
      error.add_context("while converting \"" + owner_of(activations[i]) + "\"");
      throw;
    }
    set_observed(
        activations[i], seven_bits ? at::mul(found.scale, 255. / 127) : found.scale,
        seven_bits ? at::round(at::mul(found.zero_point, 127. / 255)).to(at::kInt) : found.zero_point);
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const core::Results recorded = values[static_cast<std::int64_t>(i)].results();
    at::Tensor value = recorded.empty() ? at::zeros({1}) : recorded.at("value");
    // Transposed convolutions have one scale, because engines have no other.
    if (value.dim() < 2 ||
        model::find(prepared, owner_of(weights[i])).type().rfind("ConvTranspose", 0) == 0) {
      torch::jit::Module(weights[i].script())
          .setattr("qscheme", static_cast<std::int64_t>(at::kPerTensorSymmetric));
      value = value.reshape({1, -1});
    }
    const Parameters found = weight_parameters(value, Dtype::int8);
    set_observed(weights[i], found.scale, found.zero_point);
  }

  prepared = torch::jit::InsertQuantDeQuant(prepared, "forward", /*inplace=*/true, /*debug=*/false);
  complete(prepared, observers, unused);
  prepared.to(at::kCPU);
  torch::jit::Module converted = torch::jit::Finalize(prepared);
  auto graph = converted.get_method("forward").graph();
  torch::jit::ConstantPropagation(graph);
  dequantize_parts(*graph, *graph->block());
  Converted result;
  look_into(*graph->block(), result);
  TORCH_CHECK_VALUE(result.operators > 0, nothing);
  TORCH_CHECK_VALUE(!result.unseen,
                    "quantization::to_int8: parts of the model never ran on the calibration "
                    "data, or on no rows, so that the ranges of their tensors are unknown: in ",
                    c10::Join(", ", unseen),
                    "; use data that takes every branch, or a model of torch.jit.trace, which has none.");
  return converted;
}

}  // namespace torchtap::quantization
