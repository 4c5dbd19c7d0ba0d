// Chooses what becomes of the samples of a recorder.
#include <utility>

#include <torchtap/recorders/detail/fold.hpp>
#include <torchtap/recorders/detail/fold_beside.hpp>
#include <torchtap/recorders/detail/fold_on_device.hpp>
#include <torchtap/recorders/detail/fold_own.hpp>
#include <torchtap/recorders/detail/fold_paired.hpp>
#include <torchtap/recorders/detail/keep.hpp>
#include <torchtap/recorders/detail/keep_within.hpp>
#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/recorders/detail/send.hpp>
#include <torchtap/recorders/detail/taker.hpp>

namespace torchtap::recorders::detail {

void Taker::refuse(const hooks::Event& /*event*/) {
  slots_.counts.refused.fetch_add(1, std::memory_order_relaxed);
}

hooks::Callback Taker::callback(const std::shared_ptr<Record>& record) {
  return [record](hooks::Event& event) { record->on_event(event); };
}

std::vector<hooks::Handle> Taker::companions(const std::shared_ptr<Record>& /*record*/,
                                             const model::ModuleRef& /*module*/) {
  return {};
}

namespace {

std::unique_ptr<Fold> make_fold(Slots& slots, Prepare& prepare) {
  if (slots.own_reduction) return std::make_unique<FoldOwn>(slots, prepare);
  // A transform may be called by one thread at a time.
  if (slots.options->transform() != nullptr || !slots.options->reduction()->commutative())
    return std::make_unique<Fold>(slots, prepare);
  return std::make_unique<FoldBeside>(slots, prepare);
}

}  // namespace

std::unique_ptr<Taker> make_taker(Slots& slots, Prepare& prepare, const std::shared_ptr<Store>& store,
                                  std::int64_t module, const std::weak_ptr<const void>& owner) {
  const RecorderOptions& options = *slots.options;
  const bool paired = !options.with().empty(), streamed = options.stream() != nullptr;
  if (paired) FoldPaired::check(slots);
  if (options.reduction() == nullptr) {
    if (streamed) return std::make_unique<Send>(slots, prepare);
    if (options.memory_budget() || !options.spool_directory().empty())
      return std::make_unique<KeepWithin>(slots, prepare, store, module);
    return std::make_unique<Keep>(slots, prepare);
  }
  std::unique_ptr<Fold> fold = make_fold(slots, prepare);
  if (!paired && !streamed && options.defer() == 0) return fold;
  fold = std::make_unique<FoldOnDevice>(slots, prepare, std::move(fold), store->late(), owner);
  if (paired) return std::make_unique<FoldPaired>(slots, prepare, std::move(fold));
  if (streamed) return std::make_unique<SendResults>(slots, std::move(fold));
  return fold;
}

std::unique_ptr<Taker> make_taker_of_devices(Slots& slots, Prepare& prepare, std::unique_ptr<Taker> folds,
                                             const std::shared_ptr<Store>& store,
                                             const std::weak_ptr<const void>& owner) {
  std::unique_ptr<Fold> fold(static_cast<Fold*>(folds.release()));
  return std::make_unique<FoldOnDevice>(slots, prepare, std::move(fold), store->late(), owner);
}

}  // namespace torchtap::recorders::detail
