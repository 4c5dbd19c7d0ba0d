#include "call_watch.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <mutex>

#include <torchtap/views/watch/calls.hpp>

#include "files/dtypes.hpp"
#include "model.hpp"
#include "terminal/message.hpp"
#include "terminal/message_text.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

Form form_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  if (tensor.is_nested()) {  // has no sizes, and throws if it is asked
    return {true, std::vector<std::int64_t>(static_cast<std::size_t>(tensor.dim()), -1),
            tensor.scalar_type()};
  }
  return {true, tensor.sizes().vec(), tensor.scalar_type()};
}

std::vector<Form> forms_of_tensors(const hooks::Tensors& tensors) {
  std::vector<Form> forms;
  for (std::int64_t i = 0; i < tensors.size(); ++i) forms.push_back(form_of(tensors[i]));
  return forms;
}

bool same(const std::vector<Form>& a, const std::vector<Form>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Form& x, const Form& y) {
    return x.defined == y.defined && x.shape == y.shape && x.dtype == y.dtype;
  });
}

/// Calls again and returns the error with the failing module and its inputs in front; "" if the call succeeds
/// this time.
std::string diagnose(const torch::jit::Module& model, const std::string& method,
                     const std::vector<c10::IValue>& arguments) {
  const Watch watch(selectors::modules(model, method));
  try {
    find_method(model, method)(arguments);
    return "";
  } catch (const std::exception& error) {
    const ScriptError parts = split(message_of(error));
    const auto open = watch.innermost();
    if (open == nullptr || parts.traceback.empty()) return "";
    const std::string name = open->path.empty() ? "the model" : "\"" + open->path + "\"";
    std::string text = name + " (" + open->type + ") fails on " + to_text(open->inputs) + ": " + parts.cause;
    if (!at::GradMode::is_enabled() && parts.cause.find("does not require grad") != std::string::npos) {
      text += "\nGradients are off; use --enable-grad.";
    }
    if (!open->path.empty()) text += "\nThe model was called with " + to_text(forms_of(arguments)) + ".";
    return text + "\n" + parts.traceback;
  }
}

}  // namespace

std::string to_text(const std::vector<Form>& forms) {
  std::string text;
  for (const auto& form : forms) {
    if (!text.empty()) text += ", ";
    text += form.defined ? shape_to_text(form.shape) + " " + dtype_text(form.dtype) : "none";
  }
  return text.empty() ? "no tensor" : text;
}

std::vector<Form> forms_of(const std::vector<c10::IValue>& arguments) {
  std::vector<Form> forms;
  for (const auto& argument : arguments) {
    argument.visit([&](const c10::IValue& part) {
      if (part.isTensor()) forms.push_back(form_of(part.toTensor()));
      return false;
    });
  }
  return forms;
}

struct Watch::Seen : views::watch::CallListener {
  mutable std::mutex mutex;  // TorchScript may run in several threads (fork)
  std::map<std::int64_t, Module> modules;
  std::vector<std::pair<std::int64_t, Open>> open;  // innermost last

  explicit Seen(const selectors::ModuleView& all) {
    for (const auto& module : all) indices.push_back(module.index());
  }
  std::vector<std::int64_t> indices;

  void call_begins(std::size_t place, int, hooks::Event& event) override {
    const std::lock_guard lock(mutex);
    open.push_back({indices[place], {event.path(), event.type(), forms_of_tensors(event.inputs())}});
  }
  void call_ends(std::size_t place, hooks::Event& event) override {
    const std::int64_t index = indices[place];
    const std::lock_guard lock(mutex);
    for (auto at = open.end(); at != open.begin();) {
      if ((--at)->first != index) continue;
      open.erase(at);
      break;
    }
    Module& module = modules[index];
    std::vector<Form> outputs = forms_of_tensors(event.outputs());
    if (module.calls++ == 0) {
      module.outputs = std::move(outputs);
    } else if (!same(module.outputs, outputs)) {
      ++module.other_outputs;
    }
  }
};

Watch::Watch(const selectors::ModuleView& modules)
    : seen_(std::make_shared<Seen>(modules)),
      handles_(views::watch::watch_calls(modules.vector(), seen_, [&](std::size_t place) {
        return modules.vector()[place].has_forward();
      })) {}

Watch::~Watch() {
  const hooks::DeferredCompile batch;
  handles_.clear();
}

Watch::Module Watch::at(std::int64_t index) const {
  const std::lock_guard lock(seen_->mutex);
  const auto found = seen_->modules.find(index);
  return found == seen_->modules.end() ? Module() : found->second;
}

std::unique_ptr<Watch::Open> Watch::innermost() const {
  const std::lock_guard lock(seen_->mutex);
  return seen_->open.empty() ? nullptr : std::make_unique<Open>(seen_->open.back().second);
}

c10::IValue call(const torch::jit::Module& model, const std::string& method,
                 const std::vector<c10::IValue>& arguments, const std::function<void()>& before_retry) {
  const auto function = find_method(model, method);
  try {
    return function(arguments);
  } catch (const std::exception& error) {
    if (split(message_of(error)).traceback.empty()) throw;
    before_retry();
    std::string diagnosis;
    try {
      diagnosis = diagnose(model, method, arguments);
    } catch (const std::exception&) {
      // The first error is more informative than an error of the search for its place.
    }
    TORCH_CHECK_VALUE(diagnosis.empty(), diagnosis);
    throw;
  }
}

}  // namespace torchtap::tools
