// Collects the tensors inside a `torch::nn::AnyValue` by visitors of built-in and registered types.

#include <ATen/core/ivalue.h>
#include <torch/nn/modules/adaptive.h>
#include <torch/nn/utils/rnn.h>
#include <torch/ordered_dict.h>

#include <map>
#include <mutex>
#include <shared_mutex>
#include <typeindex>
#include <unordered_map>

#include <torchtap/hooks/detail/any_value.hpp>
#include <torchtap/hooks/register_value.hpp>

namespace torchtap::hooks {

namespace detail {
namespace {

using torch::nn::AnyValue;

class Visitors {
 public:
  static Visitors& instance() {
    static Visitors* visitors = new Visitors;  // models may outlive static objects
    return *visitors;
  }

  void add(const std::type_info& type, AnyValueVisitor visitor) {
    const std::unique_lock lock(mutex_);
    visitors_.try_emplace(type, std::move(visitor));
  }
  template <class... Ts>
  void add() {
    (add(typeid(Ts), [](AnyValue& value, CallTensors& tensors) { Collector{tensors}(*value.try_get<Ts>()); }),
     ...);
  }
  void collect(AnyValue& value, CallTensors& tensors) const {
    const AnyValueVisitor* const visitor = visitor_of(value.type_info());
    if (visitor == nullptr) return tensors.push_unregistered(value.type_info());
    (*visitor)(value, tensors);  // the program's code, outside of the lock
  }

 private:
  /// Null if it is not registered. What is registered stays where it is.
  const AnyValueVisitor* visitor_of(const std::type_info& type) const {
    const std::shared_lock lock(mutex_);
    const auto visitor = visitors_.find(type);
    return visitor == visitors_.end() ? nullptr : &visitor->second;
  }

  using T = at::Tensor;
  using Packed = torch::nn::utils::rnn::PackedSequence;
  template <class... Ts>
  using Tuple = std::tuple<Ts...>;

  template <class Key>
  void add_maps() {
    add<std::map<Key, T>, std::map<Key, std::vector<T>>, std::unordered_map<Key, T>, c10::Dict<Key, T>>();
    add<torch::OrderedDict<Key, T>>();
  }

  Visitors() {
    add<bool, int, unsigned, std::int64_t, float, double, std::string, std::vector<std::int64_t>,
        TorchOptional<std::int64_t>, TorchOptional<double>, TorchOptional<bool>,
        TorchOptional<at::IntArrayRef>, TorchOptional<std::vector<std::int64_t>>, torch::nn::ASMoutput>();
    add<Tuple<T>, Tuple<T, T>, Tuple<T, T, T>, Tuple<T, T, T, T>, Tuple<T, T, T, T, T>,
        Tuple<T, T, T, T, T, T>, Tuple<T, T, T, T, T, T, T>, Tuple<T, T, T, T, T, T, T, T>,
        Tuple<T, Tuple<T, T>>, Tuple<Tuple<T, T>, T>, Tuple<T, std::vector<T>>, Tuple<Tuple<T, T>>,
        Tuple<Tuple<T, T>, Tuple<T, T>>>();
    add<std::pair<T, T>, std::pair<T, std::pair<T, T>>, std::vector<T>, std::vector<std::vector<T>>,
        std::vector<Tuple<T, T>>, std::array<T, 2>, std::array<T, 3>, std::array<T, 4>>();
    add<TorchOptional<T>, TorchOptional<Tuple<T, T>>, TorchOptional<std::vector<T>>,
        Tuple<T, TorchOptional<T>>, Tuple<T, T, TorchOptional<T>>>();
    add_maps<std::string>();
    add_maps<std::int64_t>();
    add<std::list<T>, std::deque<T>, at::TensorList, std::vector<std::vector<std::vector<T>>>,
        Tuple<T, std::map<std::string, T>>, std::vector<std::map<std::string, T>>,
        Tuple<std::vector<T>, std::vector<T>>, c10::IValue, std::vector<c10::IValue>, c10::List<T>,
        c10::impl::GenericList, c10::impl::GenericDict, c10::List<c10::Dict<std::string, T>>>();
    add<Packed, Tuple<Packed, T>, Tuple<Packed, Tuple<T, T>>>();
    add<char, short, unsigned char, unsigned long, const char*, c10::Scalar, c10::Device, c10::ScalarType,
        at::IntArrayRef, at::Generator, std::vector<bool>, std::vector<int>, std::vector<float>,
        std::vector<double>, std::vector<std::string>, std::map<std::string, double>,
        std::map<std::string, std::string>, Tuple<std::int64_t, std::int64_t>,
        std::pair<std::int64_t, std::int64_t>>();
  }

  mutable std::shared_mutex mutex_;
  std::unordered_map<std::type_index, AnyValueVisitor> visitors_;
};

}  // namespace

void collect_other(AnyValue& value, CallTensors& tensors) {
  if (value.type_info() == typeid(at::Tensor)) {
    tensors.push_back(held(value, exposed(base::TensorHolderValue{})));
  } else {
    Visitors::instance().collect(value, tensors);
  }
}

void register_value_visitor(const std::type_info& type, AnyValueVisitor visitor) {
  Visitors::instance().add(type, std::move(visitor));
}

}  // namespace detail
}  // namespace torchtap::hooks
