// Explorers, over the models that they watch.
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/views/explorer/detail/watched_models.hpp>
#include <torchtap/views/explorer/explorer.hpp>

namespace torchtap::views::explorer {

Explorer::Explorer(ExplorerOptions options)
    : models_(std::make_unique<detail::WatchedModels>(std::move(options))) {}

Explorer::~Explorer() = default;
Explorer::Explorer(Explorer&&) noexcept = default;
Explorer& Explorer::operator=(Explorer&&) noexcept = default;

void Explorer::attach(const selectors::ModuleView& model, const selectors::Selector& selector,
                      const std::string& name) {
  models_->watch(model.vector(), selector, name);
}

void Explorer::step(std::int64_t number) {
  models_->set_step(number);
}

void Explorer::scalar(const std::string& name, double value) {
  models_->scalar(name, value);
}

void Explorer::scalar(const std::string& name, const at::Tensor& value) {
  TORCH_CHECK_VALUE(value.defined() && value.numel() == 1, "views::explorer::Explorer::scalar: \"", name,
                    "\" needs a tensor of one element, got ",
                    value.defined() ? c10::str("one of shape ", value.sizes()) : "an undefined one",
                    "; pass its mean, say.");
  if (!value.device().is_cpu() && !models_->recording()) return;
  const base::RecordingMode quiet;
  models_->scalar(name, value.item().toDouble());
}

std::string Explorer::serve(const ServeOptions& options) {
  return models_->serve(options);
}

void Explorer::export_page(const std::string& file) const {
  models_->export_page(file);
}

std::int64_t Explorer::step() const {
  return models_->first()->step();
}

std::vector<std::string> Explorer::errors() const {
  return models_->errors();
}

detail::WatchedModels& detail::models_of(const Explorer& explorer) noexcept {
  return *explorer.models_;
}

}  // namespace torchtap::views::explorer
