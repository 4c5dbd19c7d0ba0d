// Logging a pass step by step, and TorchScript's in one call.
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <torchtap/base/error.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/views/trace/detail/logged_pass.hpp>
#include <torchtap/views/trace/log_forward_pass.hpp>
#include <torchtap/views/trace/tracer.hpp>

namespace torchtap::views::trace {

Tracer::Tracer(const selectors::ModuleView& model, TraceOptions options)
    : recording_(std::make_unique<detail::LoggedPass>(std::move(options))) {
  recording_->attach(model.vector());
}

Tracer::Tracer(TraceOptions options) : recording_(std::make_unique<detail::LoggedPass>(std::move(options))) {}

Tracer::~Tracer() {
  if (recording_ != nullptr) stop();
}
Tracer::Tracer(Tracer&&) noexcept = default;
Tracer& Tracer::operator=(Tracer&&) noexcept = default;

detail::LoggedPass& Tracer::recording(const char* call) const {
  TORCH_CHECK_VALUE(recording_ != nullptr, "views::trace::Tracer::", call,
                    ": this tracer was moved to another one; use that one.");
  TORCH_CHECK_VALUE(
      !recording_->log()->asks_here(), "views::trace::Tracer::", call,
      ": called by the trace's own predicate or transform, in the middle of an operation; call it "
      "after the pass.");
  return *recording_;
}

Tracer& Tracer::input(const c10::IValue& value, const std::string& name) {
  recording("input").input(value, name);
  return *this;
}

Tracer& Tracer::output(const c10::IValue& value, const std::string& name) {
  recording("output").output(value, name);
  return *this;
}

void Tracer::start() {
  recording("start").start();
}

void Tracer::stop(const std::string& error) noexcept {
  if (recording_ != nullptr && !recording_->log()->asks_here()) recording_->stop(error);
}

void Tracer::run(const std::function<void()>& function) {
  start();
  try {
    function();
  } catch (const c10::Error& error) {
    stop(error.what_without_backtrace());
    throw;
  } catch (const std::exception& error) {
    stop(error.what());
    throw;
  } catch (...) {
    stop("an exception that is no std::exception");
    throw;
  }
  stop();
}

History Tracer::finish() {
  return recording("finish").finish();
}

TraceOptions& Tracer::options() {
  return recording("options").log()->options;
}

History log_forward_pass(const torch::jit::Module& model, std::vector<c10::IValue> inputs,
                         TraceOptions options, const std::string& method) {
  Tracer tracer(selectors::modules(model, method), std::move(options));
  for (const c10::IValue& input : inputs) tracer.input(input);
  // A function refers to the object that holds the module's data, so calling it on a copy is the same.
  torch::jit::Module called = model;
  tracer.run([&] { tracer.output(called.get_method(method)(std::move(inputs))); });
  return tracer.finish();
}

}  // namespace torchtap::views::trace
