#pragma once

/// Defines `KeepWithin`, which keeps samples within a memory budget, in a spool, or first in one and then in
/// the other.

#include <cstdint>
#include <memory>
#include <optional>

#include <torchtap/recorders/detail/keep.hpp>
#include <torchtap/recorders/detail/store.hpp>

namespace torchtap::recorders::detail {

/// Keeps samples where `RecorderOptions::memory_budget` and `spool` say.
class KeepWithin final : public Keep {
 public:
  /// `module`: its number in the store.
  KeepWithin(Slots& slots, Prepare& prepare, std::shared_ptr<Store> store, std::int64_t module);
  ~KeepWithin() override;

  void slots_changed() noexcept override { count_held(); }
  storage::Spool::Stream* spooled() override;

 private:
  bool keep(Samples& samples, std::size_t first_slot) override;
  void pad(std::size_t slot, std::int64_t count) override;
  bool for_files() const noexcept override { return !slots_.options->spool_directory().empty(); }
  bool within_budget(std::int64_t bytes);
  void move_to_spool();
  std::optional<std::int64_t> spooled_slot(std::size_t slot) const;
  void count_held() noexcept;

  const std::shared_ptr<Store> store_;
  const std::int64_t module_;
  storage::Spool::Stream* stream_;  // where samples go; null while they are kept in memory
  std::int64_t held_ = 0;           // the bytes of these slots in `Store::held`
};

}  // namespace torchtap::recorders::detail
