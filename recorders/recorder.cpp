#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>
#include <sstream>
#include <torchtap/core/detail/error.hpp>
#include <torchtap/recorders/detail/record.hpp>
#include <torchtap/recorders/detail/snapshot.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/selectors/walk.hpp>
#include <torchtap/storage/detail/write_file.hpp>

namespace torchtap::recorders {

using detail::Record;

struct Recorder::Attached {
  explicit Attached(std::shared_ptr<Record> record) : subrecorder(std::move(record)) {}
  void detach() noexcept {
    handle.remove();
    forward.remove();
    former.clear();
  }
  Subrecorder subrecorder;
  hooks::Handle handle;
  hooks::Handle forward;             // of a recorder of gradients
  std::deque<hooks::Handle> former;  // of modules that were replaced and may still get gradients
};

const at::Tensor& Sample::tensor(std::int64_t index) const {
  TORCH_CHECK_INDEX(index >= 0 && index < tensors(), "recorders::Sample::tensor: tensor ", index,
                    " was asked for, but ", tensors(), " would be recorded of this event of \"", path_,
                    "\".");
  return all_ != nullptr ? (*all_)[index] : tensor_;
}

at::Tensor dequantized(const at::Tensor& tensor) {
  return tensor.is_quantized() ? tensor.dequantize() : tensor;
}

Options& Options::tensor(std::int64_t slot) {
  TORCH_CHECK_VALUE(slot >= 0, "recorders::Options::tensor: expected a slot from 0 on, got ", slot,
                    "; all_tensors() records every one.");
  tensor_ = slot;
  all_tensors_ = false;
  return *this;
}

Options& Options::spool(std::string directory, storage::SpoolOptions options) {
  TORCH_CHECK_VALUE(!directory.empty(), "recorders::Options::spool: the directory is empty; name one.");
  spool_directory_ = std::move(directory);
  spool_options_ = options;
  memory_budget_ = -1;
  return *this;
}

Options& Options::memory_budget(std::int64_t bytes, OverBudget policy) {
  TORCH_CHECK_VALUE(bytes >= 0, "recorders::Options::memory_budget: expected a number of bytes, got ", bytes,
                    ".");
  memory_budget_ = bytes;
  over_budget_ = policy;
  spool_directory_.clear();
  return *this;
}

Options& Options::memory_budget(std::int64_t bytes, std::string directory, storage::SpoolOptions options) {
  memory_budget(bytes);
  TORCH_CHECK_VALUE(!directory.empty(),
                    "recorders::Options::memory_budget: the directory is empty; name one.");
  spool_directory_ = std::move(directory);
  spool_options_ = options;
  return *this;
}

namespace {

hooks::Kind kind_of(Record::Source source) {
  switch (source) {
    case Record::Source::forward_pre:
      return hooks::Kind::forward_pre;
    case Record::Source::forward_input:
      return hooks::Kind::forward;
    case Record::Source::forward_output:
      return hooks::Kind::forward_output;
    case Record::Source::backward_input:
      return hooks::Kind::backward_input;
    case Record::Source::backward_output:
      return hooks::Kind::backward_output;
  }
  return hooks::Kind::forward;
}

/// Has a recorder of gradients say during the forward that none will come. Values of TorchScript are all
/// known.
hooks::Handle watch_forward(const model::ModuleRef& module, Record::Source source,
                            const std::shared_ptr<Record>& record) {
  if (source == Record::Source::backward_input) {
    return hooks::attach(module, hooks::Kind::forward_pre,
                         [record](hooks::Event& event) { record->on_forward(event.inputs()); });
  }
  if (source == Record::Source::backward_output) {
    return hooks::attach(module, hooks::Kind::forward_output,
                         [record](hooks::Event& event) { record->on_forward(event.outputs()); });
  }
  return {};
}

}  // namespace

Recorder::Recorder(Source source, Options options)
    : source_(source), options_(std::make_shared<const Options>(std::move(options))) {
  TORCH_CHECK_VALUE(options_->reduction() == nullptr || options_->spool_directory().empty() ||
                        options_->memory_budget() >= 0,
                    kind(), ": spool() keeps every sample and reduction() keeps none; ask for one of them.");
  store_ = std::make_shared<detail::Store>(options_);
}
// The options stay with both, so that what only asks needs no exception.
Recorder::Recorder(Recorder&& other) noexcept
    : source_(other.source_),
      options_(other.options_),
      store_(std::move(other.store_)),
      attached_(std::move(other.attached_)) {
  other.attached_.clear();
}
Recorder& Recorder::operator=(Recorder&& other) noexcept {
  if (this == &other) return *this;
  hooks::DeferredCompile batch;
  finish_spool();
  source_ = other.source_;
  options_ = other.options_;
  attached_ = std::move(other.attached_);
  other.attached_.clear();
  store_ = std::move(other.store_);
  return *this;
}
Recorder::~Recorder() {
  hooks::DeferredCompile batch;
  finish_spool();
  attached_.clear();
}

/// Before the recorder goes: what is still in memory of what is spooled. The spool itself closes with the
/// last of its records.
void Recorder::finish_spool() noexcept {
  if (store_ == nullptr || !store_->spooling()) return;
  detach();
  for (const auto& entry : live()) {
    try {
      entry.second->spooled();
    } catch (...) {  // aliases that were changed, or no memory
    }
  }
}

void Recorder::check_not_moved(const char* call) const {
  TORCH_CHECK_VALUE(store_ != nullptr, kind(), "::", call,
                    ": this recorder was moved to another one, which has its modules and what they recorded; "
                    "use that one.");
}

Recorder& Recorder::modules(torch::nn::Module& model, const selectors::Selector& selector) {
  check_not_moved("modules");
  return attach(selectors::select(selectors::modules(model).vector(), selector));
}

Recorder& Recorder::children(torch::nn::Module& model, const selectors::Selector& selector) {
  check_not_moved("children");
  return attach(selectors::select(selectors::children(model).vector(), selector));
}

Recorder& Recorder::modules(const torch::jit::Module& model, const selectors::Selector& selector,
                            const std::string& method) {
  check_not_moved("modules");
  return attach(selectors::select(selectors::modules(model, method).vector(), selector));
}

Recorder& Recorder::children(const torch::jit::Module& model, const selectors::Selector& selector,
                             const std::string& method) {
  check_not_moved("children");
  const model::ModuleRef root = model::walk_modules(model, method).front();
  if (root.frozen()) selectors::select({root}, selector);  // tells why it has no children
  return attach(selectors::select(selectors::children(model, method).vector(), selector));
}

Recorder& Recorder::module(torch::nn::AnyModule& module, const std::string& name) {
  check_not_moved("module");
  return attach({model::ref(module, name)});
}

Recorder& Recorder::attach(const std::vector<model::ModuleRef>& modules) {
  check_not_moved("attach");
  const auto source = static_cast<Record::Source>(source_);
  hooks::DeferredCompile batch;
  std::vector<std::unique_ptr<Attached>> added;
  struct Withdraw {  // unless all could be attached
    detail::Store& store;
    std::int64_t count = 0;
    ~Withdraw() {
      if (count > 0) store.withdraw(count);
    }
  } withdraw{*store_};
  for (const auto& module : modules) {
    auto record = std::make_shared<Record>(source, options_, module, /*alone=*/modules.size() == 1);
    record->store_in(store_);
    ++withdraw.count;
    auto attached = std::make_unique<Attached>(record);
    attached->handle =
        hooks::attach(module, kind_of(source), [record](hooks::Event& event) { record->on_event(event); });
    if (!module.scripted()) attached->forward = watch_forward(module, source, record);
    added.push_back(std::move(attached));
  }
  batch.commit();
  // Only now: a module that cannot be reached leaves the recorder, and the ones before it, as they were.
  attached_.reserve(attached_.size() + added.size());
  for (auto& attached : added) attached_.push_back(std::move(attached));
  withdraw.count = 0;
  return *this;
}

Recorder& Recorder::replace(std::int64_t index, const model::ModuleRef& module) {
  constexpr std::size_t kMostFormer = 64;
  (*this)[index];  // checks
  Attached& attached = *attached_[static_cast<std::size_t>(index)];
  const auto source = static_cast<Record::Source>(source_);
  const auto& record = attached.subrecorder.record_;
  hooks::DeferredCompile batch;
  auto handle =
      hooks::attach(module, kind_of(source), [record](hooks::Event& event) { record->on_event(event); });
  hooks::Handle forward;
  if (!module.scripted()) forward = watch_forward(module, source, record);
  batch.commit();
  if (source == Record::Source::backward_input || source == Record::Source::backward_output) {
    attached.former.push_back(std::move(attached.handle));
    if (attached.former.size() > kMostFormer) attached.former.pop_front();
  }
  attached.handle = std::move(handle);
  attached.forward = std::move(forward);
  return *this;
}

const std::string& Recorder::kind() const noexcept {
  static const std::string names[] = {"ForwardPre", "ForwardInput", "ForwardOutput", "BackwardInput",
                                      "BackwardOutput"};
  return names[static_cast<std::size_t>(source_)];
}

const Options& Recorder::options() const noexcept {
  return *options_;
}

std::vector<std::pair<std::int64_t, Record*>> Recorder::live() const {
  std::vector<std::pair<std::int64_t, Record*>> records;
  for (std::size_t i = 0; i < attached_.size(); ++i) {
    if (attached_[i] != nullptr) {
      records.emplace_back(static_cast<std::int64_t>(i), attached_[i]->subrecorder.record_.get());
    }
  }
  return records;
}

std::int64_t Recorder::size() const noexcept {
  std::int64_t count = 0;
  for (const auto& attached : attached_) count += attached != nullptr ? 1 : 0;
  return count;
}

std::int64_t Recorder::samples() const noexcept {
  std::int64_t count = 0;
  for (const auto& attached : attached_) count += attached != nullptr ? attached->subrecorder.samples() : 0;
  return count;
}

const Subrecorder& Recorder::operator[](std::int64_t index) const {
  check_not_moved("operator[]");
  TORCH_CHECK_INDEX(index >= 0 && index < static_cast<std::int64_t>(attached_.size()), kind(), "[", index,
                    "]: the recorder was attached to ", attached_.size(), " modules.");
  const auto& attached = attached_[static_cast<std::size_t>(index)];
  TORCH_CHECK_INDEX(attached != nullptr, kind(), "[", index,
                    "]: this subrecorder was removed; the others keep their indices.");
  return attached->subrecorder;
}

Subrecorder& Recorder::operator[](std::int64_t index) {
  return const_cast<Subrecorder&>(static_cast<const Recorder&>(*this)[index]);
}

Subrecorder& Recorder::at(const std::string& path) {
  check_not_moved("at");
  std::vector<std::string> paths;
  std::vector<std::int64_t> found;
  for (const auto& [index, record] : live()) {
    paths.push_back(record->id.path);
    bool matches = record->id.path == path;
    for (const auto& alias : record->id.aliases) matches = matches || alias == path;
    if (matches) found.push_back(index);
  }
  TORCH_CHECK_INDEX(!found.empty(), kind(), "::at: no subrecorder is called \"", path, "\"; the nearest are ",
                    core::detail::quoted(core::detail::nearest(path, paths)), ".");
  TORCH_CHECK_INDEX(found.size() == 1, kind(), "::at: \"", path, "\" is the path of several subrecorders, ",
                    c10::IntArrayRef(found), "; ask by index.");
  return (*this)[found.front()];
}

std::vector<std::int64_t> Recorder::indices() const {
  std::vector<std::int64_t> result;
  for (const auto& entry : live()) result.push_back(entry.first);
  return result;
}

Recorder::Iterator Recorder::begin() {
  return Iterator(this, 0);
}
Recorder::Iterator Recorder::end() {
  return Iterator(this, attached_.size());
}

core::Value Recorder::remove(std::int64_t index) {
  check_not_moved("remove");
  (*this)[index];  // checks
  auto& attached = attached_[static_cast<std::size_t>(index)];
  attached->detach();
  if (attached->subrecorder.record_->spooled() != nullptr) {  // it stays in the recording
    attached.reset();
    return {};
  }
  core::Value value = attached->subrecorder.value();
  store_->leave_out(attached->subrecorder.record_->module());
  attached.reset();
  return value;
}

void Recorder::detach() noexcept {
  hooks::DeferredCompile batch;
  for (auto& attached : attached_) {
    if (attached != nullptr) attached->detach();
  }
}

void Recorder::reset() {
  check_not_moved("reset");
  for (const auto& entry : live()) entry.second->reset();
}

void Recorder::apply(const std::function<at::Tensor(const at::Tensor&)>& function) {
  check_not_moved("apply");
  for (auto& subrecorder : *this) subrecorder.apply(function);
}

void Recorder::apply_sample(const std::function<at::Tensor(const at::Tensor&, std::int64_t)>& function) {
  check_not_moved("apply_sample");
  for (auto& subrecorder : *this) subrecorder.apply_sample(function);
}

void Recorder::merge(const Recorder& other) {
  check_not_moved("merge");
  other.check_not_moved("merge");
  TORCH_CHECK_VALUE(source_ == other.source_, kind(), "::merge: cannot take in what a ", other.kind(),
                    " recorded.");
  const auto mine = live();
  const auto theirs = other.live();
  TORCH_CHECK_VALUE(mine.size() == theirs.size(), kind(), "::merge: this recorder has ", mine.size(),
                    " subrecorders, the other one ", theirs.size(),
                    "; both have to be attached to the same modules.");
  std::vector<Record::Data> taken;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    TORCH_CHECK_VALUE(mine[i].second->id.path == theirs[i].second->id.path, kind(), "::merge: subrecorder ",
                      i, " is \"", mine[i].second->id.path, "\" here and \"", theirs[i].second->id.path,
                      "\" there; both have to be attached to the same modules in the same order.");
    taken.push_back(theirs[i].second->data());
    mine[i].second->check_merge(taken.back());
  }
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i].second->merge(taken[i]);
}

bool Recorder::until_recorded(const std::function<void()>& forward) {
  check_not_moved("until_recorded");
  TORCH_CHECK_VALUE(
      source_ != Source::backward_input && source_ != Source::backward_output, kind(),
      "::until_recorded: gradients arrive in backward; only a recorder of forwards can stop one.");
  TORCH_CHECK_VALUE(!empty(), kind(),
                    "::until_recorded: the recorder is attached to nothing, so nothing would stop.");
  auto*& current = detail::awaited_in_this_thread();
  detail::Awaited awaited;
  awaited.outer = current;
  for (const auto& entry : live()) awaited.records.push_back(entry.second);
  struct Restore {
    detail::Awaited*& current;
    detail::Awaited* outer;
    ~Restore() { current = outer; }
  } restore{current, current};
  current = &awaited;
  try {
    forward();
  } catch (const detail::StopForward& stop) {
    if (stop.awaited != &awaited) throw;
    return true;
  }
  return false;
}

std::vector<storage::Entry> Recorder::entries() const {
  check_not_moved("entries");
  TORCH_CHECK_VALUE(
      !store_->spooling(), kind(), "::entries: samples are spooled to \"", options_->spool_directory(),
      "\" and may be more than memory holds; call save with that directory, and storage::load it.");
  std::vector<storage::Entry> entries;
  for (const auto& [index, record] : live()) entries.push_back(record->entry());
  return entries;
}

void Recorder::save(const std::string& directory, const storage::SaveOptions& options) const {
  check_not_moved("save");
  TORCH_CHECK_VALUE(!empty(), kind(),
                    "::save: the recorder is attached to nothing, so there is nothing to save in \"",
                    directory, "\".");
  if (store_->spooling()) {
    TORCH_CHECK_VALUE(store_->spool().is_at(directory), kind(), "::save: samples are spooled to \"",
                      store_->spool().directory(), "\" and not to \"", directory,
                      "\"; save there, and move the directory when the recorder is gone.");
    for (const auto& entry : live()) entry.second->spooled();
    store_->spool().finish();
    return;
  }
  const auto records = live();
  storage::save(
      directory, records.size(), [&](std::size_t i) { return records[i].second->entry(); }, options);
}

void Recorder::flush() {
  check_not_moved("flush");
  if (!store_->spooling()) return;
  for (const auto& entry : live()) entry.second->spooled();
  store_->spool().flush();
}

std::int64_t Recorder::dropped() const noexcept {
  std::int64_t count = 0;
  for (const auto& attached : attached_) count += attached != nullptr ? attached->subrecorder.dropped() : 0;
  return count;
}

void Recorder::snapshot(std::ostream& stream) const {
  check_not_moved("snapshot");
  std::ostringstream payload;
  {
    core::OutputArchive archive(payload);
    const auto records = live();
    archive(kind(), static_cast<std::uint64_t>(records.size()));
    for (const auto& entry : records) entry.second->save(archive);
  }
  detail::write_snapshot(stream, payload.str());
  stream.flush();
  TORCH_CHECK(stream.good(), kind(),
              "::snapshot: the stream could not be written; nothing recorded was lost.");
}

void Recorder::restore(std::istream& stream) {
  check_not_moved("restore");
  std::vector<Record::Data> restored;
  const auto records = live();
  try {
    std::istringstream payload(detail::read_snapshot(kind() + "::restore", stream));
    core::InputArchive archive(payload);
    std::string their_kind;
    std::uint64_t count = 0;
    archive(their_kind, count);
    TORCH_CHECK_VALUE(their_kind == kind(), "restore: the snapshot is of a ", their_kind, ", this is a ",
                      kind(), ".");
    TORCH_CHECK_VALUE(count == records.size(), "restore: the snapshot has ", count,
                      " subrecorders, this recorder has ", records.size(),
                      "; attach to the same modules first.");
    for (const auto& entry : records) restored.push_back(entry.second->load(archive));
  } catch (const cereal::Exception& error) {
    detail::bad_snapshot(kind() + "::restore", error.what());
  }
  for (std::size_t i = 0; i < records.size(); ++i) records[i].second->put(std::move(restored[i]));
}

void Recorder::snapshot(const std::string& file) const {
  check_not_moved("snapshot");  // before a file is made
  storage::detail::write_file(kind() + "::snapshot", file, [&](std::ostream& stream) { snapshot(stream); });
}

void Recorder::restore(const std::string& file) {
  check_not_moved("restore");
  std::ifstream stream(file, std::ios::binary);
  TORCH_CHECK_VALUE(stream.good(), kind(), "::restore: cannot open \"", file, "\": ", std::strerror(errno),
                    ".");
  try {
    restore(stream);
  } catch (c10::Error& error) {
    error.add_context(c10::str("while reading \"", file, "\""));
    throw;
  }
}

Scope::~Scope() {
  hooks::DeferredCompile batch;
  for (std::size_t i = first_; i < recorder_.attached_.size(); ++i) {
    if (recorder_.attached_[i] != nullptr) recorder_.attached_[i]->detach();
  }
}

}  // namespace torchtap::recorders
