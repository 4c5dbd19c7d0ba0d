// Finds the end of a forward pass and the beginning of the next.
#include "hidden_pass.hpp"

#include <torch/nn/module.h>

#include <algorithm>
#include <exception>

#include <torchtap/views/watch/identity.hpp>

namespace torchtap::tools::preload {

std::vector<at::Tensor> inputs_of(const hooks::Event& call) {
  std::vector<at::Tensor> inputs;
  for (std::int64_t i = 0; i < call.inputs().size(); ++i) {
    if (call.inputs()[i].defined()) inputs.push_back(call.inputs()[i]);
  }
  return inputs;
}

void Pass::begin(Modules visible) {
  forget();
  visible_ = std::move(visible);
}

void Pass::forget() {
  const std::lock_guard lock(mutex_);
  visible_.clear();
  called_.clear();
  computed_.clear();
  begun_ = false;
  called_before_ = 0;
  calls_without_new_ = 0;
  operations_ = 0;
}

void Pass::called(const torch::nn::Module& module) {
  visible_.erase(&module);
  called_.insert(&module);
}

bool Pass::begins_again(const std::vector<at::Tensor>& inputs) {
  const bool again = begun_;
  begun_ = true;
  // An encoder may run on several inputs before the rest of the model; one of a single module, many times.
  const std::int64_t patience = called_.size() > 1 ? 2 : 64;
  calls_without_new_ = called_.size() == called_before_ ? calls_without_new_ + 1 : 0;
  called_before_ = called_.size();
  const bool fresh =
      std::none_of(inputs.begin(), inputs.end(), [this](const at::Tensor& input) { return computed(input); });
  if (again && fresh && (visible_.empty() || calls_without_new_ >= patience)) return true;
  for (const at::Tensor& input : inputs) add(input);
  return false;
}

void Pass::follow(operations::Event& event) {
  ++operations_;
  const bool from_inputs = reads_computed(event);
  event.run();
  if (!from_inputs) return;
  for (const c10::IValue& result : event.results()) {
    operations::for_each_tensor(result, [&](const at::Tensor& tensor) { add(tensor); });
  }
}

bool Pass::reads_computed(const operations::Event& event) {
  bool found = false;
  for (const c10::IValue& argument : event.arguments()) {
    operations::for_each_tensor(argument,
                                [&](const at::Tensor& tensor) { found = found || computed(tensor); });
  }
  return found;
}

bool Pass::computed(const at::Tensor& tensor) const {
  const std::lock_guard lock(mutex_);
  return computed_.count(views::watch::memory_of(tensor)) != 0;
}

void Pass::add(const at::Tensor& tensor) {
  const auto* memory = views::watch::memory_of(tensor);
  const std::lock_guard lock(mutex_);
  if (memory != nullptr) computed_.emplace(memory, tensor.storage().getWeakStorageImpl());
}

}  // namespace torchtap::tools::preload
