// Keeps the slots of a call's tensors, describes unknown types, and puts replaced tensors back.

#include <c10/macros/Macros.h>

#include <algorithm>

#include <torchtap/hooks/values.hpp>

namespace torchtap::hooks {
namespace {

using Types = std::vector<const std::type_info*>;

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

/// Whether a type that lacks `register_value` may also lack a `Visit`.
bool is_own(const std::type_info& type) {
  const std::string name = c10::demangle(type.name());
  return !starts_with(name, "std::") && !starts_with(name, "c10::") && !starts_with(name, "at::") &&
         !starts_with(name, "torch::");
}

}  // namespace

C10_NOINLINE Tensors::Seldom::~Seldom() = default;

void Tensors::push_unknown(const std::type_info& type) {
  if (!contains(unknown(), type)) seldom().unknown.push_back(&type);
}

void Tensors::push_unregistered(const std::type_info& type) {
  push_unknown(type);
  if (!contains(seldom().unregistered, type)) seldom().unregistered.push_back(&type);
}

void Tensors::push_unknown_of(const Tensors& other) {
  if (other.seldom_ == nullptr) return;
  for (const auto* type : other.seldom_->unknown) push_unknown(*type);
  for (const auto* type : other.seldom_->unregistered) push_unregistered(*type);
}

std::string Tensors::describe_unknown() const {
  if (!has_unknown()) return "";
  const Types& unregistered = seldom_->unregistered;
  Types unvisited;
  for (const auto* type : unknown()) {
    if (!contains(unregistered, *type)) unvisited.push_back(type);
  }
  std::string text =
      c10::str("torchtap does not know where the tensors in a value of type ", list(unknown()), " are.");
  for (const auto* type : unvisited) {
    const std::string name = c10::demangle(type->name());
    text += c10::str(" Specialise torchtap::hooks::Visit<", name,
                     ">, which names them, with an empty body if there are none.");
  }
  for (const auto* type : unregistered) {
    const std::string name = c10::demangle(type->name());
    text += c10::str(" Call torchtap::hooks::register_value<", name, ">() once, before the model runs");
    text += is_own(*type)
                ? c10::str("; it does not compile if torchtap::hooks::Visit<", name, "> is missing.")
                : ".";
  }
  return text;
}

void Tensors::refuse(std::int64_t index) const {
  const std::string unknown = describe_unknown();
  TORCH_CHECK_INDEX(false, "hooks::Tensors: slot ", index, " is out of range for ", size(), " tensors.",
                    unknown.empty() ? "" : " ", unknown);
}

C10_NOINLINE void Tensors::refuse_absent(Of of) {
  TORCH_CHECK_VALUE(false, "hooks: a hook assigned a tensor to a slot of the ",
                    of == Of::inputs ? "inputs" : "outputs",
                    " that holds an empty optional or an argument left out; only existing tensors can be "
                    "replaced.");
}

void Tensors::keep(std::int64_t begin, std::function<void(Of)> replace) {
  Copy copy{static_cast<std::size_t>(begin), {}, std::move(replace), false};
  for (std::size_t i = copy.begin; i < slots_.size(); ++i) copy.before.push_back(*slots_[i]);
  seldom().kept.push_back(std::move(copy));
}

void Tensors::push_fixed(const Tensors& found, const std::type_info& pointer) {
  push_unknown_of(found);
  const std::int64_t begin = size();
  auto handles = std::make_shared<std::deque<at::Tensor>>();
  for (const auto* slot : found.slots_) {
    if (found.absent_.has_value() && slot == &*found.absent_) {
      push_absent();
    } else {
      push_back(handles->emplace_back(*slot));
    }
  }
  if (handles->empty()) return;
  keep(begin, [handles, name = pointer.name()](Of of) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "hooks: a hook, or a recorder of gradients with respect to inputs, replaced a tensor of the ",
        of == Of::inputs ? "inputs" : "outputs", " behind a ", c10::demangle(name),
        "; that object is constant, or shared, and cannot be copied, so hooks can only read the tensors in "
        "it. A struct of your own is copied if torchtap::hooks::Visit is specialised for it.");
  });
}

C10_NOINLINE void Tensors::replace_kept(Of of) {
  for (Copy& copy : seldom_->kept) {
    bool same = !copy.replaced;
    for (std::size_t i = 0; i < copy.before.size(); ++i) {
      same = same && copy.before[i].is_same(*slots_[copy.begin + i]);
    }
    if (same) continue;
    seldom_->refused = {copy.begin, copy.begin + copy.before.size()};
    copy.replace(of);
    copy.replaced = true;
  }
  seldom_->refused = {};
}

}  // namespace torchtap::hooks
