// Explorers, over what a session records.
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <utility>

#include <torchtap/core/detail/error.hpp>
#include <torchtap/core/detail/recording_mode.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/views/explorer/detail/export.hpp>
#include <torchtap/views/explorer/detail/http_server.hpp>
#include <torchtap/views/explorer/detail/session.hpp>
#include <torchtap/views/explorer/explorer.hpp>

namespace torchtap::views::explorer {

Explorer::Explorer(Options options) : session_(std::make_shared<detail::Session>(std::move(options))) {}

Explorer::~Explorer() {
  if (session_ != nullptr) session_->close();
}

Explorer::Explorer(Explorer&&) noexcept = default;

Explorer& Explorer::operator=(Explorer&& other) noexcept {
  if (this == &other) return *this;
  if (session_ != nullptr) session_->close();
  session_ = std::move(other.session_);
  server_ = std::move(other.server_);
  return *this;
}

void Explorer::watch(torch::nn::Module& model, const selectors::Selector& selector) {
  session_->watch(model::walk_modules(model), selector);
}

void Explorer::watch(const torch::jit::Module& model, const selectors::Selector& selector,
                     const std::string& method) {
  session_->watch(model::walk_modules(model, method), selector);
}

void Explorer::step(std::int64_t number) {
  session_->set_step(number);
}

void Explorer::scalar(const std::string& name, double value) {
  session_->scalar(name, value);
}

void Explorer::scalar(const std::string& name, const at::Tensor& value) {
  TORCH_CHECK_VALUE(value.defined() && value.numel() == 1, "explorer::Explorer::scalar: \"", name,
                    "\" needs a tensor of one element, got ",
                    value.defined() ? c10::str("one of shape ", value.sizes()) : "an undefined one",
                    "; pass its mean, say.");
  if (!value.device().is_cpu() && !session_->recording()) return;
  const core::detail::RecordingMode quiet;
  session_->scalar(name, value.item().toDouble());
}

std::string Explorer::serve(const ServeOptions& options) {
  TORCH_CHECK_VALUE(server_ == nullptr, "explorer::Explorer::serve: this explorer serves a page already, at ",
                    server_ == nullptr ? "" : server_->url(), ".");
  server_ = std::make_unique<detail::HttpServer>(detail::Runs{session_->run()}, options);
  return server_->url();
}

void Explorer::export_page(const std::string& file) const {
  detail::export_page({session_->run()}, file);
}

std::int64_t Explorer::step() const {
  return session_->step();
}

std::vector<std::string> Explorer::errors() const {
  return session_->errors();
}

}  // namespace torchtap::views::explorer
