// Attaches recorders to modules, and detaches them.
#include <torchtap/base/error.hpp>
#include <torchtap/recorders/detail/attached.hpp>
#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/recorders/recorder.hpp>

namespace torchtap::recorders {

using detail::Record;

namespace {

/// For a recorder of gradients: a hook that throws during the forward if no gradient can arrive
/// (`Record::on_forward`). TorchScript has no values of unknown types.
hooks::Handle watch_forward(const model::ModuleRef& module, const std::shared_ptr<Record>& record) {
  const auto& kind = detail::traits(record->kind);
  if (!kind.gradients || module.scripted() || module.exported()) return {};
  if (kind.outputs) {
    return hooks::attach(module, hooks::Kind::forward_output,
                         [record](hooks::Event& event) { record->on_forward(event.outputs()); });
  }
  return hooks::attach(module, hooks::Kind::forward_pre,
                       [record](hooks::Event& event) { record->on_forward(event.inputs()); });
}

/// Throws if samples would share memory that an exported model uses again before its forward ends.
void check_capture(const model::ModuleRef& module, const Record& record) {
  if (!module.exported() || module == module.root()) return;
  const Options& how = *record.options;
  const bool copied = how.reduction() != nullptr || (!how.spool_directory().empty() && !how.memory_budget());
  TORCH_CHECK_VALUE(how.capture() != Capture::alias || copied, record.describe(),
                    ": Capture::alias was asked for, but an exported model uses the memory of a tensor again "
                    "within the same forward, so the samples would hold other values; use Capture::copy.");
}

}  // namespace

void Recorder::Attached::hook(const model::ModuleRef& module) {
  const auto& record = subrecorder.record_;
  check_capture(module, *record);
  companions = record->pair(module);
  handle = hooks::attach(module, detail::traits(record->kind).hook,
                         [record](hooks::Event& event) { record->on_event(event); });
  forward = watch_forward(module, record);
}

Recorder& Recorder::attach(const selectors::ModuleView& model, const selectors::Selector& selector) {
  check_not_moved("attach");
  return attach(selectors::select(model.vector(), selector));
}

Recorder& Recorder::module(torch::nn::AnyModule& module, const std::string& name) {
  check_not_moved("module");
  return attach(std::vector<model::ModuleRef>{model::ref(module, name)});
}

Recorder& Recorder::attach(const std::vector<model::ModuleRef>& modules) {
  check_not_moved("attach");
  hooks::check_reachable(modules);
  hooks::DeferredCompile batch;
  AttachedList added;
  struct Withdraw {  // undoes `store_in` unless all were attached
    detail::Store& store;
    std::int64_t count = 0;
    ~Withdraw() {
      if (count > 0) store.withdraw(count);
    }
  } withdraw{*store_};
  for (const auto& module : modules) {
    auto record = std::make_shared<Record>(kind_, options_, module, /*alone=*/modules.size() == 1);
    record->store_in(store_);
    ++withdraw.count;
    added.push_back(std::make_unique<Attached>(std::move(record)));
    added.back()->hook(module);
  }
  batch.commit();
  // Last, so that a module that cannot be reached leaves the recorder as it was.
  attached_->reserve(attached_->size() + added.size());
  for (auto& attached : added) attached_->push_back(std::move(attached));
  withdraw.count = 0;
  return *this;
}

Recorder& Recorder::replace(std::int64_t index, const model::ModuleRef& module) {
  constexpr std::size_t kMostFormer = 64;
  check_not_moved("replace");
  (*this)[index];  // throws if there is none
  Attached& attached = *(*attached_)[static_cast<std::size_t>(index)];
  hooks::DeferredCompile batch;
  Attached next(attached.subrecorder.record_);
  next.hook(module);
  batch.commit();
  if (detail::traits(kind_).gradients) {
    attached.former.push_back(std::move(attached.handle));
    if (attached.former.size() > kMostFormer) attached.former.pop_front();
  }
  attached.handle = std::move(next.handle);
  attached.forward = std::move(next.forward);
  attached.companions = std::move(next.companions);
  return *this;
}

void Recorder::detach() noexcept {
  hooks::DeferredCompile batch;
  for (const auto& attached : attached()) {
    if (attached != nullptr) attached->detach();
  }
}

Scope::Scope(Recorder& recorder) : first_(recorder.attached().size()) {
  recorder.check_not_moved("Scope");
  attached_ = recorder.attached_;
}

Scope::~Scope() {
  const auto attached = attached_.lock();
  if (attached == nullptr) return;
  hooks::DeferredCompile batch;
  for (std::size_t i = first_; i < attached->size(); ++i) {
    if ((*attached)[i] != nullptr) (*attached)[i]->detach();
  }
}

}  // namespace torchtap::recorders
