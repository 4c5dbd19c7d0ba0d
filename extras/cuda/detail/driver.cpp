// Calls NVRTC and the CUDA driver by the names under which their libraries export them.
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <type_traits>
#include <utility>

#include <torchtap/cuda/detail/driver.hpp>

namespace torchtap::cuda::detail {
namespace {

constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_…

/// The folder of LibTorch's CUDA library, with a slash; empty if the program has not loaded it.
std::string folder_of_libtorch() {
  std::string folder;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        const std::string path = info->dlpi_name;
        const auto slash = path.rfind('/');
        if (slash == std::string::npos || path.compare(slash + 1, 16, "libtorch_cuda.so") != 0) return 0;
        *static_cast<std::string*>(result) = path.substr(0, slash + 1);
        return 1;
      },
      &folder);
  return folder;
}

/// The first of these libraries that can be loaded and has `symbol`; libraries that it needs count, too.
void* library_with(const char* symbol, const std::vector<std::string>& names) {
  for (const int mode : {RTLD_NOW | RTLD_NOLOAD, RTLD_NOW}) {
    for (const auto& name : names) {
      void* const library = ::dlopen(name.c_str(), mode);
      if (library != nullptr && ::dlsym(library, symbol) != nullptr) return library;
    }
  }
  return nullptr;
}

template <class T, class = void>
struct has_native_handle : std::false_type {};
template <class T>
struct has_native_handle<T, std::void_t<decltype(std::declval<const T&>().native_handle())>>
    : std::true_type {};

/// The driver's stream of a stream of LibTorch. Before LibTorch 2.9 a function of its library for CUDA is
/// asked, by its name, because torchtap compiles without CUDA.
template <class Stream>
void* native(const Stream& stream) {
  if constexpr (has_native_handle<Stream>::value) {
    return stream.native_handle();
  } else {
    using Handle = void* (*)(const c10::Stream*);  // of a CUDAStream, which has a Stream and nothing else
    static const auto handle =
        reinterpret_cast<Handle>(::dlsym(RTLD_DEFAULT, "_ZNK3c104cuda10CUDAStream6streamEv"));
    if (handle != nullptr) return handle(&stream);
    TORCH_CHECK(stream.id() == 0, "torchtap::cuda: this LibTorch does not tell which CUDA stream ", stream,
                " is; use the default stream, LibTorch 2.9 or newer, or disable_fused_kernels().");
    return nullptr;
  }
}

}  // namespace

struct Driver::Calls {
  int (*nvrtcCreateProgram)(void**, const char*, const char*, int, const char* const*, const char* const*);
  int (*nvrtcCompileProgram)(void*, int, const char* const*);
  int (*nvrtcGetProgramLogSize)(void*, std::size_t*);
  int (*nvrtcGetProgramLog)(void*, char*);
  int (*nvrtcGetPTXSize)(void*, std::size_t*);
  int (*nvrtcGetPTX)(void*, char*);
  int (*nvrtcDestroyProgram)(void**);
  int (*cuInit)(unsigned);
  int (*cuGetErrorString)(int, const char**);
  int (*cuDeviceGetAttribute)(int*, int, int);
  int (*cuDevicePrimaryCtxRetain)(void**, int);
  int (*cuCtxPushCurrent)(void*);
  int (*cuCtxPopCurrent)(void**);
  int (*cuModuleLoadData)(void**, const void*);
  int (*cuModuleGetFunction)(void**, void*, const char*);
  int (*cuStreamGetCaptureInfo)(void*, int*, unsigned long long*, void*, void*, void*);
  int (*cuLaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                        void**, void**);
};

/// Makes a device's primary context, which LibTorch uses, the thread's while it lives.
struct Driver::Context {
  Context(const Driver& driver, c10::DeviceIndex device) : driver_(driver) {
    driver_.check(driver_.calls_->cuCtxPushCurrent(driver_.context(device)), "cuCtxPushCurrent");
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() {
    void* former = nullptr;
    driver_.calls_->cuCtxPopCurrent(&former);
  }

 private:
  const Driver& driver_;
};

const Driver& Driver::instance() {
  static const auto* const one = new Driver;  // for hooks that run at the program's end
  return *one;
}

Driver::Driver() : calls_(nullptr) {
  void* const cuda = library_with("cuLaunchKernel", {"libcuda.so.1"});
  TORCH_CHECK(cuda != nullptr,
              "torchtap::cuda::enable_fused_kernels: there is no libcuda.so.1, which belongs to "
              "NVIDIA's driver; install the driver. Reductions are ATen's operations until then.");
  // LibTorch's stub depends on the NVRTC that LibTorch was made for.
  void* const nvrtc =
      library_with("nvrtcCompileProgram", {folder_of_libtorch() + "libcaffe2_nvrtc.so", "libnvrtc.so.13",
                                           "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"});
  TORCH_CHECK(
      nvrtc != nullptr,
      "torchtap::cuda::enable_fused_kernels: there is no NVRTC (libnvrtc.so.12, …) "
      "among the program's libraries; add its folder to LD_LIBRARY_PATH. Reductions are ATen's operations "
      "until then.");
  auto calls = std::make_unique<Calls>();
  const auto find = [](void* library, auto& call, const char* name) {
    call = reinterpret_cast<std::decay_t<decltype(call)>>(::dlsym(library, name));
    TORCH_CHECK(call != nullptr, "torchtap::cuda::enable_fused_kernels: CUDA's libraries have no ", name,
                "; CUDA 11.3 or newer is needed. Reductions are ATen's operations until then.");
  };
  find(nvrtc, calls->nvrtcCreateProgram, "nvrtcCreateProgram");
  find(nvrtc, calls->nvrtcCompileProgram, "nvrtcCompileProgram");
  find(nvrtc, calls->nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize");
  find(nvrtc, calls->nvrtcGetProgramLog, "nvrtcGetProgramLog");
  find(nvrtc, calls->nvrtcGetPTXSize, "nvrtcGetPTXSize");
  find(nvrtc, calls->nvrtcGetPTX, "nvrtcGetPTX");
  find(nvrtc, calls->nvrtcDestroyProgram, "nvrtcDestroyProgram");
  find(cuda, calls->cuInit, "cuInit");
  find(cuda, calls->cuGetErrorString, "cuGetErrorString");
  find(cuda, calls->cuDeviceGetAttribute, "cuDeviceGetAttribute");
  find(cuda, calls->cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  find(cuda, calls->cuCtxPushCurrent, "cuCtxPushCurrent_v2");
  find(cuda, calls->cuCtxPopCurrent, "cuCtxPopCurrent_v2");
  find(cuda, calls->cuModuleLoadData, "cuModuleLoadData");
  find(cuda, calls->cuModuleGetFunction, "cuModuleGetFunction");
  find(cuda, calls->cuStreamGetCaptureInfo, "cuStreamGetCaptureInfo_v2");
  find(cuda, calls->cuLaunchKernel, "cuLaunchKernel");
  calls_ = std::move(calls);
  check(calls_->cuInit(0), "cuInit");
}

Driver::~Driver() = default;

void Driver::check(int result, const char* call) const {
  if (result == 0) return;
  const char* text = nullptr;
  calls_->cuGetErrorString(result, &text);
  TORCH_CHECK(false, "torchtap::cuda: ", call, " failed: ", text == nullptr ? "unknown error" : text,
              ". disable_fused_kernels() goes on without these kernels.");
}

void* Driver::context(c10::DeviceIndex device) const {
  const std::lock_guard lock(mutex_);
  void*& context = contexts_[device];
  if (context == nullptr)
    check(calls_->cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  return context;
}

int Driver::attribute(int which, c10::DeviceIndex device) const {
  int value = 0;
  check(calls_->cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

int Driver::multiprocessors(c10::DeviceIndex device) const {
  return attribute(kMultiprocessors, device);
}

std::uint64_t Driver::capture(c10::DeviceIndex device) const {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  int status = 0;
  unsigned long long number = 0;
  check(calls_->cuStreamGetCaptureInfo(native(guard.getStream({c10::DeviceType::CUDA, device})), &status,
                                       &number, nullptr, nullptr, nullptr),
        "cuStreamGetCaptureInfo");
  return status == 0 ? 0 : number;
}

void* Driver::function(void* module, const char* kernel) const {
  const std::lock_guard lock(mutex_);
  void*& function = functions_[{module, kernel}];
  if (function == nullptr)
    check(calls_->cuModuleGetFunction(&function, module, kernel), "cuModuleGetFunction");
  return function;
}

void* Driver::load(const std::string& source, const std::vector<std::string>& options,
                   const std::vector<const char*>& kernels, c10::DeviceIndex device) const {
  std::vector<std::string> all{"--std=c++14", c10::str("--gpu-architecture=compute_",
                                                       attribute(kMajor, device), attribute(kMinor, device))};
  all.insert(all.end(), options.begin(), options.end());
  std::vector<const char*> texts;
  texts.reserve(all.size());
  for (const auto& option : all) texts.push_back(option.c_str());

  void* program = nullptr;
  std::string log, ptx;
  int result = calls_->nvrtcCreateProgram(&program, source.c_str(), "torchtap.cu", 0, nullptr, nullptr);
  if (result == 0) {
    result = calls_->nvrtcCompileProgram(program, static_cast<int>(texts.size()), texts.data());
    std::size_t size = 0;
    if (calls_->nvrtcGetProgramLogSize(program, &size) == 0 && size != 0) {
      log.resize(size);
      calls_->nvrtcGetProgramLog(program, log.data());
    }
    if (result == 0) result = calls_->nvrtcGetPTXSize(program, &size);
    if (result == 0) {
      ptx.resize(size);
      result = calls_->nvrtcGetPTX(program, ptx.data());
    }
    calls_->nvrtcDestroyProgram(&program);
  }
  TORCH_CHECK(result == 0, "torchtap::cuda: NVRTC cannot compile for this device (", all[1], "), error ",
              result, ": ", log.c_str(), " disable_fused_kernels() goes on without these kernels.");
  const Context current(*this, device);
  void* module = nullptr;
  check(calls_->cuModuleLoadData(&module, ptx.c_str()), "cuModuleLoadData");
  for (const char* const kernel : kernels) (void)function(module, kernel);
  return module;
}

void Driver::launch(void* module, const char* kernel, Extent grid, Extent block, unsigned shared_bytes,
                    c10::DeviceIndex device, void** arguments) const {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  void* const stream = native(guard.getStream({c10::DeviceType::CUDA, device}));
  const Context current(*this, device);
  check(calls_->cuLaunchKernel(function(module, kernel), grid.x, grid.y, 1, block.x, block.y, 1, shared_bytes,
                               stream, arguments, nullptr),
        "cuLaunchKernel");
}

}  // namespace torchtap::cuda::detail
