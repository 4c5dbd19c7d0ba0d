#include "sizes.hpp"

#include <set>
#include <tuple>
#include <vector>

namespace torchtap::tools {
namespace {

class Count {
 public:
  void add_parameter(const at::Tensor& tensor) {
    if (is_new(tensor)) count_parameter(tensor);
  }
  void add_buffer(const at::Tensor& tensor) {
    if (!is_new(tensor)) return;
    sizes_.buffers += tensor.numel();
    sizes_.bytes += bytes_of(tensor);
  }
  /// Adds the weights inside an object of a C++ class, such as Conv2dPackedParamsBase.
  void add_packed(const c10::IValue& value) {
    if (!value.isObject() || value.isModule() || !objects_.insert(value.toObject().get()).second) return;
    // `unpack` gives weight and bias. Objects without it (recurrent cells) give their state, which contains
    // the objects of their parts.
    for (const char* name : {"unpack", "__getstate__"}) {
      auto* function = value.type()->expectRef<c10::ClassType>().findMethod(name);
      if (function == nullptr || function->getSchema().arguments().size() != 1) continue;
      std::vector<at::Tensor> tensors;
      std::vector<c10::IValue> parts;
      (*function)({value}).visit([&](const c10::IValue& part) {
        if (part.isTensor() && part.toTensor().defined()) tensors.push_back(part.toTensor());
        if (part.isObject()) parts.push_back(part);
        return part.isObject();
      });
      for (const auto& part : parts) add_packed(part);
      // Next to packed parts, tensors repeat their biases. Otherwise they are copies made by `unpack`.
      if (!parts.empty()) return;
      for (const auto& tensor : tensors) count_parameter(tensor);
      return;
    }
  }

  const Sizes& sizes() const noexcept { return sizes_; }

 private:
  static std::int64_t bytes_of(const at::Tensor& tensor) {
    return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
  }
  bool is_new(const at::Tensor& tensor) {
    // By address: a file gives each module its own tensor over a shared storage.
    return tensor.defined() &&
           tensors_
               .insert({tensor.numel() == 0 ? tensor.unsafeGetTensorImpl() : tensor.data_ptr(),
                        tensor.sizes().vec(), tensor.strides().vec()})
               .second;
  }
  void count_parameter(const at::Tensor& tensor) {
    sizes_.parameters += tensor.numel();
    if (tensor.requires_grad()) sizes_.trainable += tensor.numel();
    sizes_.parameter_bytes += bytes_of(tensor);
    sizes_.bytes += bytes_of(tensor);
  }

  Sizes sizes_;
  std::set<std::tuple<const void*, std::vector<std::int64_t>, std::vector<std::int64_t>>> tensors_;
  std::set<const void*> objects_;
};

}  // namespace

Sizes sizes_of(const torch::jit::Module& module) {
  Count count;
  for (const auto& tensor : module.parameters()) count.add_parameter(tensor);
  for (const auto& tensor : module.buffers()) count.add_buffer(tensor);
  for (const auto& each : module.modules()) {
    const auto object = each._ivalue();
    for (std::size_t i = 0; i < object->slots().size(); ++i) {
      const auto& type = object->type()->getAttribute(i);
      if (type->kind() != c10::TypeKind::ClassType) continue;
      const auto name = type->expectRef<c10::ClassType>().name();
      if (name.has_value() && name->qualifiedName().compare(0, 24, "__torch__.torch.classes.") == 0) {
        count.add_packed(object->getSlot(i));
      }
    }
  }
  return count.sizes();
}

}  // namespace torchtap::tools
