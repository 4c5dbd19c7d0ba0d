// Chooses what becomes of the samples of a recorder.
#include <utility>

#include <torchtap/recorders/detail/fold.hpp>
#include <torchtap/recorders/detail/fold_beside.hpp>
#include <torchtap/recorders/detail/fold_own.hpp>
#include <torchtap/recorders/detail/keep.hpp>
#include <torchtap/recorders/detail/keep_within.hpp>
#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/recorders/detail/taker.hpp>
#include <torchtap/recorders/extend/takes.hpp>

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

TakerAround::TakerAround(Slots& slots, std::unique_ptr<Fold> folds)
    : Taker(slots), owned_(std::move(folds)), folds_(owned_.get()) {}

TakerAround::~TakerAround() = default;

Taker::Took TakerAround::take(const hooks::Event& event, c10::ArrayRef<at::Tensor> tensors,
                              std::size_t first_slot) {
  return folds().take(event, tensors, first_slot);
}
bool TakerAround::takes_devices() const noexcept {
  return folds().takes_devices();
}
void TakerAround::settle() {
  folds().settle();
}
std::int64_t TakerAround::forget() {
  return folds().forget();
}
std::int64_t TakerAround::samples() const noexcept {
  return folds().samples();
}
std::int64_t TakerAround::slots_in_update() const noexcept {
  return folds().slots_in_update();
}

void TakerAround::take_from_devices(const AroundFold& around) {
  owned_ = around(std::move(owned_));
  folds_.store(owned_.get(), std::memory_order_release);
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
                                  std::int64_t module) {
  const RecorderOptions& options = *slots.options;
  const bool folds = options.reduction() != nullptr;
  if (options.takes() != nullptr && !folds && store->spooling())
    return options.takes()->spooling_taker(slots, prepare, store->spool(), *store->stream(module));
  if (options.takes() != nullptr)
    return options.takes()->taker(slots, prepare, folds ? make_fold(slots, prepare) : nullptr);
  if (folds) return make_fold(slots, prepare);
  if (options.memory_budget() || !options.spool_directory().empty())
    return std::make_unique<KeepWithin>(slots, prepare, store, module);
  return std::make_unique<Keep>(slots, prepare);
}

}  // namespace torchtap::recorders::detail

namespace torchtap::recorders {

void extend::Takes::check(const std::string& /*kind*/, const RecorderOptions& /*options*/) const {}
std::unique_ptr<extend::Taker> extend::Takes::spooling_taker(Slots& slots, Prepare& prepare,
                                                             storage::Spool& /*spool*/,
                                                             storage::Spool::Stream& /*stream*/) const {
  return taker(slots, prepare, nullptr);
}
std::string extend::Takes::elsewhere(const RecorderOptions& /*options*/) const {
  return "";
}

}  // namespace torchtap::recorders
