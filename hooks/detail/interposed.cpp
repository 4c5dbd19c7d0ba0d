// Maps the addresses of modules to their hooks in a hash table that is read without a lock.

#include <torch/nn/module.h>

#include <cstdint>

#include <torchtap/hooks/detail/interposed.hpp>
#include <torchtap/hooks/detail/readers.hpp>
#include <torchtap/hooks/detail/registry.hpp>
#include <torchtap/hooks/extend/called_module.hpp>
#include <torchtap/hooks/extend/own_calls.hpp>

namespace torchtap::hooks::detail {

std::atomic<bool> interposed_table_in_use{false};
std::atomic<extend::CalledModule> called_module{nullptr};

InterposedTable& interposed_table() {
  static auto* table = new InterposedTable;  // models may outlive static objects
  return *table;
}

void note_interposed_table() noexcept {
  interposed_table_in_use.store(!interposed_table().empty() || called_module.load() != nullptr);
}

InterposedEntry* look_up_interposed(torch::nn::Module& module) {
  const auto observer = called_module.load(std::memory_order_relaxed);
  if (observer != nullptr && !extend::OwnCalls::here()) observer(module);
  return interposed_table().find(&module);
}

std::size_t InterposedTable::bucket_of(const void* module) noexcept {
  // Fibonacci hashing: addresses differ mostly in their middle bits.
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;
  static_assert(kBuckets == std::size_t{1} << (64 - 51));
  const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(module));
  return static_cast<std::size_t>((address >> 4) * kGolden >> 51);
}

InterposedEntry* InterposedTable::find(const void* module) const noexcept {
  InterposedEntry* entry = buckets_[bucket_of(module)].load(std::memory_order_acquire);
  while (entry != nullptr && entry->module.load(std::memory_order_relaxed) != module) {
    entry = entry->next.load(std::memory_order_acquire);
  }
  return entry;
}

InterposedEntry& InterposedTable::insert(const void* module, std::weak_ptr<const void> owner) {
  std::atomic<InterposedEntry*>* link = &buckets_[bucket_of(module)];
  InterposedEntry* entry = link->load();
  while (entry != nullptr && (entry->module.load() != nullptr || Readers::any_in(entry->gate))) {
    link = &entry->next;
    entry = link->load();
  }
  if (entry == nullptr) entry = &all_.emplace_back();
  // The module is stored after these: a reader that enters the gate earlier finds that the entry has no
  // module.
  entry->owner = std::move(owner);
  entry->module.store(module);
  link->store(entry);
  ++used_;
  return *entry;
}

void InterposedTable::erase(InterposedEntry& entry) noexcept {
  entry.module.store(nullptr);
  --used_;
}

}  // namespace torchtap::hooks::detail

namespace torchtap::hooks::extend {

CalledModule set_called_module(CalledModule observer) noexcept {
  const CalledModule former = detail::called_module.exchange(observer);
  if (observer != nullptr) detail::interposed_table_in_use.store(true);
  return former;
}

void prepare() {
  { const detail::Hook first; }  // makes the counters of threads
  detail::Registry::instance();
}

}  // namespace torchtap::hooks::extend
