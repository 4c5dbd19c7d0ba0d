#pragma once

// A pass that is being logged: the log, the hooks on the model's modules, and the scope of the thread.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torchtap/hooks/attach.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/operations/scope.hpp>
#include <torchtap/views/trace/detail/log.hpp>
#include <torchtap/views/trace/history.hpp>

namespace torchtap::views::trace::detail {

class LoggedPass {
 public:
  explicit LoggedPass(TraceOptions options);
  ~LoggedPass();
  LoggedPass(const LoggedPass&) = delete;
  LoggedPass& operator=(const LoggedPass&) = delete;
  /// Names the modules' parameters, and attaches to every module that can be hooked. Called once.
  void attach(const std::vector<model::ModuleRef>& modules);

  void input(const c10::IValue& value, const std::string& name);
  void output(const c10::IValue& value, const std::string& name);
  void start();
  void stop(const std::string& error) noexcept;
  History finish();

  const std::shared_ptr<Log>& log() const noexcept { return log_; }

 private:
  void detach() noexcept;
  void add_parameters(const std::vector<model::ModuleRef>& modules);
  void add_constants(const std::vector<model::ModuleRef>& modules);

  std::shared_ptr<Log> log_;
  std::vector<hooks::Handle> handles_;
  std::optional<operations::Scope> scope_;
  bool finished_ = false;
};

}  // namespace torchtap::views::trace::detail
