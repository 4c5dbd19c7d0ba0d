#pragma once

/// Specialises `Visit` for LibTorch's own types. They are declared here and not included, because these
/// specialisations must be visible wherever modules are hooked, and some of the headers are slow to compile.
/// Code with a value of such a type has included its header.

#include <c10/util/ArrayRef.h>
#include <torch/version.h>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/hooks/values.hpp>

// LibTorch 1.13 to 2.1 has its own variant. The version is asked, too, because the headers of such a LibTorch
// may lie in a folder of the system, behind those of a newer one.
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR < 204 && __has_include(<c10/util/variant.h>)
#define TORCHTAP_C10_VARIANT 1
#include <c10/util/variant.h>
#endif

namespace c10 {
struct IValue;
}  // namespace c10
namespace torch {
template <typename Key, typename Value>
class OrderedDict;
namespace nn {
struct ASMoutput;
namespace utils::rnn {
class PackedSequence;
}
}  // namespace nn
}  // namespace torch

namespace torchtap::hooks {

namespace detail {

/// Adds the tensors inside `value`, which must stay in place until `tensors.put_back()`: in tuples, lists,
/// the values of dicts, optionals and the attributes of script objects, however nested. Does not search
/// modules passed as arguments.
TORCHTAP_API void collect(c10::IValue& value, CallTensors& tensors);

/// Makes an incomplete type dependent, so that a template may use it.
template <class T, class>
struct Dependent {
  using Type = T;
};

/// A list or dict that others may share: copied if a hook replaces a tensor in it.
template <class Typed>
struct VisitScripted {
  template <class Visitor>
  static void apply(Typed& value, Visitor&& visit) {
    using IValue = typename Dependent<c10::IValue, Typed>::Type;
    auto generic = std::make_shared<IValue>(value);
    IValue& inside = *generic;
    visit.copied(inside,
                 [&value, generic](CallTensors::Of) { value = generic->template to<std::decay_t<Typed>>(); });
  }
};

}  // namespace detail

template <class T>
struct Visit<T, std::enable_if_t<std::is_same_v<T, c10::IValue>>> {
  template <class Visitor>
  static void apply(T& value, Visitor&& visit) {
    detail::collect(value, visit.tensors);
  }
};

template <class T>
struct Visit<c10::List<T>, std::enable_if_t<!detail::is_plain_v<T>>> : detail::VisitScripted<c10::List<T>> {};
template <class K, class V>
struct Visit<c10::Dict<K, V>, std::enable_if_t<!detail::is_plain_v<V>>>
    : detail::VisitScripted<c10::Dict<K, V>> {};

/// An ArrayRef does not own its elements.
template <class T>
struct Visit<c10::ArrayRef<T>, std::enable_if_t<!detail::is_plain_v<T>>> {
  template <class Visitor>
  static void apply(c10::ArrayRef<T>& value, Visitor&& visit) {
    if constexpr (detail::can_be_copied<T>()) {
      auto copy = std::make_shared<std::vector<T>>(value.begin(), value.end());
      std::vector<T>& inside = *copy;
      visit.copied(inside, [&value, copy](detail::CallTensors::Of of) {
        TORCH_CHECK_NOT_IMPLEMENTED(
            of == detail::CallTensors::Of::inputs,
            "hooks: a hook replaced a tensor in a c10::ArrayRef that forward returned. An ArrayRef does not "
            "own its elements, so nothing would keep the new tensor; return a std::vector from forward.");
        value = c10::ArrayRef<T>(*copy);
      });
    } else {
      for (const T& element : value) visit.fixed(const_cast<T&>(element));
    }
  }
};

template <class K, class V>
struct Visit<torch::OrderedDict<K, V>> {
  template <class Visitor>
  static void apply(torch::OrderedDict<K, V>& value, Visitor&& visit) {
    if constexpr (!detail::is_plain_v<V>) {
      for (auto& item : value) visit(item.value());
    }
  }
};

#ifdef TORCHTAP_C10_VARIANT
template <class... Ts>
struct Visit<c10::variant<Ts...>> {
  template <class Visitor>
  static void apply(c10::variant<Ts...>& value, Visitor&& visit) {
    if (!value.valueless_by_exception()) c10::visit([&](auto& part) { visit(part); }, value);
  }
};
#endif

/// Input and output of the recurrent layers. Its accessors return const references to members that are not
/// const.
template <class T>
struct Visit<T, std::enable_if_t<std::is_same_v<T, torch::nn::utils::rnn::PackedSequence>>> {
  template <class Visitor>
  static void apply(T& value, Visitor&& visit) {
    for (const at::Tensor* part :
         {&value.data(), &value.batch_sizes(), &value.sorted_indices(), &value.unsorted_indices()}) {
      visit(const_cast<at::Tensor&>(*part));
    }
  }
};

/// Returned by `AdaptiveLogSoftmaxWithLoss`.
template <class T>
struct Visit<T, std::enable_if_t<std::is_same_v<T, torch::nn::ASMoutput>>> {
  template <class Visitor>
  static void apply(T& value, Visitor&& visit) {
    visit(value.output);
    visit(value.loss);  // a plain number in most versions of LibTorch
  }
};

}  // namespace torchtap::hooks
