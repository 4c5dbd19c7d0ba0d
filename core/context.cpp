// Keeps the contexts of each thread, looks up tensors in them, and calls functions when a context ends.

#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/base/of_thread.hpp>
#include <torchtap/core/context.hpp>

namespace torchtap::core {
namespace {

thread_local const Context* innermost = nullptr;
/// The functions to call when a context ends. In the order of beginning.
auto& ending_here() {
  return base::of_thread<std::vector<std::pair<const Context*, std::function<void()>>>>();
}

/// The tensor of that name; null if there is none.
template <class Entries>
auto named(Entries& entries, const std::string& name) -> decltype(&entries.begin()->second) {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == name; });
  return found == entries.end() ? nullptr : &found->second;
}

}  // namespace

Context::Context() : outer_(innermost), before_(innermost), nameless_(true) {
  innermost = this;
}

Context::Context(std::string name, at::Tensor tensor) : outer_(innermost), before_(innermost) {
  set(std::move(name), std::move(tensor));
  innermost = this;
}

Context::Context(Names entries) : outer_(innermost), before_(innermost) {
  for (auto& [name, tensor] : entries) {
    TORCH_CHECK_VALUE(named(named_, name) == nullptr, "core::Context: \"", name, "\" is named twice.");
    set(std::move(name), std::move(tensor));
  }
  innermost = this;
}

Context::Context(const std::shared_ptr<const Names>& names) : outer_(nullptr), before_(innermost) {
  if (names != nullptr) named_.append(names->begin(), names->end());
  innermost = this;
}

Context::~Context() {
  if (innermost == this) innermost = before_;
  // Those of several stacks in one thread (fibers) end in any order.
  for (const Context* inner = innermost; inner != nullptr && inner != before_; inner = inner->before_) {
    if (inner->outer_ == this) inner->outer_ = outer_;
    if (inner->before_ == this) inner->before_ = before_;
  }
  auto& ending = ending_here();
  const auto last = [&] {
    return std::find_if(ending.rbegin(), ending.rend(), [&](const auto& one) { return one.first == this; });
  };
  for (auto one = last(); one != ending.rend(); one = last()) {
    const auto function = std::move(one->second);
    ending.erase(std::next(one).base());
    function();
  }
}

void Context::set(std::string name, at::Tensor tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), "core::Context: \"", name,
                    "\" is an undefined tensor; name one that has a value.");
  if (at::Tensor* const known = named(named_, name)) {
    *known = std::move(tensor);
  } else {
    named_.emplace_back(std::move(name), std::move(tensor));
  }
}

std::shared_ptr<const Context::Names> Context::here() {
  if (innermost == nullptr) return nullptr;
  Names all;
  for (const Context* context = innermost; context != nullptr; context = context->outer_) {
    for (const auto& [name, tensor] : context->named_) {
      if (named(all, name) == nullptr) all.emplace_back(name, tensor);
    }
  }
  return std::make_shared<const Names>(std::move(all));
}

at::Tensor Context::find(const std::string& name) {
  for (const Context* context = innermost; context != nullptr; context = context->outer_) {
    if (const at::Tensor* const found = named(context->named_, name)) return *found;
  }
  return {};
}

const Context* Context::together() noexcept {
  const Context* context = innermost;
  while (context != nullptr && !context->nameless_) context = context->before_;
  return context != nullptr ? context : innermost;
}

void Context::at_end(std::function<void()> function) const {
  // An outer context may be asked after an inner one.
  auto& ending = ending_here();
  auto place = ending.end();
  for (const Context* inner = innermost; inner != nullptr && inner != this; inner = inner->before_) {
    while (place != ending.begin() && std::prev(place)->first == inner) --place;
  }
  ending.emplace(place, this, std::move(function));
}

}  // namespace torchtap::core
