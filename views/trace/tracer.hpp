#pragma once

/// Logs a forward pass that a single call of `forward` with tensors cannot express.

#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <string>

#include <torchtap/base/api.hpp>
#include <torchtap/selectors/walk.hpp>
#include <torchtap/views/trace/history.hpp>
#include <torchtap/views/trace/options.hpp>

namespace torchtap::views::trace {

namespace detail {
class LoggedPass;
}

/// Logs every operation of this thread between `start` and `stop`:
///
///     trace::Tracer tracer(*model, trace::TraceOptions().save(trace::Save::all));
///     tracer.input(tokens, "tokens");
///     tracer.run([&] { tracer.output(model->forward(tokens, mask)); });
///     trace::History history = tracer.finish();
///
/// The model gives names to parameters and buffers and, through hooks, to the modules that run. It is not
/// changed; the hooks go with `finish` or with the tracer. If the pass throws, `finish` still gives what was
/// logged, with the error.
class TORCHTAP_API Tracer {
 public:
  /// For a model. Throws as `hooks::attach` does, but not for modules that cannot be hooked: the history
  /// lists them.
  explicit Tracer(const selectors::ModuleView& model, TraceOptions options = {});
  /// For code without a model.
  explicit Tracer(TraceOptions options = {});
  ~Tracer();
  Tracer(Tracer&&) noexcept;
  Tracer& operator=(Tracer&&) noexcept;

  /// Names the tensors in `value` as inputs of the pass: `name` if it is one tensor, else "name.0",
  /// "name.key" …; without a name, "input.0" for the first value, "input.1" … Call it before they are used.
  Tracer& input(const c10::IValue& value, const std::string& name = "");
  /// Names the tensors in `value` as outputs, likewise.
  Tracer& output(const c10::IValue& value, const std::string& name = "");

  /// Begins to log the operations of this thread. Throws `c10::ValueError` if it has begun already, or after
  /// `finish`, and as `operations::Scope` does.
  void start();
  /// Ends it; call it in the thread that called `start`. `error` says what ended the pass early. Does nothing
  /// if it has not begun. A further `start` continues the same log.
  void stop(const std::string& error = "") noexcept;
  /// Calls `function` between `start` and `stop`, and passes on its exceptions.
  void run(const std::function<void()>& function);

  /// The log. Throws `c10::ValueError` if it was taken already, or if a name in `TraceOptions::save` finds
  /// nothing: then `options` may be changed, and `finish` called again.
  History finish();
  /// The options. Changes take effect before `start`; changes of `save(names)` before `finish`.
  TraceOptions& options();

 private:
  detail::LoggedPass& recording(const char* call) const;

  std::unique_ptr<detail::LoggedPass> recording_;
};

}  // namespace torchtap::views::trace
