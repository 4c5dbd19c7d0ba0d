// Launches a few kernels for each call.
#include <ATen/Functions.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

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

// Of kernels that add to pages, as in the source.
constexpr std::int64_t kMany = 42;         // entries of a launch
constexpr std::int64_t kRoom = 18 << 10;   // bytes that a block has for counters of its own
constexpr std::int64_t kPartWords = 14;    // numbers of a Part
constexpr std::int64_t kRowsOfRun = 8192;  // rows of a chunk, or more
constexpr std::int64_t kRowsAcross = 256;

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

/// As the source's `Entry`.
struct Entry {
  const void* x;
  std::int64_t* page;
  const void* mask;
  std::int64_t outer, kept, inner, chunk, counted;
  int chunks, across, first_block, first_part, first_ticket, columns, shared;

  int blocks() const { return chunks * across; }
  int parts() const { return chunks == 1 ? 0 : chunks * static_cast<int>(kept); }
};

/// As the source's `One` and `Many`.
struct One {
  void* parts;
  int* tickets;
  Entry entry;
};
struct Many {
  void* parts;
  int* tickets;
  int count;
  Entry entries[kMany];
};
static_assert(sizeof(Many) <= 4096, "a kernel's arguments have at most 4096 bytes");

/// What kernels of one stream, or of one stream in one capture, leave for each other: parts of chunks, and
/// tickets, which are 0 between launches.
struct Room {
  std::uint64_t capture = 0;
  at::Tensor parts, tickets;
};

class Kernels final : public PageKernels {
 public:
  Kernels(const Launcher& launcher, c10::DeviceType type) : launcher_(launcher), type_(type) {}

  bool reads(const at::Tensor& sample) const override {
    return sample.device().type() == type_ && sample.layout() == c10::kStrided &&
           !options_for(sample.scalar_type()).empty();
  }

  void fold_moments(const DeviceRows& rows, std::int64_t before, const DeviceMoments& moments) override {
    State state{static_cast<double>(before), numbers(moments.mean), numbers(moments.m2), numbers(moments.m3),
                numbers(moments.m4)};
    const Target target(*this, rows);
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
    const Target target(*this, rows);
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
    const Target target(*this, rows);
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

  bool is_compiled(const at::Tensor& sample, const PageParts& parts) const override {
    const std::lock_guard lock(mutex_);
    return modules_.count({sample.scalar_type(), sample.device().index(), parts.number()}) != 0;
  }

  void add(c10::ArrayRef<PageEntry> entries) override {
    if (entries.size() == 1) return add_one(entries[0]);
    std::vector<const PageEntry*> left;
    for (const PageEntry& entry : entries) left.push_back(&entry);
    while (!left.empty()) {  // those of one dtype and of the same parts go together
      const auto alike = [&, first = left.front()](const PageEntry* one) {
        return one->rows.memory.scalar_type() == first->rows.memory.scalar_type() &&
               one->rows.memory.device() == first->rows.memory.device() &&
               one->parts.number() == first->parts.number();
      };
      const auto others = std::stable_partition(left.begin(), left.end(), alike);
      const auto some = std::min<std::ptrdiff_t>(others - left.begin(), kMany);
      add_many({left.data(), static_cast<std::size_t>(some)});
      left.erase(left.begin(), left.begin() + some);
    }
  }

  void take(const at::Tensor& page, const at::Tensor& to) override {
    const c10::DeviceIndex device = page.device().index();
    std::int64_t *from = page.data_ptr<std::int64_t>(), *into = to.data_ptr<std::int64_t>();
    void* addresses[] = {&from, &into};
    launcher_.launch(module(c10::ScalarType::Float, device, 0).handle, "take_page", {},
                     {static_cast<unsigned>(kThreads), 1}, 0, device, addresses);
  }

  struct Module {
    void* handle;
    std::int64_t blocks;  // that run at once
  };

  /// The module that was compiled for a dtype and a device, of kernels for pages of some parts or, with
  /// `kSingle`, of those for single reductions; compiles it first if there is none.
  Module module(c10::ScalarType type, c10::DeviceIndex device, int parts) {
    const std::lock_guard lock(mutex_);
    const auto found = modules_.find({type, device, parts});
    if (found != modules_.end()) return found->second;
    auto options = options_for(type);
    Module module{nullptr, kBlocks * launcher_.multiprocessors(device)};
    if (parts == kSingle) {
      module.handle = launcher_.load(std::string(kNumbers) + kKernels, options, {}, device);
    } else {
      options.push_back(c10::str("-DPARTS=", parts));
      module.handle = launcher_.load(std::string(kNumbers) + kLedger, options,
                                     {"add_one", "add_many", "take_page"}, device);
    }
    modules_.emplace(Key{type, device, parts}, module);
    return module;
  }

  static constexpr int kSingle = -1;

 private:
  using Key = std::tuple<c10::ScalarType, c10::DeviceIndex, int>;

  /// The device and the kernels for a sample.
  class Target {
   public:
    Target(Kernels& kernels, const DeviceRows& rows)
        : launcher_(kernels.launcher_),
          device_(rows.memory.device().index()),
          module_(kernels.module(rows.memory.scalar_type(), device_, kSingle)) {}

    /// How many blocks run at once.
    std::int64_t blocks() const { return module_.blocks; }
    /// Blocks whose threads read two groups of elements or more.
    Extent grid(std::int64_t size) const {
      return {static_cast<unsigned>(
                  std::clamp<std::int64_t>(parts(size, 2 * kGroup * kThreads), 1, 2 * blocks())),
              1};
    }
    template <class... Arguments>
    void launch(const char* name, Extent grid, Extent block, unsigned shared, Arguments&... arguments) const {
      void* addresses[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
      launcher_.launch(module_.handle, name, grid, block, shared, device_, addresses);
    }

   private:
    const Launcher& launcher_;
    c10::DeviceIndex device_;
    Module module_;
  };

  template <class... Arguments>
  void count(const char* kernel, const DeviceRows& rows, const at::Tensor& counts, Arguments&... arguments) {
    const Target target(*this, rows);
    const void* x = rows.memory.data_ptr();
    std::int64_t size = rows.memory.numel(), kept = rows.kept, inner = rows.inner;
    std::int64_t* const all = counts.data_ptr<std::int64_t>();
    const std::int64_t bytes = 4 * counts.size(1);
    int shared = kept == 1 && bytes <= kShared ? static_cast<int>(counts.size(1)) : 0;
    target.launch(kernel, target.grid(size), {static_cast<unsigned>(kThreads), 1},
                  4 * static_cast<unsigned>(shared), x, size, kept, inner, shared, all, arguments...);
  }

  /// Of entries of one dtype and of the same parts.
  Module module_of(const PageEntry& one) {
    return module(one.rows.memory.scalar_type(), one.rows.memory.device().index(), one.parts.number());
  }

  /// How a sample is divided into blocks, of which `most` run at once.
  static Entry entry_of(const PageEntry& one, std::int64_t most) {
    const DeviceRows& rows = one.rows;
    Entry entry{};
    entry.x = rows.memory.data_ptr();
    entry.page = one.page.data_ptr<std::int64_t>();
    entry.outer = rows.outer;
    entry.kept = rows.kept;
    entry.inner = rows.inner;
    entry.counted = one.counted;
    if (one.parts.masked) {
      entry.mask = one.mask.data_ptr();
      entry.counted = one.mask.numel();
    }
    entry.columns = rows.inner == 1 && rows.kept >= kNeighbours ? 1 : 0;
    const std::int64_t across = entry.columns != 0 ? parts(rows.kept, kNeighbours) : rows.kept;
    const std::int64_t least = entry.columns != 0 ? kRowsAcross : kRowsOfRun;
    const std::int64_t chunks = std::clamp<std::int64_t>(rows.rows() / least, 1, parts(most, across));
    entry.chunk = parts(parts(rows.rows(), chunks), kGroup) * kGroup;
    entry.chunks = static_cast<int>(parts(rows.rows(), entry.chunk));
    entry.across = static_cast<int>(across);
    const BitBins bits{static_cast<int>(one.parts.mantissa_bits)};
    const std::int64_t counters =
        (one.parts.bins == 0 ? 0 : one.parts.bins + 3) + (one.parts.mantissa_bits < 0 ? 0 : bits.slots());
    if (rows.kept == 1 && 4 * counters <= kRoom) entry.shared = static_cast<int>(counters);
    return entry;
  }

  void add_one(const PageEntry& entry) {
    const Module module = module_of(entry);
    One one{nullptr, nullptr, entry_of(entry, module.blocks)};
    Room room;  // until the launch
    if (one.entry.chunks > 1) {
      room = this->room(entry.rows.memory, one.entry.parts(), one.entry.across);
      one.parts = room.parts.data_ptr();
      one.tickets = room.tickets.data_ptr<int>();
    }
    void* addresses[] = {&one};
    launch(module, "add_one", one.entry.blocks(), one.entry.shared, entry, addresses);
  }

  /// One launch, of at most `kMany` entries of one dtype and of the same parts.
  void add_many(c10::ArrayRef<const PageEntry*> some) {
    const Module module = module_of(*some.front());
    Many all{};
    all.count = static_cast<int>(some.size());
    int blocks = 0, chunks = 0, tickets = 0, shared = 0;
    for (std::size_t i = 0; i < some.size(); ++i) {
      Entry& entry = all.entries[i] = entry_of(*some[i], module.blocks);
      entry.first_block = blocks;
      entry.first_part = chunks;
      entry.first_ticket = tickets;
      blocks += entry.blocks();
      shared = std::max(shared, entry.shared);
      if (entry.chunks == 1) continue;
      chunks += entry.parts();
      tickets += entry.across;
    }
    Room room;  // until the launch
    if (chunks != 0) {
      room = this->room(some.front()->rows.memory, chunks, tickets);
      all.parts = room.parts.data_ptr();
      all.tickets = room.tickets.data_ptr<int>();
    }
    void* addresses[] = {&all};
    launch(module, "add_many", blocks, shared, *some.front(), addresses);
  }

  void launch(const Module& module, const char* kernel, int blocks, int shared, const PageEntry& on,
              void** arguments) const {
    launcher_.launch(module.handle, kernel, {static_cast<unsigned>(blocks), 1},
                     {static_cast<unsigned>(kThreads), 1}, 4 * static_cast<unsigned>(shared),
                     on.rows.memory.device().index(), arguments);
  }

  /// Room for parts of chunks, and tickets, of the current stream. In a capture it is memory of the graph,
  /// and each replay begins with tickets of 0.
  Room room(const at::Tensor& sample, std::int64_t parts, std::int64_t tickets) {
    const c10::impl::VirtualGuardImpl guard(type_);
    const auto stream = guard.getStream(sample.device());
    const std::uint64_t capture = launcher_.capture(sample.device().index());
    const std::lock_guard lock(mutex_);
    Room& room = rooms_[{sample.device().index(), stream.id(), capture != 0}];
    if (room.capture != capture) room = {};
    room.capture = capture;
    if (!room.parts.defined() || room.parts.size(0) < parts)
      room.parts = at::empty({parts, kPartWords}, sample.options().dtype(at::kDouble));
    if (!room.tickets.defined() || room.tickets.size(0) < tickets)
      room.tickets = at::zeros({tickets}, sample.options().dtype(at::kInt));
    return room;
  }

  const Launcher& launcher_;
  const c10::DeviceType type_;
  mutable std::mutex mutex_;
  std::map<Key, Module> modules_;
  std::map<std::tuple<c10::DeviceIndex, c10::StreamId, bool>, Room> rooms_;  // `true`: in a capture
};

}  // namespace

std::unique_ptr<PageKernels> make_kernels(const Launcher& launcher, c10::Device device) {
  auto kernels = std::make_unique<Kernels>(launcher, device.type());
  (void)kernels->module(c10::ScalarType::Float, device.index(), Kernels::kSingle);
  (void)kernels->module(c10::ScalarType::Float, device.index(), 0);
  return kernels;
}

}  // namespace torchtap::cuda::detail
