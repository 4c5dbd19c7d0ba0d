// Recorders with blocks, on the modules that a monitor would watch.
#include <utility>

#include <torchtap/base/process.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/reductions/blocks.hpp>
#include <torchtap/views/monitor/detail/chosen.hpp>
#include <torchtap/views/monitor/learner.hpp>
#include <torchtap/views/watch/same_modules.hpp>

namespace torchtap::views::monitor {

struct Learner::State {
  /// A recorder, and its modules.
  struct Recorded {
    std::unique_ptr<recorders::Recorder> recorder;
    std::vector<std::size_t> modules;
  };
  std::vector<model::ModuleRef> modules;
  std::vector<Recorded> recorders;

  void add(recorders::RecorderKind kind, std::vector<std::size_t> which) {
    recorders::RecorderOptions how;
    how.all_tensors().reduction(reductions::Blocks());
    how.condition([here = base::MadeHere()] { return static_cast<bool>(here); });
    how.on_error([](const std::string&, const std::exception_ptr&) {});  // counted as not recorded
    auto recorder = recorders::make(kind, std::move(how));
    std::vector<model::ModuleRef> refs;
    for (const std::size_t module : which) refs.push_back(modules[module]);
    recorder->attach(refs);
    recorders.push_back({std::move(recorder), std::move(which)});
  }
};

Learner::Learner(const selectors::ModuleView& model, const selectors::Selector& select)
    : state_(std::make_unique<State>()) {
  state_->modules = model.vector();
  const detail::Chosen chosen = detail::choose(state_->modules, select);
  hooks::DeferredCompile batch;
  if (chosen.tops.empty()) state_->add(recorders::RecorderKind::forward_pre, {0});
  state_->add(recorders::RecorderKind::forward_output, chosen.modules);
  batch.commit();
  if (state_->modules.front().scripted()) state_->modules = watch::names_of(state_->modules);
}

Learner::Learner(Learner&&) noexcept = default;
Learner& Learner::operator=(Learner&&) noexcept = default;
Learner::~Learner() = default;

void Learner::follow(const selectors::ModuleView& model) {
  std::vector<model::ModuleRef> modules = model.vector();
  watch::check_same("views::monitor::Learner::follow", state_->modules, modules);
  state_->modules = std::move(modules);
  hooks::DeferredCompile batch;
  for (const auto& [recorder, which] : state_->recorders) {
    for (std::size_t i = 0; i < which.size(); ++i)
      recorder->replace(static_cast<std::int64_t>(i), state_->modules[which[i]]);
  }
  batch.commit();
  if (state_->modules.front().scripted()) state_->modules = watch::names_of(state_->modules);
}

std::vector<storage::Entry> Learner::entries() const {
  std::vector<storage::Entry> entries;
  for (const auto& recorded : state_->recorders) {
    for (storage::Entry& entry : recorded.recorder->entries()) entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace torchtap::views::monitor
