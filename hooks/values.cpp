#include <algorithm>
#include <torchtap/hooks/values.hpp>

namespace torchtap::hooks {
namespace {

using Types = c10::SmallVector<const std::type_info*, 1>;

bool contains(const Types& types, const std::type_info& type) {
  return std::any_of(types.begin(), types.end(), [&](const auto* other) { return *other == type; });
}

std::string list(const Types& types) {
  std::string text;
  for (const auto* type : types) text += (text.empty() ? "" : ", ") + c10::demangle(type->name());
  return text;
}

bool starts_with(const std::string& text, const char* beginning) {
  return text.rfind(beginning, 0) == 0;
}

/// Whether a type that `register_value` was not called for may need a `Visit`, too.
bool is_own(const std::type_info& type) {
  const std::string name = c10::demangle(type.name());
  return !starts_with(name, "std::") && !starts_with(name, "c10::") && !starts_with(name, "at::") &&
         !starts_with(name, "torch::");
}

}  // namespace

void Tensors::push_unknown(const std::type_info& type) {
  if (!contains(unknown_, type)) unknown_.push_back(&type);
}

void Tensors::push_unregistered(const std::type_info& type) {
  push_unknown(type);
  if (!contains(unregistered_, type)) unregistered_.push_back(&type);
}

void Tensors::push_unknown_of(const Tensors& other) {
  for (const auto* type : other.unknown_) push_unknown(*type);
  for (const auto* type : other.unregistered_) push_unregistered(*type);
}

std::string Tensors::describe_unknown() const {
  if (unknown_.empty()) return "";
  Types unvisited;
  for (const auto* type : unknown_) {
    if (!contains(unregistered_, *type)) unvisited.push_back(type);
  }
  std::string text =
      c10::str("torchtap does not know where the tensors in a value of type ", list(unknown_), " are.");
  for (const auto* type : unvisited) {
    const std::string name = c10::demangle(type->name());
    text += c10::str(" Specialise torchtap::hooks::Visit<", name,
                     ">, which names them, with an empty body if there are none.");
  }
  for (const auto* type : unregistered_) {
    const std::string name = c10::demangle(type->name());
    text += c10::str(" Call torchtap::hooks::register_value<", name, ">() once, before the model runs");
    text += is_own(*type)
                ? c10::str("; the compiler tells then if torchtap::hooks::Visit<", name, "> is missing, too.")
                : ".";
  }
  return text;
}

void Tensors::refuse(std::int64_t index) const {
  const std::string unknown = describe_unknown();
  TORCH_CHECK_INDEX(false, "hooks::Tensors: slot ", index, " was asked for, but there are ", size(), ".",
                    unknown.empty() ? "" : " ", unknown);
}

void Tensors::keep(std::int64_t begin, std::function<void(Of)> replace) {
  if (kept_ == nullptr) kept_ = std::make_unique<std::deque<Copy>>();
  Copy copy{static_cast<std::size_t>(begin), {}, std::move(replace)};
  for (std::size_t i = copy.begin; i < slots_.size(); ++i) copy.before.push_back(*slots_[i]);
  kept_->push_back(std::move(copy));
}

void Tensors::push_fixed(const Tensors& found, const std::type_info& pointer) {
  push_unknown_of(found);
  const std::int64_t begin = size();
  auto handles = std::make_shared<std::deque<at::Tensor>>();
  for (const auto* slot : found.slots_) {
    if (slot == &found.absent_) {
      push_absent();
    } else {
      push_back(handles->emplace_back(*slot));
    }
  }
  if (handles->empty()) return;
  keep(begin, [handles, name = pointer.name()](Of of) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "hooks: a hook replaced a tensor of the ",
                                of == Of::inputs ? "inputs" : "outputs", " behind a ", c10::demangle(name),
                                "; that object is constant or shared with others and cannot be copied, so "
                                "hooks can only read the tensors in it.");
  });
}

void Tensors::replace_kept(Of of) {
  for (const Copy& copy : *kept_) {
    bool same = true;
    for (std::size_t i = 0; i < copy.before.size(); ++i) {
      same = same && copy.before[i].is_same(*slots_[copy.begin + i]);
    }
    if (!same) copy.replace(of);
  }
}

}  // namespace torchtap::hooks
