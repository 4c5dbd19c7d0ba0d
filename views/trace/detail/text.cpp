// Arguments of operations in short.
#include <c10/util/Type.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <cstdint>
#include <cstdio>

#include <torchtap/base/error.hpp>
#include <torchtap/base/numbers.hpp>
#include <torchtap/hooks/values.hpp>
#include <torchtap/storage/dtype.hpp>
#include <torchtap/views/trace/detail/graph.hpp>

namespace torchtap::views::trace::detail {
namespace {

std::string number(double value) {
  return base::number_text(value, 6);
}

constexpr std::size_t most = 16;  // elements of a list that are shown

template <class List>
std::string list_of(const List& list, const char* open, const char* close) {
  std::string text = open;
  std::size_t i = 0;
  for (const c10::IValue& element : list) {
    if (i == most) {
      text += ", ... " + std::to_string(list.size()) + " in all";
      break;
    }
    text += (i++ == 0 ? "" : ", ") + text_of(element);
  }
  return text + close;
}

}  // namespace

std::string text_of(const c10::IValue& value) {
  if (value.isNone()) return "None";
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isInt()) return std::to_string(value.toInt());
  if (value.isDouble()) return number(value.toDouble());
  if (value.isString()) return "'" + value.toStringRef() + "'";
  if (value.isDevice()) return value.toDevice().str();
  if (value.isTensor()) return value.toTensor().defined() ? "a tensor" : "None";
  if (value.isList()) return list_of(value.toListRef(), "[", "]");
  if (value.isTuple()) return list_of(value.toTupleRef().elements(), "(", ")");
  if (value.isComplexDouble()) {
    const auto complex = value.toComplexDouble();
    return number(complex.real()) + (complex.imag() < 0 ? "" : "+") + number(complex.imag()) + "j";
  }
  return value.tagKind();
}

std::string text_of(const std::vector<void*>& frames) {
  std::string text;
  for (void* frame : frames) {
    Dl_info info{};
    if (::dladdr(frame, &info) == 0 || info.dli_fname == nullptr) continue;
    std::string file = info.dli_fname;
    file = file.substr(file.rfind('/') + 1);  // npos + 1 == 0: the whole name
    const std::string function = info.dli_sname != nullptr ? c10::demangle(info.dli_sname) : "";
    const bool ours = file.compare(0, 8, "libtorch") == 0 || file.compare(0, 6, "libc10") == 0 ||
                      function.find("torchtap::") != std::string::npos;
    if (ours) continue;
    const auto* begin = static_cast<const char*>(info.dli_saddr != nullptr ? info.dli_saddr : info.dli_fbase);
    char offset[32];
    std::snprintf(offset, sizeof offset, "0x%tx", static_cast<const char*>(frame) - begin);
    text += (function.empty() ? std::string() : function + " + ") + offset + " in " + file + "\n";
  }
  return text;
}

at::Tensor without_names(const at::Tensor& tensor) {
#if TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR < 213  // later versions have no names of dimensions
  if (tensor.has_names()) return tensor.rename(hooks::TorchOptional<at::DimnameList>());
#endif
  return tensor;
}

at::Tensor kept_tensor(const Value& value, const std::string& label) {
  TORCH_CHECK_VALUE(value.own || value.kept.is_inference() || value.kept._version() == value.version,
                    "views::trace: the memory of ", label,
                    " was changed in place after the pass, so the tensor that was kept is not what it was; "
                    "clone it before, or read it earlier.");
  return value.kept;
}

}  // namespace torchtap::views::trace::detail
