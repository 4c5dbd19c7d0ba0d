// Launches a few kernels for each call.
#include <ATen/Functions.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include <torchtap/cuda/detail/driver.hpp>
#include <torchtap/cuda/detail/kernels.hpp>
#include <torchtap/cuda/detail/source.hpp>

namespace torchtap::cuda::detail {
namespace {

using reductions::extend::BitBins;
using reductions::extend::DeviceMoments;
using reductions::extend::DeviceRows;

constexpr std::int64_t kThreads = 256;      // of a block; the source's shared memory is made for as many
constexpr std::int64_t kGroup = 8;          // elements that a thread reads at once, as in the source
constexpr std::int64_t kPartial = 6;        // numbers of a chunk's moments, as in the source
constexpr std::int64_t kNeighbours = 32;    // kept elements side by side that threads read side by side
constexpr std::int64_t kBlocks = 4;         // at once on a multiprocessor
constexpr std::int64_t kMostChunks = 4096;  // a grid may have 65535
constexpr std::int64_t kShared = 48 << 10;  // bytes of a block's memory

std::int64_t parts(std::int64_t size, std::int64_t part) {
  return (size + part - 1) / part;
}

/// The compiler's options for elements of a dtype; empty if the source cannot read it.
std::vector<std::string> options_for(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return {"-DELEMENT=float"};
    case c10::ScalarType::Double:
      return {"-DELEMENT=double"};
    case c10::ScalarType::Half:
      return {"-DELEMENT=unsigned short", "-DHALF"};
    case c10::ScalarType::BFloat16:
      return {"-DELEMENT=unsigned short", "-DBFLOAT16"};
    case c10::ScalarType::Bool:
    case c10::ScalarType::Byte:
      return {"-DELEMENT=unsigned char"};
    case c10::ScalarType::Char:
      return {"-DELEMENT=signed char"};
    case c10::ScalarType::Short:
      return {"-DELEMENT=short"};
    case c10::ScalarType::Int:
      return {"-DELEMENT=int"};
    case c10::ScalarType::Long:
      return {"-DELEMENT=long long"};
    default:
      return {};
  }
}

/// As the source's `State`.
struct State {
  double before;
  double *mean, *m2, *m3, *m4;
};

double* numbers(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<double>() : nullptr;
}

class Fused final : public reductions::extend::DeviceKernels {
 public:
  static Fused& instance() {
    static auto* const one = new Fused;  // for hooks that run at the program's end
    return *one;
  }

  bool reads(const at::Tensor& sample) const override {
    return sample.is_cuda() && sample.layout() == c10::kStrided && !options_for(sample.scalar_type()).empty();
  }

  void fold_moments(const DeviceRows& rows, std::int64_t before, const DeviceMoments& moments) override {
    State state{static_cast<double>(before), numbers(moments.mean), numbers(moments.m2), numbers(moments.m3),
                numbers(moments.m4)};
    const Target target(rows);
    const void* x = rows.memory.data_ptr();
    std::int64_t outer = rows.outer, kept = rows.kept, inner = rows.inner, size = rows.rows();
    const bool columns = inner == 1 && kept >= kNeighbours;
    Extent block{static_cast<unsigned>(kThreads), 1};
    if (columns && size >= kGroup)
      block = {static_cast<unsigned>(kNeighbours), static_cast<unsigned>(kGroup)};
    const std::int64_t across = columns ? parts(kept, block.x) : kept;
    const std::int64_t read_at_once = kGroup * (columns ? block.y : block.x);
    const std::int64_t most = std::min(parts(target.blocks(), across), kMostChunks);
    std::int64_t chunk = parts(size, std::clamp<std::int64_t>(size / read_at_once, 1, most));
    std::int64_t chunks = parts(size, chunk);
    at::Tensor partial;
    double* between = nullptr;
    if (chunks > 1) {
      partial = at::empty({chunks, kept, kPartial}, rows.memory.options().dtype(at::kDouble));
      between = partial.data_ptr<double>();
    }
    const Extent grid{static_cast<unsigned>(across), static_cast<unsigned>(chunks)};
    if (columns) {
      target.launch("moments_of_columns", grid, block, 0, x, size, kept, chunk, state, between);
    } else {
      target.launch("moments_of_runs", grid, block, 0, x, outer, kept, inner, chunk, state, between);
    }
    if (between == nullptr) return;
    const Extent few{
        chunks > kNeighbours ? static_cast<unsigned>(kThreads) : static_cast<unsigned>(kNeighbours), 1};
    const double* found = between;
    double number = static_cast<double>(size);
    target.launch("moments_of_chunks", {static_cast<unsigned>(kept), 1}, few, 0, found, chunks, kept, number,
                  state);
  }

  void count_kinds(const DeviceRows& rows, const at::Tensor& nan, const at::Tensor& infinities,
                   const at::Tensor& zeros) override {
    const Target target(rows);
    const void* x = rows.memory.data_ptr();
    std::int64_t size = rows.memory.numel();
    std::int64_t *a = nan.data_ptr<std::int64_t>(), *b = infinities.data_ptr<std::int64_t>(),
                 *c = zeros.data_ptr<std::int64_t>();
    target.launch("count_kinds", target.grid(size), {static_cast<unsigned>(kThreads), 1}, 0, x, size, a, b,
                  c);
  }

  void count_bins(const DeviceRows& rows, const at::Tensor& edges, const at::Tensor& counts) override {
    std::int64_t bins = edges.size(0) - 1;
    const double* first = edges.data_ptr<double>();
    count("count_bins", rows, counts, bins, first);
  }

  void count_growing_bins(const DeviceRows& rows, const at::Tensor& min, const at::Tensor& max,
                          const at::Tensor& exponent, const at::Tensor& start,
                          const at::Tensor& counts) override {
    const Target target(rows);
    const Extent threads{static_cast<unsigned>(kThreads), 1}, read = target.grid(rows.memory.numel());
    const auto numbers_of = [&](at::IntArrayRef sizes, c10::ScalarType type) {
      return at::empty(sizes, rows.memory.options().dtype(type));
    };
    const void* x = rows.memory.data_ptr();
    std::int64_t size = rows.memory.numel(), kept = rows.kept, bins = counts.size(1) - 3, blocks = read.x;
    const at::Tensor extrema = numbers_of({blocks, 2}, at::kDouble), ranges = numbers_of({4}, at::kLong),
                     merged = numbers_of({kept, bins}, at::kLong);
    double *found = extrema.data_ptr<double>(), *low = min.data_ptr<double>(), *high = max.data_ptr<double>();
    std::int64_t *width = exponent.data_ptr<std::int64_t>(), *first = start.data_ptr<std::int64_t>(),
                 *former = ranges.data_ptr<std::int64_t>(), *now = former + 2,
                 *all = counts.data_ptr<std::int64_t>(), *room = merged.data_ptr<std::int64_t>();
    target.launch("find_extrema", read, threads, 0, x, size, found);
    target.launch("grow_range", {}, {}, 0, found, blocks, bins, low, high, width, first, former, now);
    target.launch("regroup_bins", {static_cast<unsigned>(parts(kept, kThreads)), 1}, threads, 0, former, now,
                  kept, bins, all, room);
    count("count_cells", rows, counts, bins, now);
  }

  void count_bits(const DeviceRows& rows, BitBins bins, const at::Tensor& counts) override {
    int mantissa_bits = bins.mantissa_bits;
    double scale = std::ldexp(1.0, 126 + mantissa_bits);
    count("count_bits", rows, counts, mantissa_bits, scale);
  }

  /// The module that was compiled for a dtype and a device; compiles it first if there is none.
  void* module(c10::ScalarType type, c10::DeviceIndex device) {
    const std::lock_guard lock(mutex_);
    void*& module = modules_[{type, device}];
    if (module == nullptr) module = Driver::instance().load(kSource, options_for(type), device);
    return module;
  }

 private:
  /// The device and the kernels for a sample.
  class Target {
   public:
    explicit Target(const DeviceRows& rows)
        : device_(rows.memory.device().index()),
          module_(instance().module(rows.memory.scalar_type(), device_)) {}

    /// How many blocks run at once.
    std::int64_t blocks() const { return kBlocks * Driver::instance().multiprocessors(device_); }
    /// Blocks whose threads read two groups of elements or more.
    Extent grid(std::int64_t size) const {
      return {static_cast<unsigned>(
                  std::clamp<std::int64_t>(parts(size, 2 * kGroup * kThreads), 1, 2 * blocks())),
              1};
    }
    template <class... Arguments>
    void launch(const char* name, Extent grid, Extent block, unsigned shared, Arguments&... arguments) const {
      void* addresses[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
      Driver::instance().launch(module_, name, grid, block, shared, device_, addresses);
    }

   private:
    c10::DeviceIndex device_;
    void* module_;
  };

  template <class... Arguments>
  void count(const char* kernel, const DeviceRows& rows, const at::Tensor& counts, Arguments&... arguments) {
    const Target target(rows);
    const void* x = rows.memory.data_ptr();
    std::int64_t size = rows.memory.numel(), kept = rows.kept, inner = rows.inner;
    std::int64_t* const all = counts.data_ptr<std::int64_t>();
    const std::int64_t bytes = 4 * counts.size(1);
    int shared = kept == 1 && bytes <= kShared ? static_cast<int>(counts.size(1)) : 0;
    target.launch(kernel, target.grid(size), {static_cast<unsigned>(kThreads), 1},
                  4 * static_cast<unsigned>(shared), x, size, kept, inner, shared, all, arguments...);
  }

  std::mutex mutex_;
  std::map<std::pair<c10::ScalarType, c10::DeviceIndex>, void*> modules_;
};

}  // namespace

reductions::extend::DeviceKernels& kernels() {
  TORCH_CHECK(c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA),
              "torchtap::cuda::enable_fused_kernels: the program's LibTorch has no CUDA; link one that has "
              "(torch_cuda, which linkers leave out with --as-needed).");
  (void)Driver::instance();  // says what is missing, as LibTorch below does not
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  TORCH_CHECK(guard.deviceCount() > 0,
              "torchtap::cuda::enable_fused_kernels: there is no CUDA device that this LibTorch can use. "
              "Reductions are ATen's operations until then.");
  Fused::instance().module(c10::ScalarType::Float, guard.getDevice().index());
  return Fused::instance();
}

}  // namespace torchtap::cuda::detail
