#include <torch/nn/module.h>

#include <cstdint>
#include <torchtap/hooks/detail/direct.hpp>

namespace torchtap::hooks::detail {

std::atomic<bool> direct_table_in_use{false};

namespace {

std::atomic<CalledModule> called_module{nullptr};

}  // namespace

DirectTable& direct_table() {
  static auto* table = new DirectTable;  // models may outlive static objects
  return *table;
}

void note_direct_table() noexcept {
  direct_table_in_use.store(!direct_table().empty() || called_module.load() != nullptr);
}

void set_called_module(CalledModule observer) noexcept {
  called_module.store(observer);
  if (observer != nullptr) direct_table_in_use.store(true);
}

DirectEntry* look_up_direct(torch::nn::Module& module) {
  if (const auto observer = called_module.load(std::memory_order_relaxed)) observer(module);
  return direct_table().find(&module);
}

std::size_t DirectTable::bucket_of(const void* module) noexcept {
  // Fibonacci hashing: what differs between addresses is in the middle.
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;
  static_assert(kBuckets == std::size_t{1} << (64 - 51));
  const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(module));
  return static_cast<std::size_t>((address >> 4) * kGolden >> 51);
}

DirectEntry* DirectTable::find(const void* module) const noexcept {
  DirectEntry* entry = buckets_[bucket_of(module)].load(std::memory_order_acquire);
  while (entry != nullptr && entry->module.load(std::memory_order_relaxed) != module) {
    entry = entry->next.load(std::memory_order_acquire);
  }
  return entry;
}

DirectEntry& DirectTable::insert(const void* module, std::weak_ptr<const void> owner, core::Direct direct) {
  std::atomic<DirectEntry*>* link = &buckets_[bucket_of(module)];
  DirectEntry* entry = link->load();
  while (entry != nullptr && (entry->module.load() != nullptr || entry->gate.readers.load() != 0)) {
    link = &entry->next;
    entry = link->load();
  }
  if (entry == nullptr) entry = &all_.emplace_back();
  // Whoever enters its gate before the module is stored sees that the entry belongs to nobody.
  entry->direct = direct;
  entry->owner = std::move(owner);
  entry->module.store(module);
  link->store(entry);
  ++used_;
  return *entry;
}

void DirectTable::erase(DirectEntry& entry) noexcept {
  entry.module.store(nullptr);
  --used_;
}

}  // namespace torchtap::hooks::detail
