// Collects the tensors inside values of `c10::IValue` by their declared types.

#include <ATen/core/class_type.h>

#include <deque>
#include <memory>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/detail/ivalue.hpp>

namespace torchtap::hooks::detail {
namespace {

// Limits the recursion: script objects may form reference cycles.
constexpr int kDeepest = 32;

bool is_list_of_others(const c10::IValue& value) {
  return value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList();
}

bool is_plain_object(const c10::IValue& value) {
  return value.isObject() && !value.isModule();
}

/// The number of tensors in every value of the type, where the type determines it.
std::size_t tensors_in(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType) return 1;
  if (type.kind() == c10::TypeKind::OptionalType) {
    return tensors_in(*type.expectRef<c10::OptionalType>().getElementType());
  }
  std::size_t count = 0;
  if (type.kind() == c10::TypeKind::TupleType) {
    for (const auto& element : type.expectRef<c10::TupleType>().elements()) count += tensors_in(*element);
  }
  return count;
}

const c10::Type& without_optional(const c10::Type& type) {
  return type.kind() == c10::TypeKind::OptionalType
             ? without_optional(*type.expectRef<c10::OptionalType>().getElementType())
             : type;
}

/// The declared type of the `index`th part of a container; `Any` if unknown.
const c10::Type& part_of(const c10::Type& type, std::size_t index) {
  const c10::Type& container = without_optional(type);
  switch (container.kind()) {
    case c10::TypeKind::TupleType: {
      const auto elements = container.expectRef<c10::TupleType>().elements();
      return index < elements.size() ? *elements[index] : *c10::AnyType::get();
    }
    case c10::TypeKind::ListType:
      return *container.expectRef<c10::ListType>().getElementType();
    case c10::TypeKind::DictType:
      return *container.expectRef<c10::DictType>().getValueType();
    default:
      return *c10::AnyType::get();
  }
}

/// The tensors inside one list, dict, tuple or script object, in order, after the hooks ran.
class Inside {
 public:
  void collect(const c10::IValue& value, const c10::Type& type, int depth, CallTensors& tensors) {
    if (depth > kDeepest) return;
    if (value.isTensor()) {
      tensors.push_back(tensors_.emplace_back(value.toTensor()));
    } else if (value.isNone()) {
      for (std::size_t i = tensors_in(type); i != 0; --i) tensors.push_absent();
    } else if (value.isTuple()) {
      std::size_t index = 0;
      for (const auto& element : value.toTupleRef().elements())
        collect(element, part_of(type, index++), depth + 1, tensors);
    } else if (is_list_of_others(value)) {
      for (const auto& element : value.toListRef()) collect(element, part_of(type, 0), depth + 1, tensors);
    } else if (value.isGenericDict()) {
      for (const auto& entry : value.toGenericDict())
        collect(entry.value(), part_of(type, 0), depth + 1, tensors);
    } else if (is_plain_object(value)) {
      const auto& object = value.toObjectRef();
      for (std::size_t i = 0; i < object.slots().size(); ++i) {
        collect(object.slots()[i], *object.type()->getAttribute(i), depth + 1, tensors);
      }
    }
  }
  bool empty() const noexcept { return tensors_.empty(); }
  /// The value with these tensors in it. Parts whose tensors are unchanged are the same objects.
  c10::IValue put_into(const c10::IValue& value) const {
    std::size_t next = 0;
    return rebuilt(value, next, 0);
  }

 private:
  c10::IValue rebuilt(const c10::IValue& value, std::size_t& next, int depth) const;

  std::deque<at::Tensor> tensors_;
};

c10::IValue Inside::rebuilt(const c10::IValue& value, std::size_t& next, int depth) const {
  if (depth > kDeepest) return value;
  if (value.isTensor()) {
    const at::Tensor& tensor = tensors_[next++];
    return tensor.is_same(value.toTensor()) ? value : c10::IValue(tensor);
  }
  bool changed = false;
  const auto rebuilt_part = [&](const c10::IValue& part) {
    c10::IValue other = rebuilt(part, next, depth + 1);
    changed = changed || !other.is(part);
    return other;
  };
  if (value.isTuple()) {
    std::vector<c10::IValue> elements;
    for (const auto& element : value.toTupleRef().elements()) elements.push_back(rebuilt_part(element));
    if (!changed) return value;
    return c10::ivalue::Tuple::createNamed(std::move(elements), value.toTupleRef().type());
  }
  if (is_list_of_others(value)) {
    const auto list = value.toList();
    c10::impl::GenericList other(list.elementType());
    for (const auto& element : value.toListRef()) other.push_back(rebuilt_part(element));
    return changed ? c10::IValue(other) : value;
  }
  if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    c10::impl::GenericDict other(dict.keyType(), dict.valueType());
    for (const auto& entry : dict) other.insert(entry.key(), rebuilt_part(entry.value()));
    return changed ? c10::IValue(other) : value;
  }
  if (is_plain_object(value)) {
    for (const auto& slot : value.toObjectRef().slots()) rebuilt_part(slot);
    TORCH_CHECK_NOT_IMPLEMENTED(
        !changed, "hooks: a hook replaced a tensor inside an object of the script class ",
        value.toObjectRef().name(),
        ", which may be shared; only tensors in tuples, lists, dicts and optionals can be replaced.");
  }
  return value;
}

}  // namespace

void collect(c10::IValue& value, const c10::Type& type, CallTensors& tensors) {
  if (value.isTensor()) {
    tensors.push_back(value.toTensor());
    return;
  }
  const std::int64_t begin = tensors.size();
  auto inside = std::make_shared<Inside>();
  inside->collect(value, type, 0, tensors);
  if (inside->empty()) return;
  tensors.keep(begin, [&value, inside](CallTensors::Of) { value = inside->put_into(value); });
}

void collect(c10::IValue& value, CallTensors& tensors) {
  collect(value, *c10::AnyType::get(), tensors);
}

}  // namespace torchtap::hooks::detail
