// The operators that a tapped model calls. Without hooks they only read a thread-local pointer.
#include <ATen/core/Tensor.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>
#include <torch/library.h>

#include <utility>

#include <torchtap/exported/detail/receiver.hpp>

namespace torchtap::exported::detail {
namespace {

thread_local Receiver* receiver_of_thread = nullptr;

/// Boxed, so that an idle tap unpacks no string and no list.
template <bool kReplaceable>
void tap(const c10::OperatorHandle& /*operation*/, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  if (Receiver* const receiver = receiver_of_thread; receiver != nullptr) {
    const auto top = stack->end();
    if (void* place = receiver->wanted((top - 2)->toStringRef())) {
      std::vector<at::Tensor> tensors = (top - 3)->toTensorVector();
      receiver->receive(place, tensors, (top - 1)->toStringRef(), kReplaceable);
    }
  }
  torch::jit::drop(*stack, 3);
}

/// Serves code that calls C functions instead of the dispatcher.
AOTITorchError tap_handles(const AtenTensorHandle* handles, std::int64_t count, const char* path,
                           const char* kind, bool replaceable) noexcept {
  Receiver* const receiver = receiver_of_thread;
  if (__builtin_expect(receiver == nullptr, 1)) return AOTI_TORCH_SUCCESS;
  if (void* place = receiver->wanted(path)) {
    std::vector<at::Tensor> tensors;
    tensors.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      tensors.push_back(*torch::aot_inductor::tensor_handle_to_tensor_pointer(handles[i]));
    }
    receiver->receive(place, tensors, kind, replaceable);
  }
  return AOTI_TORCH_SUCCESS;
}

}  // namespace

Receiver* exchange_receiver(Receiver* receiver) noexcept {
  return std::exchange(receiver_of_thread, receiver);
}

}  // namespace torchtap::exported::detail

// `pt2_compliant_tag`: torch.compile may trace it. `flexible_layout`: it takes any strides; otherwise
// Inductor would copy the inputs of a tap into the layout of eager mode.
TORCH_LIBRARY(torchtap, library) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag, at::Tag::flexible_layout};
  library.def("tap(Tensor[] xs, str path, str kind) -> ()", tags);
  library.def("tap_(Tensor(a!)[] xs, str path, str kind) -> ()", tags);
}

TORCH_LIBRARY_IMPL(torchtap, CompositeExplicitAutograd, library) {
  namespace detail = torchtap::exported::detail;
  library.impl("tap", torch::CppFunction::makeFromBoxedFunction<&detail::tap<false>>());
  library.impl("tap_", torch::CppFunction::makeFromBoxedFunction<&detail::tap<true>>());
}

// Named after the device for which the calling code was compiled. The last argument stands for the missing
// result.
#define TORCHTAP_TAP(DEVICE)                                                              \
  extern "C" TORCHTAP_API AOTITorchError aoti_torch_##DEVICE##_tap(                       \
      const AtenTensorHandle* xs, std::int64_t count, const char* path, const char* kind, \
      AtenTensorHandle* /*none*/) {                                                       \
    return torchtap::exported::detail::tap_handles(xs, count, path, kind, false);         \
  }
TORCHTAP_TAP(cpu)
TORCHTAP_TAP(cuda)
