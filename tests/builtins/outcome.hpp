#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

#include "../hooks/support.hpp"

/// What calling a module comes to, as its caller can see it. Plain LibTorch.
namespace builtins {

using support::flat;
using Tensors = std::vector<at::Tensor>;

struct Outcome {
  Tensors outputs, output_gradients, input_gradients, parameter_gradients, buffers;
};

inline at::Tensor weight_of(const at::Tensor& output, std::size_t index) {
  return at::linspace(0.5 + static_cast<double>(index), 2, output.numel(), at::kFloat)
      .view(output.sizes())
      .to(output.scalar_type());
}

using Forward = std::function<Tensors(Tensors&)>;

/// Calls `forward` on fresh copies of the inputs, then runs a backward whose gradients are known.
inline Outcome run(torch::nn::Module& module, const Tensors& inputs, const Forward& forward,
                   bool with_output_gradients = false) {
  Tensors given;
  for (const auto& input : inputs) {
    given.push_back(input.detach().clone().set_requires_grad(input.requires_grad()));
  }
  at::manual_seed(2);
  Outcome outcome;
  outcome.outputs = forward(given);
  at::Tensor loss;
  for (std::size_t i = 0; i < outcome.outputs.size(); ++i) {
    const auto& output = outcome.outputs[i];
    if (!output.defined() || !output.requires_grad()) continue;
    const auto part = (output * weight_of(output, i)).sum();
    loss = loss.defined() ? loss + part : part;
  }
  if (loss.defined() && with_output_gradients) {
    for (const auto& output : outcome.outputs) {
      // As autograd has it: one output may have been computed from another one.
      const bool has = output.defined() && output.requires_grad();
      outcome.output_gradients.push_back(has ? torch::autograd::grad({loss}, {output}, {}, true)[0]
                                             : at::Tensor());
    }
  }
  if (loss.defined()) loss.backward();
  for (const auto& input : given) outcome.input_gradients.push_back(input.grad());
  for (const auto& parameter : module.parameters()) outcome.parameter_gradients.push_back(parameter.grad());
  for (const auto& buffer : module.buffers()) outcome.buffers.push_back(buffer.clone());
  return outcome;
}

/// One way to make and call a type, without the type.
struct Made {
  std::shared_ptr<torch::nn::Module> module;
  Forward forward;
};

template <class Holder, std::size_t... I, class Make>
Made direct(Make make, bool by_holder, std::index_sequence<I...>) {
  at::manual_seed(1);
  auto holder = make(static_cast<Holder*>(nullptr));
  if (by_holder) return {holder.ptr(), [holder](Tensors& in) mutable { return flat(holder(in[I]...)); }};
  return {holder.ptr(), [holder](Tensors& in) mutable { return flat(holder->forward(in[I]...)); }};
}

template <class Holder, std::size_t... I, class Make>
Made entry(Make make, std::index_sequence<I...>) {
  using Result = decltype(std::declval<Holder&>()->forward((void(I), std::declval<at::Tensor&>())...));
  at::manual_seed(1);
  torch::nn::Sequential model(make(static_cast<Holder*>(nullptr)));
  return {model.ptr(),
          [model](Tensors& in) mutable { return flat(model->template forward<Result>(in[I]...)); }};
}

template <class Visit>
void visit_parts(Outcome& outcome, Visit&& visit) {
  visit("outputs", outcome.outputs);
  visit("output_gradients", outcome.output_gradients);
  visit("input_gradients", outcome.input_gradients);
  visit("parameter_gradients", outcome.parameter_gradients);
  visit("buffers", outcome.buffers);
}

/// Files outcomes by name; a tensor that is not there is an empty one of type bool.
inline void write(torch::serialize::OutputArchive& archive, const std::string& name, Outcome outcome) {
  visit_parts(outcome, [&](const std::string& part, Tensors& tensors) {
    const std::string key = name + "/" + part;
    archive.write(key, at::scalar_tensor(static_cast<std::int64_t>(tensors.size()), at::kLong));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto& tensor = tensors[i];
      const bool needs_grad = tensor.defined() && tensor.requires_grad();
      archive.write(key + std::to_string(i), tensor.defined() ? tensor.detach() : at::empty({0}, at::kBool));
      archive.write(key + std::to_string(i) + "/grad", at::scalar_tensor(needs_grad, at::kBool));
    }
  });
}

inline Outcome read(torch::serialize::InputArchive& archive, const std::string& name) {
  Outcome outcome;
  visit_parts(outcome, [&](const std::string& part, Tensors& tensors) {
    const std::string key = name + "/" + part;
    at::Tensor count;
    archive.read(key, count);
    tensors.resize(static_cast<std::size_t>(count.item<std::int64_t>()));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      at::Tensor grad;
      archive.read(key + std::to_string(i), tensors[i]);
      archive.read(key + std::to_string(i) + "/grad", grad);
      if (tensors[i].scalar_type() == at::kBool && tensors[i].numel() == 0) tensors[i] = at::Tensor();
      if (grad.item<bool>()) tensors[i].requires_grad_();
    }
  });
  return outcome;
}

}  // namespace builtins
