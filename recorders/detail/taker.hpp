#pragma once

/// Defines `Taker`: what becomes of a sample. One is chosen when a recorder is attached.

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/recorders/detail/prepare.hpp>
#include <torchtap/recorders/detail/slots.hpp>
#include <torchtap/storage/spool.hpp>

namespace torchtap::recorders::detail {

class Record;
class Store;

/// Takes the tensors of events, and leaves in the slots what is to be read. Thread-safe. What a recorder
/// rarely asks for is a class of its own, so that the common ones have no branch for it:
///
/// - `Keep` in memory; `KeepWithin` a budget, or in a spool;
/// - `Fold` into reductions, `FoldOwn` with code of the program's, `FoldBeside` from several threads;
/// - and those of parts (`extend::Takes`, `extend::OnDevices`).
class TORCHTAP_API Taker {
 public:
  explicit Taker(Slots& slots) : slots_(slots) {}
  virtual ~Taker() = default;
  Taker(const Taker&) = delete;
  Taker& operator=(const Taker&) = delete;

  enum class Took {
    sample,   ///< and counted it
    nothing,  ///< the sample is dropped
    waits,    ///< for other tensors, with which it will be a sample
  };
  /// Takes the tensors of an event that is to be recorded, for the slots from `first_slot` on: all of them or
  /// none.
  virtual Took take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) = 0;
  /// Counts an event that the condition refused.
  virtual void refuse(const hooks::Event& event);

  /// The function of the module's hook.
  virtual hooks::Callback callback(const std::shared_ptr<Record>& record);
  /// The hooks of other modules that this one needs.
  virtual std::vector<hooks::Handle> companions(const std::shared_ptr<Record>& record,
                                                const model::ModuleRef& module);
  /// From now on the ends of this root's forwards are seen.
  virtual void see_ends_of(const model::ModuleRef& /*root*/) {}
  /// Whether it takes tensors of any device; else what `OnDevices` gives has to stand around it when one
  /// comes.
  virtual bool takes_devices() const noexcept { return true; }

  /// Called under the lock. Moves to the slots what is not there yet, with its number of samples.
  virtual void settle() {}
  /// Called under the lock. Discards what is not in the slots, and returns how many samples that were.
  virtual std::int64_t forget() { return 0; }
  /// The number of samples. Waits for the device if a graph records.
  virtual std::int64_t samples() const noexcept { return slots_.samples.load(); }
  /// How many events were seen; -1 if each is a sample or counted as none.
  virtual std::int64_t seen() const noexcept { return -1; }
  /// Called under the lock when something else than this taker has written the slots.
  virtual void slots_changed() noexcept {}
  /// Called under the lock when all was discarded.
  virtual void restart() noexcept {}
  /// The stream of the spool, after moving samples in memory to it; null while nothing is spooled.
  virtual storage::Spool::Stream* spooled() { return nullptr; }
  /// How many slots the reductions have that this thread updates now, for code of the program's that asks
  /// while it does so; -1 if it does not.
  virtual std::int64_t slots_in_update() const noexcept { return -1; }

 protected:
  Slots& slots_;
};

class Fold;
/// Puts a fold for samples of devices around another one.
using AroundFold = std::function<std::unique_ptr<Fold>(std::unique_ptr<Fold>)>;

/// A taker around folds, to which it leaves what it does not do itself.
class TORCHTAP_API TakerAround : public Taker {
 public:
  TakerAround(Slots& slots, std::unique_ptr<Fold> folds);
  ~TakerAround() override;

  Took take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors, std::size_t first_slot) override;
  bool takes_devices() const noexcept override;
  void settle() override;
  std::int64_t forget() override;
  std::int64_t samples() const noexcept override;
  std::int64_t slots_in_update() const noexcept override;
  /// Called under the lock when the first tensor of a device comes.
  void take_from_devices(const AroundFold& around);

 protected:
  Fold& folds() const noexcept { return *folds_.load(std::memory_order_acquire); }

 private:
  std::unique_ptr<Fold> owned_;  // written under the lock
  std::atomic<Fold*> folds_;     // that one; the former one stays inside of it, because threads may be in it
};

/// The taker that the options ask for, for a module with this number in the store.
std::unique_ptr<Taker> make_taker(Slots& slots, Prepare& prepare, const std::shared_ptr<Store>& store,
                                  std::int64_t module);

}  // namespace torchtap::recorders::detail
