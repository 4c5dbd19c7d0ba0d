// Recorders whose stream is a file of fingerprints.
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

#include <torchtap/base/capture.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/model/held.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/operations/scope.hpp>
#include <torchtap/recorders/recorders.hpp>
#include <torchtap/version.hpp>
#include <torchtap/views/compare/detail/prints_file.hpp>
#include <torchtap/views/compare/fingerprint.hpp>
#include <torchtap/views/compare/fingerprints.hpp>

namespace torchtap::views::compare {
namespace {

constexpr std::string_view kResult = "fingerprint";

/// Inputs are seen before the call, which may overwrite them.
frames::Kind kind_of(recorders::RecorderKind recorder) {
  return recorder == recorders::RecorderKind::forward_pre ? frames::Kind::forward_input
                                                          : frames::kind_of(recorders::name_of(recorder));
}

/// The first frame of a file.
std::string header_text() {
  std::ifstream file("/proc/self/cmdline");
  std::string command{std::istreambuf_iterator<char>(file), {}};
  while (!command.empty() && command.back() == '\0') command.pop_back();
  std::replace_if(
      command.begin(), command.end(), [](char byte) { return byte == '\0' || byte == '\n' || byte == '\t'; },
      ' ');
  return c10::str("language\tc++\ncommand\t", command, "\ntorch\t", TORCH_VERSION, "\ntorchtap\t",
                  TORCHTAP_VERSION, "\nthreads\t", at::get_num_threads(), "\n");
}

/// Makes the frame's data of the tensor, which have to live until it is written: its fingerprint, or itself.
/// Without data, and with the reason, if the tensor has no fingerprint.
class Data {
 public:
  void fingerprint_of(const at::Tensor& tensor, frames::Frame& frame) {
    if (!tensor.defined()) return nothing(frame);
    frame.result = kResult;
    try {
      print_ = compare::fingerprint(tensor);
      frame.dims = 1;
      frame.sizes[0] = sizeof print_;
      frame.data = &print_;
      frame.data_bytes = sizeof print_;
    } catch (const c10::Error& error) {
      without(frame, error);
    }
  }

  void whole(const at::Tensor& tensor, frames::Frame& frame) {
    if (!tensor.defined()) return nothing(frame);
    try {
      TORCH_CHECK_VALUE(tensor.dim() <= static_cast<std::int64_t>(frames::kMostDims), "the tensor has ",
                        tensor.dim(), " dimensions");
      base::expect_no_capture(tensor.device(), "compare");
      tensor_ = tensor.is_quantized() ? tensor.dequantize() : tensor.detach();
      tensor_ = tensor_.to(at::kCPU).resolve_conj().resolve_neg().contiguous();
      frame.dtype = static_cast<std::uint8_t>(tensor_.scalar_type());
      frame.dims = static_cast<std::uint8_t>(tensor_.dim());
      std::copy(tensor_.sizes().begin(), tensor_.sizes().end(), frame.sizes.begin());
      frame.data = tensor_.data_ptr();
      frame.data_bytes = tensor_.nbytes();
    } catch (const c10::Error& error) {
      without(frame, error);
    }
  }

 private:
  /// An undefined tensor is None in Python.
  static void nothing(frames::Frame& frame) {
    frame.result = "value";
    frame.text = "None";
    frame.without_data = true;
  }

  void without(frames::Frame& frame, const c10::Error& error) {
    why_ = error.what_without_backtrace();
    frame.without_data = true;
    frame.text = why_;
  }

  Fingerprint print_{};
  at::Tensor tensor_;
  std::string why_;
};

}  // namespace

namespace detail {

/// Writes fingerprints of the arguments and results of each operation of this thread while it lives: inside
/// of calls that `FingerprintsOptions::values` names.
class Inside {
 public:
  Inside(PrintsFile& file, frames::Frame call)
      : file_(file),
        path_(call.path),
        call_(call),
        scope_([this](operations::Event& event) { run(event); }, operations::Level::leaf) {}

  bool is(const CallId& call) const {
    return path_ == call.path && call_.sample == static_cast<std::uint64_t>(call.sample);
  }

 private:
  void run(operations::Event& event) {
    write(frames::Kind::operation_argument, event.name(), event.arguments());
    event.run();
    write(frames::Kind::operation_result, event.name(), event.results());
    ++call_.call;
  }

  void write(frames::Kind kind, const std::string& name, const operations::Values& values) {
    std::uint16_t slot = 0;
    for (const c10::IValue& value : values) {
      operations::for_each_tensor(value, [&](const at::Tensor& tensor) {
        frames::Frame frame = call_;
        frame.kind = kind;
        frame.path = path_;
        frame.type = name;
        frame.slot = slot++;
        Data data;
        data.fingerprint_of(tensor, frame);
        file_.write(frame);
      });
    }
  }

  PrintsFile& file_;
  const std::string path_;
  frames::Frame call_;  // whose number of the call counts operations
  const operations::Scope scope_;
};

}  // namespace detail

/// Also the stream of the recorders.
struct Fingerprints::State final : recorders::Stream, std::enable_shared_from_this<State> {
  class Source;

  template <class Where>
  State(Where where, FingerprintsOptions its) : options(std::move(its)), file(std::move(where)) {
    write_header(header_text());
  }

  void write_header(const std::string& text) {
    frames::Frame frame;
    frame.kind = frames::Kind::header;
    frame.without_data = true;
    frame.text = text;
    frame.rank = static_cast<std::uint32_t>(options.rank());
    file.write(frame);
    ++headers;
  }

  std::shared_ptr<recorders::StreamSource> source(const storage::EntryId& id) override;

  /// The number of this thread, from 0.
  std::uint32_t thread() {
    const std::lock_guard lock(mutex);
    return threads.emplace(std::this_thread::get_id(), static_cast<std::uint32_t>(threads.size()))
        .first->second;
  }

  /// Writes the weights of the models that were attached, when the first of their modules is called.
  void begin() {
    std::vector<std::vector<model::ModuleRef>> models;
    {
      const std::lock_guard lock(mutex);
      if (waiting.empty()) return;
      models.swap(waiting);
    }
    for (const auto& modules : models) write_weights(modules);
  }

  void write_weights(const std::vector<model::ModuleRef>& modules) {
    if (!options.values().empty()) return;
    for (const model::ModuleRef& module : modules) {
      for (const model::Held& held : model::held_by(module)) {
        const std::string path = module.path() + (module.path().empty() ? "" : ".") + held.name;
        frames::Frame frame;
        frame.kind = held.buffer ? frames::Kind::buffer : frames::Kind::parameter;
        frame.path = path;
        frame.type = module.type();
        frame.rank = static_cast<std::uint32_t>(options.rank());
        const base::RecordingMode quiet;
        Data data;
        data.fingerprint_of(held.tensor, frame);
        file.write(frame);
      }
    }
  }

  /// A recorded call begins or ends.
  void watch(const frames::Frame& call) {
    if (call.slot != 0) return;
    std::vector<std::unique_ptr<detail::Inside>>* open = nullptr;
    {
      const std::lock_guard lock(mutex);
      open = &inside[call.thread];  // of this thread alone
    }
    if (call.kind == frames::Kind::forward_input) {
      frames::Frame within;
      within.path = call.path;
      within.sample = call.sample;
      within.thread = call.thread;
      within.rank = call.rank;
      open->push_back(std::make_unique<detail::Inside>(file, within));
      return;
    }
    const CallId id{std::string(call.path), static_cast<std::int64_t>(call.sample)};
    const auto begun = [&](const auto& one) { return one->is(id); };
    if (std::none_of(open->begin(), open->end(), begun)) return;
    bool last = false;  // those behind it were ended by exceptions
    while (!last) {
      last = begun(open->back());
      open->pop_back();
    }
  }

  const FingerprintsOptions options;
  detail::PrintsFile file;
  std::mutex mutex;
  std::unordered_map<std::thread::id, std::uint32_t> threads;
  std::vector<std::vector<model::ModuleRef>> waiting;  // whose weights are not written yet
  std::set<std::pair<frames::Kind, std::string>> noted;
  std::int64_t headers = 0;                     // frames that are no tensors
  std::atomic<std::int64_t> later_forwards{0};  // of the module with the most
  std::map<std::uint32_t, std::vector<std::unique_ptr<detail::Inside>>> inside;  // by thread
  std::vector<std::unique_ptr<recorders::Recorder>> recorders;  // hold this as their stream until `detach`

  /// Says why the tensors of a call are not among the fingerprints, once for each module and kind.
  void note(frames::Kind kind, const std::string& path, const std::exception_ptr& error) {
    {
      const std::lock_guard lock(mutex);
      if (!noted.emplace(kind, path).second) return;
    }
    frames::Frame frame;
    frame.kind = kind;
    frame.path = path;
    frame.result = kResult;
    frame.thread = thread();
    frame.rank = static_cast<std::uint32_t>(options.rank());
    frame.without_data = true;
    try {
      std::rethrow_exception(error);
    } catch (const c10::Error& known) {
      frame.text = known.what_without_backtrace();
      file.write(frame);
    } catch (const std::exception& known) {
      frame.text = known.what();
      file.write(frame);
    }
  }

  /// Says at the end what the file lacks.
  void end() {
    const std::int64_t later = later_forwards.exchange(0);
    if (later == 0 || !options.values().empty()) return;
    write_header("later_forwards\t" + std::to_string(later) + "\n");
  }

  void detach() {
    recorders.clear();
    const std::lock_guard lock(mutex);
    waiting.clear();
  }
};

/// One module's inputs or outputs.
class Fingerprints::State::Source final : public recorders::StreamSource {
 public:
  Source(std::shared_ptr<State> state, const storage::EntryId& id)
      : state_(std::move(state)), id_(id), kind_(kind_of(recorders::kind_of(id.kind))) {}

  bool wanted() const noexcept override { return true; }
  std::uint64_t receivers(std::int64_t /*event*/) noexcept override { return 1; }

  void send(const at::Tensor& tensor, const recorders::StreamSample& sample,
            std::uint64_t /*receivers*/) override {
    state_->begin();
    const std::uint32_t thread = state_->thread();
    const std::int64_t number = number_of(thread, sample);
    if (number < 0) return;
    frames::Frame frame;
    frame.kind = kind_;
    frame.path = id_.path;
    frame.type = id_.type;
    frame.sample = static_cast<std::uint64_t>(number);
    frame.call = static_cast<std::uint64_t>(sample.call);
    frame.slot = static_cast<std::uint16_t>(std::min<std::int64_t>(sample.slot, UINT16_MAX));
    frame.thread = thread;
    frame.rank = static_cast<std::uint32_t>(state_->options.rank());
    const auto& values = state_->options.values();
    if (!values.empty() &&
        std::find(values.begin(), values.end(), CallId{id_.path, number}) == values.end()) {
      return;
    }
    // Outside of the mode below, which restores what it finds.
    if (!values.empty() && kind_ == frames::Kind::forward_output) state_->watch(frame);
    {
      const base::RecordingMode quiet;
      Data data;
      if (values.empty()) {
        data.fingerprint_of(tensor, frame);
      } else {
        data.whole(tensor, frame);
      }
      state_->file.write(frame, kind_ == frames::Kind::forward_output);
    }
    if (!values.empty() && kind_ == frames::Kind::forward_input) state_->watch(frame);
  }

 private:
  /// In one thread.
  struct Counts {
    std::int64_t forwards = 0;  // begun
    std::int64_t recorded = 0;  // calls
    std::int64_t event = -1;    // the last
    bool wanted = false;
  };

  /// The number of the call among its thread's recorded calls; -1 if this one is not recorded.
  std::int64_t number_of(std::uint32_t thread, const recorders::StreamSample& sample) {
    const std::lock_guard lock(mutex_);
    Counts& counts = counts_[thread];
    if (counts.event != sample.sample) {  // the first tensor of an event
      counts.event = sample.sample;
      if (sample.call == 0) ++counts.forwards;
      const auto& options = state_->options;
      const std::int64_t forward = counts.forwards - 1 - options.skip();
      counts.wanted = forward >= 0 && (options.forwards() == 0 || forward < options.forwards());
      if (counts.wanted) ++counts.recorded;
      const std::int64_t later = options.forwards() == 0 ? 0 : forward + 1 - options.forwards();
      std::int64_t most = state_->later_forwards;
      while (later > most && !state_->later_forwards.compare_exchange_weak(most, later)) {
      }
    }
    return counts.wanted ? counts.recorded - 1 : -1;
  }

  const std::shared_ptr<State> state_;
  const storage::EntryId id_;
  const frames::Kind kind_;
  std::mutex mutex_;
  std::unordered_map<std::uint32_t, Counts> counts_;
};

std::shared_ptr<recorders::StreamSource> Fingerprints::State::source(const storage::EntryId& id) {
  return std::make_shared<Source>(shared_from_this(), id);
}

namespace {

FingerprintsOptions checked(FingerprintsOptions options) {
  TORCH_CHECK_VALUE(options.forwards() >= 0 && options.skip() >= 0 && options.rank() >= 0,
                    "views::compare::Fingerprints: forwards(", options.forwards(), "), skip(", options.skip(),
                    ") and rank(", options.rank(), ") have to be 0 or more.");
  return options;
}

}  // namespace

Fingerprints::Fingerprints(const std::string& file, FingerprintsOptions options)
    : state_(std::make_shared<State>(file, checked(std::move(options)))) {}

Fingerprints::Fingerprints(std::function<void(const char*, std::size_t)> write, FingerprintsOptions options) {
  TORCH_CHECK_VALUE(write, "views::compare::Fingerprints: the function that gets the bytes is empty.");
  state_ = std::make_shared<State>(std::move(write), checked(std::move(options)));
}

Fingerprints::Fingerprints(Fingerprints&&) noexcept = default;

Fingerprints& Fingerprints::operator=(Fingerprints&& other) noexcept {
  if (state_ != nullptr) state_->detach(), state_->end();
  state_ = std::move(other.state_);
  return *this;
}

Fingerprints::~Fingerprints() {
  if (state_ != nullptr) state_->detach(), state_->end();
}

Fingerprints& Fingerprints::attach(const selectors::ModuleView& model) {
  const std::vector<model::ModuleRef>& modules = model.vector();
  std::vector<model::ModuleRef> reachable;
  for (const model::ModuleRef& module : modules) {
    if (module.has_forward() && module.reachable()) reachable.push_back(module);
  }
  if (reachable.empty()) {
    for (const model::ModuleRef& module : modules) {
      if (module.has_forward()) reachable.push_back(module);
    }
  }
  TORCH_CHECK_VALUE(!reachable.empty(), "views::compare::Fingerprints::attach: no module has a forward.");
  hooks::DeferredCompile batch;
  std::vector<std::unique_ptr<recorders::Recorder>> both;
  for (const auto kind : {recorders::RecorderKind::forward_pre, recorders::RecorderKind::forward_output}) {
    recorders::RecorderOptions options;
    options.all_tensors().stream(state_).on_error(
        [state = state_.get(), kind = kind_of(kind)](
            const std::string& path, const std::exception_ptr& error) { state->note(kind, path, error); });
    both.push_back(recorders::make(kind, std::move(options)));
    both.back()->attach(reachable);
  }
  batch.commit();
  for (auto& recorder : both) state_->recorders.push_back(std::move(recorder));
  const std::lock_guard lock(state_->mutex);
  state_->waiting.push_back(modules);
  return *this;
}

std::shared_ptr<recorders::Stream> Fingerprints::stream() const {
  return state_;
}

std::int64_t Fingerprints::written() const {
  return state_->file.frames() - state_->headers;
}

void Fingerprints::write_weights(const std::vector<model::ModuleRef>& modules) {
  state_->write_weights(modules);
}

void Fingerprints::close() {
  state_->detach();
  state_->end();
  state_->file.close();
}

}  // namespace torchtap::views::compare
