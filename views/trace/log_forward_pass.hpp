#pragma once

/// One call that logs a forward pass.

#include <ATen/core/ivalue.h>

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/hooks/values.hpp>
#include <torchtap/views/trace/tracer.hpp>

namespace torchtap::views::trace {

namespace detail {

template <std::size_t>
using TensorFor = const at::Tensor&;

template <class Model, class Indices, class = void>
struct TakesTensors : std::false_type {};
template <class Model, std::size_t... I>
struct TakesTensors<Model, std::index_sequence<I...>,
                    std::void_t<decltype(std::declval<Model&>().forward(std::declval<TensorFor<I>>()...))>>
    : std::true_type {};

/// Calls `forward` if it takes as many tensors as there are inputs.
template <class Model, std::size_t... I>
bool call_with(Model& model, const std::vector<at::Tensor>& inputs, Tracer& tracer,
               std::index_sequence<I...>) {
  if constexpr (TakesTensors<Model, std::index_sequence<I...>>::value) {
    if (inputs.size() != sizeof...(I)) return false;
    if constexpr (std::is_void_v<decltype(model.forward(inputs[I]...))>) {
      model.forward(inputs[I]...);
    } else {
      auto result = model.forward(inputs[I]...);
      for (const at::Tensor& tensor : hooks::tensors_in(result)) tracer.output(tensor);
    }
    return true;
  } else {
    return false;
  }
}

template <class Model, std::size_t... N>
bool call_forward(Model& model, const std::vector<at::Tensor>& inputs, Tracer& tracer,
                  std::index_sequence<N...>) {
  return (call_with(model, inputs, tracer, std::make_index_sequence<N>()) || ...);
}

}  // namespace detail

/// Calls `model.forward(inputs...)` once and logs it. The model and the program's random numbers are as after
/// that one call.
///
///     auto history = trace::log_forward_pass(*model, {x}, trace::TraceOptions().save({"conv2d_*"}));
///
/// Takes up to eight tensors; `Tracer` logs a forward with other arguments. Throws `c10::ValueError` if
/// `forward` does not take as many tensors, the exceptions of `forward`, and as `Tracer` does.
template <class Model, class = std::enable_if_t<std::is_convertible_v<Model*, torch::nn::Module*>>>
History log_forward_pass(Model& model, const std::vector<at::Tensor>& inputs, TraceOptions options = {}) {
  Tracer tracer(static_cast<torch::nn::Module&>(model), std::move(options));
  for (const at::Tensor& input : inputs) tracer.input(input);
  tracer.run([&] {
    TORCH_CHECK_VALUE(detail::call_forward(model, inputs, tracer, std::make_index_sequence<9>()),
                      "views::trace::log_forward_pass: the model's forward does not take ", inputs.size(),
                      " tensors; use trace::Tracer and call forward with what it takes.");
  });
  return tracer.finish();
}

/// Logs a TorchScript model; `inputs` are the arguments of `method`, and tensors inside of lists, tuples and
/// dicts are separate inputs ("input.0.key").
TORCHTAP_API History log_forward_pass(const torch::jit::Module& model, std::vector<c10::IValue> inputs,
                                      TraceOptions options = {}, const std::string& method = "forward");

}  // namespace torchtap::views::trace
