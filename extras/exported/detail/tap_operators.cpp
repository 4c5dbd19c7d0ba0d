// The operators that a tapped model calls. Without hooks they only read a thread-local pointer.
//
// Where LibTorch has a stable ABI with tags (2.12 and newer), they use nothing else of it, so that a library
// built for one version serves later ones, too.
#ifdef TORCHTAP_STABLE_TAPS
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#else
#include <ATen/core/Tensor.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>
#include <torch/library.h>
#endif

#include <string>
#include <utility>
#include <vector>

#include <torchtap/exported/detail/receiver.hpp>

namespace torchtap::exported::detail {
namespace {

thread_local Receiver* receiver_of_thread = nullptr;

void receive(const AtenTensorHandle* handles, std::size_t count, std::string_view path, std::string_view kind,
             bool replaceable) noexcept {
  Receiver* const receiver = receiver_of_thread;
  if (__builtin_expect(receiver == nullptr, 1)) return;
  if (void* place = receiver->wanted(path)) receiver->receive(place, handles, count, kind, replaceable);
}

#ifdef TORCHTAP_STABLE_TAPS

template <bool kReplaceable>
void tap(const std::vector<torch::stable::Tensor>& tensors, const std::string& path,
         const std::string& kind) {
  if (receiver_of_thread == nullptr) return;
  std::vector<AtenTensorHandle> handles;
  handles.reserve(tensors.size());
  for (const auto& tensor : tensors) handles.push_back(tensor.get());
  receive(handles.data(), handles.size(), path, kind, kReplaceable);
}

#else

/// Boxed, so that an idle tap unpacks no string and no list.
template <bool kReplaceable>
void tap(const c10::OperatorHandle& /*operation*/, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  if (receiver_of_thread != nullptr) {
    const auto top = stack->end();
    std::vector<at::Tensor> tensors = (top - 3)->toTensorVector();
    std::vector<AtenTensorHandle> handles;
    handles.reserve(tensors.size());
    for (at::Tensor& tensor : tensors)
      handles.push_back(torch::aot_inductor::tensor_pointer_to_tensor_handle(&tensor));
    receive(handles.data(), handles.size(), (top - 2)->toStringRef(), (top - 1)->toStringRef(), kReplaceable);
  }
  torch::jit::drop(*stack, 3);
}

#endif

}  // namespace

Receiver* exchange_receiver(Receiver* receiver) noexcept {
  return std::exchange(receiver_of_thread, receiver);
}

}  // namespace torchtap::exported::detail

namespace {

constexpr const char* kTap = "tap(Tensor[] xs, str path, str kind) -> ()";
constexpr const char* kReplaceableTap = "tap_(Tensor(a!)[] xs, str path, str kind) -> ()";

}  // namespace

#ifdef TORCHTAP_STABLE_TAPS
#define TORCHTAP_LIBRARY STABLE_TORCH_LIBRARY
#define TORCHTAP_LIBRARY_IMPL STABLE_TORCH_LIBRARY_IMPL
#define TORCHTAP_BOX(REPLACEABLE) TORCH_BOX(&torchtap::exported::detail::tap<REPLACEABLE>)
#else
#define TORCHTAP_LIBRARY TORCH_LIBRARY
#define TORCHTAP_LIBRARY_IMPL TORCH_LIBRARY_IMPL
#define TORCHTAP_BOX(REPLACEABLE) \
  torch::CppFunction::makeFromBoxedFunction<&torchtap::exported::detail::tap<REPLACEABLE>>()
#endif

// `pt2_compliant_tag`: torch.compile may trace it. `flexible_layout`: it takes any strides; otherwise
// Inductor would copy the inputs of a tap into the layout of eager mode.
TORCHTAP_LIBRARY(torchtap, library) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag, at::Tag::flexible_layout};
  library.def(kTap, tags);
  library.def(kReplaceableTap, tags);
}

TORCHTAP_LIBRARY_IMPL(torchtap, CompositeExplicitAutograd, library) {
  library.impl("tap", TORCHTAP_BOX(false));
  library.impl("tap_", TORCHTAP_BOX(true));
}

// Named after the device for which the calling code was compiled. The last argument stands for the missing
// result.
#define TORCHTAP_TAP(DEVICE)                                                                     \
  extern "C" TORCHTAP_API AOTITorchError aoti_torch_##DEVICE##_tap(                              \
      const AtenTensorHandle* xs, std::int64_t count, const char* path, const char* kind,        \
      AtenTensorHandle* /*none*/) {                                                              \
    torchtap::exported::detail::receive(xs, static_cast<std::size_t>(count), path, kind, false); \
    return AOTI_TORCH_SUCCESS;                                                                   \
  }
TORCHTAP_TAP(cpu)
TORCHTAP_TAP(cuda)
