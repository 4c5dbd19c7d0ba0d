#include <torch/nn/module.h>

#include <cstdint>
#include <torchtap/hooks/detail/direct.hpp>

namespace torchtap::hooks::detail {

std::atomic<const DirectBuckets*> direct_buckets{nullptr};

namespace {

std::atomic<CalledModule> called_module{nullptr};

DirectBuckets& buckets() {
  static auto* all = new DirectBuckets{};
  return *all;
}

std::size_t bucket_of(const torch::nn::Module* module) noexcept {
  // Fibonacci hashing: what differs between addresses is in the middle.
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;
  const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(module));
  return static_cast<std::size_t>((address >> 4) * kGolden >> 51);
}
static_assert(std::tuple_size_v<DirectBuckets> == std::size_t{1} << (64 - 51));

DirectEntry* find(const DirectBuckets& in, const torch::nn::Module* module) noexcept {
  DirectEntry* entry = in[bucket_of(module)].load(std::memory_order_acquire);
  while (entry != nullptr && entry->module.load(std::memory_order_relaxed) != module) {
    entry = entry->next.load(std::memory_order_acquire);
  }
  return entry;
}

}  // namespace

void set_called_module(CalledModule observer) noexcept {
  called_module.store(observer);
  if (observer != nullptr) direct_buckets.store(&buckets());
}

DirectEntry* look_up_direct(const DirectBuckets& in, torch::nn::Module& module) {
  if (const auto observer = called_module.load(std::memory_order_relaxed)) observer(module);
  return find(in, &module);
}

DirectEntry& DirectTable::insert(const torch::nn::Module& module, core::Direct direct) {
  std::atomic<DirectEntry*>* link = &buckets()[bucket_of(&module)];
  DirectEntry* entry = link->load();
  while (entry != nullptr && (entry->module.load() != nullptr || entry->gate.readers.load() != 0)) {
    link = &entry->next;
    entry = link->load();
  }
  if (entry == nullptr) entry = &all_.emplace_back();
  // Whoever enters its gate before the module is stored sees that the entry belongs to nobody.
  entry->direct = direct;
  entry->owner = module.weak_from_this();
  entry->module.store(&module);
  link->store(entry);
  ++used_;
  direct_buckets.store(&buckets());
  return *entry;
}

void DirectTable::erase(DirectEntry& entry) noexcept {
  entry.module.store(nullptr);
  if (--used_ == 0 && called_module.load() == nullptr) direct_buckets.store(nullptr);
}

}  // namespace torchtap::hooks::detail
