// Makes arguments by their declared types.
#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>

#include <optional>

#include <torchtap/base/error.hpp>
#include <torchtap/views/monitor/detail/script_arguments.hpp>

namespace torchtap::views::monitor::detail {
namespace {

using c10::TypeKind;

/// How many tensors are in a value of a type, where that says it.
struct TensorCount {
  std::size_t number = 0;
  int lists = 0;         // of tensors, of unknown length
  bool unknown = false;  // a dict, or a list of lists
};

TensorCount count_of(const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::TensorType:
      return {1, 0, false};
    case TypeKind::OptionalType:
      return count_of(*type.expectRef<c10::OptionalType>().getElementType());
    case TypeKind::TupleType: {
      TensorCount all;
      for (const auto& element : type.expectRef<c10::TupleType>().elements()) {
        const TensorCount one = count_of(*element);
        all = {all.number + one.number, all.lists + one.lists, all.unknown || one.unknown};
      }
      return all;
    }
    case TypeKind::ListType: {
      const TensorCount one = count_of(*type.expectRef<c10::ListType>().getElementType());
      if (one.number == 0 && one.lists == 0 && !one.unknown) return {};
      return {0, 1, one.unknown || one.lists != 0};
    }
    case TypeKind::DictType: {
      const TensorCount one = count_of(*type.expectRef<c10::DictType>().getValueType());
      return {0, 0, one.unknown || one.number != 0 || one.lists != 0};
    }
    case TypeKind::AnyType:
    case TypeKind::ClassType:
    case TypeKind::UnionType:
      return {0, 0, true};
    default:
      return {};
  }
}

class ScriptArguments {
 public:
  ScriptArguments(const std::vector<at::Tensor>& tensors, std::size_t in_list)
      : tensors_(tensors), in_list_(in_list) {}

  c10::IValue make(const c10::TypePtr& type) {
    switch (type->kind()) {
      case TypeKind::TensorType:
        return tensors_[next_++];
      case TypeKind::OptionalType: {
        const auto& inside = type->expectRef<c10::OptionalType>().getElementType();
        const TensorCount count = count_of(*inside);
        bool none = count.lists == 0 || in_list_ == 0;
        for (std::size_t i = 0; i < count.number; ++i) none = none && !tensors_[next_ + i].defined();
        if (!none) return make(inside);
        next_ += count.number;
        return {};
      }
      case TypeKind::TupleType: {
        std::vector<c10::IValue> parts;
        for (const auto& element : type->expectRef<c10::TupleType>().elements())
          parts.push_back(make(element));
        return c10::ivalue::Tuple::create(std::move(parts));
      }
      case TypeKind::ListType: {
        const auto& element = type->expectRef<c10::ListType>().getElementType();
        c10::impl::GenericList list(element);
        for (std::size_t i = 0; i < in_list_; ++i) list.push_back(make(element));
        return list;
      }
      default:
        return {};
    }
  }
  std::size_t used() const noexcept { return next_; }

 private:
  const std::vector<at::Tensor>& tensors_;
  std::size_t in_list_;  // elements of the one list
  std::size_t next_ = 0;
};

}  // namespace

std::vector<c10::IValue> script_arguments(const c10::FunctionSchema& schema,
                                          const std::vector<at::Tensor>& tensors) {
  const auto& declared = schema.arguments();
  TensorCount all;
  std::size_t of_element = 0;
  for (std::size_t i = 1; i < declared.size(); ++i) {
    const TensorCount one = count_of(*declared[i].type());
    TORCH_CHECK_VALUE(!one.unknown, "views::monitor::replay: the argument \"", declared[i].name(), "\" is a ",
                      declared[i].type()->str(),
                      ", and of it only the tensors inside were recorded; pass a "
                      "function that calls the model with them.");
    all.number += one.number;
    all.lists += one.lists;
    if (one.lists != 0) {
      const c10::Type* type = declared[i].type().get();
      while (type->kind() == TypeKind::OptionalType)
        type = type->expectRef<c10::OptionalType>().getElementType().get();
      TORCH_CHECK_VALUE(type->kind() == TypeKind::ListType, "views::monitor::replay: the argument \"",
                        declared[i].name(), "\" is a ", type->str(),
                        ", and of it only the tensors inside were "
                        "recorded; pass a function that calls the model with them.");
      of_element = count_of(*type->expectRef<c10::ListType>().getElementType()).number;
    }
  }
  TORCH_CHECK_VALUE(all.lists <= 1, "views::monitor::replay: several arguments are lists of tensors (",
                    schema,
                    "), and how long each was is not recorded; pass a function that calls the model.");
  const std::size_t rest = tensors.size() - std::min(tensors.size(), all.number);
  const bool fits =
      all.lists == 0 ? tensors.size() == all.number : tensors.size() >= all.number && rest % of_element == 0;
  TORCH_CHECK_VALUE(fits, "views::monitor::replay: ", tensors.size(),
                    " tensors were recorded, which do not make the arguments of this model: ", schema, ".");
  ScriptArguments arguments(tensors, all.lists == 0 ? 0 : rest / of_element);
  std::vector<c10::IValue> values;
  for (std::size_t i = 1; i < declared.size(); ++i) {
    const auto& argument = declared[i];
    const TensorCount one = count_of(*argument.type());
    if (one.number != 0 || one.lists != 0) {
      values.push_back(arguments.make(argument.type()));
    } else if (argument.default_value().has_value()) {
      values.push_back(*argument.default_value());
    } else {
      TORCH_CHECK_VALUE(argument.type()->kind() == TypeKind::OptionalType,
                        "views::monitor::replay: the argument \"", argument.name(), "\" is a ",
                        argument.type()->str(),
                        ", which is not recorded, and has no default; pass a function that calls the model.");
      values.emplace_back();
    }
  }
  return values;
}

}  // namespace torchtap::views::monitor::detail
