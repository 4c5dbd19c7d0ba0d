#include "recording_session.hpp"

#include <torch/csrc/jit/api/module.h>
#include <unistd.h>

#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/extend/call_depth.hpp>
#include <torchtap/model/extend/interposed_calls.hpp>
#include <torchtap/model/extend/node.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/recorders/extend/records.hpp>
#include <torchtap/selectors/selectors.hpp>
#include <torchtap/torchscript/functions.hpp>

#include "agent.hpp"
#include "kept_code.hpp"
#include "linked_libraries.hpp"
#include "models/called_methods.hpp"
#include "options/recorder_options.hpp"
#include "packed_entries.hpp"
#include "publishing.hpp"
#include "terminal/message.hpp"

namespace torchtap::tools::preload {
namespace {

using torch::nn::Module;

constexpr std::size_t kMostPaths = 1000;
constexpr std::size_t kMostInTurn = 64;

/// Distinguishes a module that was created anew from another of its type by the shapes of its own parameters.
std::string kind_of(const Module& module, const std::string& type) {
  std::string kind = type;
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    kind += c10::str(" ", parameter.key(), parameter.value().sizes());
  }
  return kind;
}

/// The kind of a TorchScript module, which is recorded by its method.
std::string kind_of(const model::ModuleRef& module) {
  std::string kind = module.qualified_type() + "." + module.method();
  for (const auto& parameter : module.script().named_parameters(/*recurse=*/false)) {
    kind += c10::str(" ", parameter.name, parameter.value.sizes());
  }
  return kind;
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return tools::message_of(known);
  } catch (...) {
    return "an unknown exception";
  }
}

std::string named(const std::string& path) {
  return path.empty() ? std::string("the model itself") : "\"" + path + "\"";
}

}  // namespace

Session::Session(const Config& config, Session* parent)
    : config_(config),
      process_(::getpid()),
      serial_(generation()),
      selector_(tools::selector_of(config.which, {})),
      models_({[] { return std::make_shared<FoundModel>(); },
               [this](const model::ModuleRef& module) {
                 const bool seen =
                     model::extend::doors_of(module).interposed != model::extend::Interposed::no;
                 // Noted so that missing modules are reported.
                 if (!seen && module.has_forward() && selector_(module)) {
                   compiled_in_[module.type()].insert(module.path());
                 }
                 return seen;
               },
               [this](const std::string& text) { note(text); }, "recorded", [](const auto&) { return true; },
               /*most=*/SIZE_MAX}) {
  if (parent != nullptr) {
    for (const auto& recorder : parent->recorders_) recorder->detach();
    parent->ends_.clear();
    models_.inherit(parent->models_);
    compiled_in_ = parent->compiled_in_;
  }
  recorders::RecorderOptions options;
  if (!config_.reduce.empty()) {
    options.reduction(tools::make_reduction(config_.reduce, config_.over, config_.elementwise));
  }
  if (!config_.stream.empty()) {
    streaming_ = std::make_shared<Streaming>();
    options.stream(streaming_).device(at::kCPU);
  } else if (config_.reduce.empty() && config_.mode == "record") {
    options.stream(std::make_shared<KeptSamples>());
  }
  if (options.reduction() != nullptr) reduction_ = options.reduction()->describe();
  options.on_error([this](const std::string& path, const std::exception_ptr& error) { fail(path, error); });
  // In a child, hooks of the parent's session remain until they are detached. They must not touch its locks.
  options.condition([serial = serial_] {
    if (serial != generation()) return false;
    Publishing::here()->call();
    return true;
  });
  if (config_.mode == "fingerprint") {
    views::compare::FingerprintsOptions prints;
    prints.forwards(config_.forwards).skip(config_.skip);
    for (std::size_t i = 0; i < config_.value_paths.size(); ++i) {
      prints.values().push_back({config_.value_paths[i], config_.value_samples[i]});
    }
    prints_ = std::make_shared<Fingerprinting>(std::move(prints));
    options.all_tensors().stream(prints_);
    recorders_.push_back(tools::make_recorder("pre", options));
  }
  recorders_.push_back(tools::make_recorder(config_.what, std::move(options)));
  tell(false);
}

void Session::learn(const Module& root) {
  std::unique_lock lock(mutex_);
  models_.let_go();
  models_.found(root);
  if (compiled_in_.empty() || attached()) return;  // else it is told with the recording
  lock.unlock();
  tell(false);
}

bool Session::meet(Module& module) {
  const auto keep = module.weak_from_this().lock();
  if (keep == nullptr) return meet_on_stack(module);
  Trail& trail = Trail::here(serial_);
  {
    const std::shared_lock lock(mutex_);
    const auto known = met_.find(&module);
    if (known != met_.end() && !known->second.owner.expired()) {
      trail.follow(known->second.slot, keep);
      return false;
    }
  }
  const auto* calls = model::extend::interposed_calls();
  if (calls == nullptr || !calls->cover(module)) return false;
  note_code_of(keep);
  auto node = std::make_shared<model::extend::Node>();
  node->identity = node->module = &module;
  node->keep = keep;
  node->type = model::pretty_type_name(module);
  node->leaf = module.children().empty();
  node->doors.interposed = model::extend::Interposed::symbol;
  const std::string kind = kind_of(module, node->type);

  const std::unique_lock lock(mutex_);
  if (done_) return false;
  const auto known = met_.find(&module);
  if (known != met_.end() && !known->second.owner.expired()) return false;  // another thread was faster
  const model::ModuleRef* const place = models_.place_of(module);
  const bool placed = place != nullptr;
  if (placed && prints_ != nullptr) {
    if (const FoundModel* const model = models_.of(module)) {
      prints_->write_weights(model->address, model->modules);
    }
  }
  if (placed) {
    node->path = place->path();
    node->aliases = place->aliases();
  }
  std::int64_t position =
      placed ? first_free(slots_of_[kind + "\n" + node->path], 0) : find_slot(kind, trail);
  const bool is_new = position < 0, is_first = slots_.empty();
  if (is_new) {
    position = static_cast<std::int64_t>(slots_.size());
    slots_.emplace_back();
    const std::string number = placed ? "" : std::to_string(numbers_[node->type]++);
    slots_.back().path = placed ? node->path : node->type + "#" + number;
    slots_of_[placed ? kind + "\n" + node->path : c10::str(kind, "\n#", trail.anchor())].push_back(position);
  }
  Slot& slot = slots_[static_cast<std::size_t>(position)];
  if (!placed) node->path = slot.path;
  if (!is_new && slot.module != &module) {
    // Its former module is gone; another one may have that address by now.
    const auto former = met_.find(slot.module);
    if (former != met_.end() && former->second.slot == position) met_.erase(former);
  }
  slot.module = &module;
  slot.is_free = [owner = module.weak_from_this()] { return owner.expired(); };
  met_[&module] = {keep, position};
  trail.follow(position, keep);
  const model::ModuleRef ref = model::extend::Access::make(node);
  note_ran(ref);
  if (!is_new) {
    replace(slot, ref);
    return false;
  }
  if (!selector_(ref) || !has_room(ref, attached_)) return is_first;
  attach({ref});
  slot.index = static_cast<std::int64_t>(attached_++);
  return is_first || slot.index == 0;
}

bool Session::meet(const torch::jit::Method& method) {
  // "forward" includes the copies that tracing makes of it.
  const std::string name = torchscript::implements(method.name(), "forward") ? "forward" : method.name();
  const torch::jit::Module root = method.owner();
  {
    const std::shared_lock lock(mutex_);
    const auto known = met_scripts_.find({root._ivalue().get(), name});
    if (known != met_scripts_.end() && known->second.called) return false;
  }
  const std::vector<model::ModuleRef> modules = tools::find_methods(root, name, name).modules;
  if (modules.front().root().frozen()) note(about_frozen(models_.done()));
  const selectors::Selector selector = tools::selector_of(config_.which, modules);

  const std::unique_lock lock(mutex_);
  if (done_) return false;
  if (prints_ != nullptr) prints_->write_weights(root._ivalue().get(), model::walk_modules(root));
  const bool is_first = slots_.empty();
  for (auto known = met_scripts_.begin(); known != met_scripts_.end();) {
    known = known->second.owner.expired() ? met_scripts_.erase(known) : std::next(known);
  }
  hooks::DeferredCompile batch;
  const Script life(root._ivalue());
  std::vector<model::ModuleRef> fresh;
  std::vector<std::size_t> positions;
  for (const model::ModuleRef& module : modules) {
    if (!module.has_forward()) continue;
    const auto object = module.script()._ivalue();
    const Script own(object);
    const auto [known, is_unknown] =
        met_scripts_.try_emplace({object.get(), module.method()}, KnownScript{own});
    known->second.called = known->second.called || module == module.root();
    if (!is_unknown) continue;
    note_ran(module);
    auto& same = slots_of_[kind_of(module) + "\n" + module.path()];
    std::int64_t position = first_free(same, 0);
    const bool is_new = position < 0;
    if (is_new) {
      position = static_cast<std::int64_t>(slots_.size());
      same.push_back(position);
      slots_.emplace_back().path = module.path();
    }
    Slot& slot = slots_[static_cast<std::size_t>(position)];
    if (!is_new) {
      const auto former = met_scripts_.find(slot.script);
      if (former != met_scripts_.end() && former->second.slot == position) met_scripts_.erase(former);
    }
    known->second.slot = position;
    slot.script = known->first;
    // A weak pointer to the root keeps its parts, though not the root itself, alive.
    slot.is_free = [own, life] { return own.expired() || life.expired(); };
    if (!is_new) {
      replace(slot, module);
    } else if (selector(module) && has_room(module, attached_ + fresh.size())) {
      fresh.push_back(module);
      positions.push_back(static_cast<std::size_t>(position));
    }
  }
  const bool is_first_attached = attached_ == 0 && !fresh.empty();
  if (!fresh.empty()) attach(fresh);
  for (const std::size_t position : positions)
    slots_[position].index = static_cast<std::int64_t>(attached_++);
  batch.commit();
  return is_first || is_first_attached;
}

void Session::note_ran(const model::ModuleRef& module) {
  has_news_ = true;
  report_.ran_types.insert(module.type());
  if (report_.ran_paths.size() < kMostPaths) report_.ran_paths.insert(module.path());
}

/// Whether one more can be attached. If not, counts the module as left out.
bool Session::has_room(const model::ModuleRef& module, std::size_t attached) {
  if (attached < kMost) return true;
  ++left_out_[module.type()];
  has_news_ = true;
  return false;
}

// Without a shared_ptr we cannot detect that another module reuses this address.
bool Session::meet_on_stack(const Module& module) {
  const std::type_index type = typeid(module);
  {
    const std::shared_lock lock(mutex_);
    if (on_stack_.count(type) != 0) return false;
  }
  const std::unique_lock lock(mutex_);
  report_.on_stack.insert(model::pretty_type_name(module));
  return on_stack_.insert(type).second;
}

/// The first of these slots, from the one at `from` on, whose module is gone; -1 if there is none.
std::int64_t Session::first_free(const std::vector<std::int64_t>& slots, std::size_t from) const {
  const auto begin = slots.begin() + static_cast<std::ptrdiff_t>(std::min(from, slots.size()));
  const auto found = std::find_if(begin, slots.end(), [this](std::int64_t position) {
    return slots_[static_cast<std::size_t>(position)].is_free();
  });
  return found == slots.end() ? std::int64_t{-1} : *found;
}

/// The slot of a module outside of models that was created anew: the slot's module is gone, was of the same
/// kind, and was called after the same module. -1 if there is none.
std::int64_t Session::find_slot(const std::string& kind, Trail& trail) {
  const std::int64_t anchor = trail.anchor();
  auto& here = slots_of_[c10::str(kind, "\n#", anchor)];
  const std::size_t turn = trail.count(kind);
  if (const auto found = first_free(here, std::min(turn, kMostInTurn - 1)); found >= 0) return found;
  if (here.size() >= kMostInTurn) {
    if (const auto found = first_free(here, 0); found >= 0) return found;
  }
  if (anchor == Trail::kNowhere) return -1;
  // In the first forward the first module has no anchor; in the second it has one.
  auto& unanchored = slots_of_[c10::str(kind, "\n#", Trail::kNowhere)];
  const std::int64_t position = first_free(unanchored, 0);
  if (position < 0) return -1;
  unanchored.erase(std::find(unanchored.begin(), unanchored.end(), position));
  slots_of_[c10::str(kind, "\n#", anchor)].push_back(position);
  return position;
}

void Session::note(std::string text) {
  const std::lock_guard lock(notes_mutex_);
  if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) notes_.push_back(std::move(text));
  has_news_ = true;
}

void Session::fail(const std::string& path, const std::exception_ptr& error) {
  const std::lock_guard lock(notes_mutex_);
  if (errors_.count(path) != 0) return;
  errors_[path] = text_of(error);
  has_news_ = true;
}

void Session::after_call() noexcept {
  if (config_.save.empty() || prints_ != nullptr || !attached() || !Publishing::here()->due()) return;
  publish();
}

/// Publishes the entries that changed.
void Session::publish() {
  try {
    Publishing::here()->results([this] {
      if (has_news_.exchange(false)) tell(false);
      const std::shared_lock lock(mutex_);
      const recorders::Recorder& recorder = *recorders_.back();
      published_.resize(static_cast<std::size_t>(recorder.size()), -1);
      std::size_t index = 0;
      for (const auto& subrecorder : recorder) {
        const std::int64_t events = subrecorder.events();
        std::int64_t& before = published_[index];
        if (before != events) Publishing::here()->part(index, pack(entry(static_cast<std::int64_t>(index))));
        before = events;
        ++index;
      }
    });
  } catch (...) {
    note("the recording cannot be handed over: " + text_of(std::current_exception()));
  }
}

/// What there is to save of a module, without values that the launcher can compute.
storage::Entry Session::entry(std::int64_t index) const {
  const recorders::Recorder& recorder = *recorders_.back();
  const auto& record = recorders::extend::Records::at(recorder, index);
  auto data = record.data("torchtap preload");
  storage::Entry entry;
  static_cast<storage::EntryId&>(entry) = record.id();
  entry.samples = data.samples;
  entry.reduction = reduction_;
  // The counts are apart.
  const std::string counts = data.not_recorded.note(), said = recorder[index].note();
  entry.note = said.substr(counts.empty() ? 0 : std::min(counts.size() + 1, said.size()));
  entry.not_recorded = std::move(data.not_recorded);
  const core::Sink* const sink = data.slots.empty() ? nullptr : data.slots.front().sink.get();
  if (sink == nullptr || entry.samples == 0) return entry;
  if (auto state = core::save(*sink)) {
    entry.state.push_back(std::move(*state));
  } else {
    entry.value = core::to_value(sink->results());
  }
  return entry;
}

bool Session::finish() noexcept {
  try {
    if (prints_ != nullptr) {
      const std::unique_lock lock(mutex_);
      done_ = true;
      for (const auto& recorder : recorders_) recorder->detach();
      prints_->end();
      report_.samples = prints_->written();
    }
    if (streaming_ != nullptr) {
      const std::unique_lock lock(mutex_);
      report_.samples = recorders_.back()->samples();
      if (const std::int64_t lost = Publishing::here()->not_sent(); lost > 0) {
        notes_.push_back(c10::str("torchtap did not go on, so ", lost, " tensors were not sent to readers."));
        report_.lost = true;
      }
    }
    if (attached() && !config_.save.empty() && prints_ == nullptr) publish();
  } catch (...) {
    note("the recording could not be saved: " + text_of(std::current_exception()));
    report_.lost = true;
  }
  try {
    tell(true);
  } catch (...) {  // out of memory at the very end
  }
  return prints_ != nullptr;
}

void Session::attach(const std::vector<model::ModuleRef>& modules) {
  for (const auto& recorder : recorders_) recorder->attach(modules);
  for (const auto& module : modules) ends_.push_back(hook_end(module));
}

void Session::replace(const Slot& slot, const model::ModuleRef& module) {
  if (slot.index < 0) return;
  for (const auto& recorder : recorders_) recorder->replace(slot.index, module);
  ends_[static_cast<std::size_t>(slot.index)] = hook_end(module);
}

/// Behind the recorder's hook: the outermost call of a module that can be seen is over, or its gradient came.
/// Calls of TorchScript are seen themselves.
hooks::Handle Session::hook_end(const model::ModuleRef& module) {
  if (config_.save.empty() || prints_ != nullptr) return {};
  const recorders::KindTraits& kind = recorders::traits(recorders::kind_of(recorders_.back()->kind()));
  if (module.scripted() && !kind.gradients) return {};
  return hooks::attach(module,
                       kind.hook == hooks::Kind::forward_pre ? hooks::Kind::forward_output : kind.hook,
                       [this](hooks::Event& /*event*/) {
                         if (serial_ == generation() && hooks::extend::call_depth() <= 1) after_call();
                       });
}

/// Names the types that most of the modules have.
std::string Session::compiled_in_note() const {
  constexpr std::size_t kMostTypes = 6;
  std::vector<const std::pair<const std::string, std::set<std::string>>*> types;
  std::size_t modules = 0;
  for (const auto& entry : compiled_in_) {
    types.push_back(&entry);
    modules += entry.second.size();
  }
  std::stable_sort(types.begin(), types.end(),
                   [](const auto* a, const auto* b) { return a->second.size() > b->second.size(); });
  std::string list;
  for (std::size_t i = 0; i < std::min(types.size(), kMostTypes); ++i) {
    const auto& [type, paths] = *types[i];
    // The last one is not the root, unless there is no other.
    list += c10::str(list.empty() ? "" : ", ", paths.size(), " ", type, " (", named(*paths.rbegin()),
                     paths.size() > 1 ? ", …)" : ")");
  }
  if (types.size() > kMostTypes) list += c10::str(" and ", types.size() - kMostTypes, " other types");
  return c10::str("not recorded, as their forward is compiled into the program: ", modules,
                  modules == 1 ? " module: " : " modules: ", list, ".");
}

std::vector<std::string> Session::notes() {
  std::vector<std::string> lines;
  if (!compiled_in_.empty()) lines.push_back(compiled_in_note());
  for (const auto& [type, count] : left_out_) {
    lines.push_back(c10::str("not recorded: ", count, " modules of type ", type, " that were called after ",
                             kMost, " others; choose fewer by --types or --names."));
  }
  const std::lock_guard lock(notes_mutex_);
  for (const auto& [path, text] : errors_) {
    lines.push_back("not all of \"" + path + "\" was recorded: " + text);
  }
  lines.insert(lines.end(), notes_.begin(), notes_.end());
  return lines;
}

void Session::tell(bool ended) {
  Report report;
  {
    const std::shared_lock lock(mutex_);
    report = report_;
    report.attached = attached();
    for (const auto& entry : compiled_in_) report.compiled_in.insert(entry.first);
    report.notes = notes();
  }
  preload::tell(report, ended);
}

void Session::begin() {
  tell(false);
  publish_at_end();
  if (streaming_ != nullptr) Streaming::wait_for(config_.readers);
}

}  // namespace torchtap::tools::preload
