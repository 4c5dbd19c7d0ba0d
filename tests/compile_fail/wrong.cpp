// Wrong uses that the compiler has to refuse in words of ours: check.py compiles this file, and looks for
// each text that stands after `says:` among the errors.
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <map>

#include <torchtap/core/sink.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/hooks/register_value.hpp>
#include <torchtap/recorders/options.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/reductions/mean.hpp>
#include <torchtap/reductions/over.hpp>
#include <torchtap/reductions/series.hpp>
#include <torchtap/selectors/selector.hpp>
#include <torchtap/storage/recording.hpp>

namespace {

namespace core = torchtap::core;
namespace reductions = torchtap::reductions;
using torchtap::recorders::RecorderOptions;

/// Reductions but for one member.
struct NoUpdate {
  void merge(const NoUpdate& other);
  std::int64_t count() const;
  core::Results results() const;
};

struct NoMerge {
  void update(const at::Tensor& sample);
  std::int64_t count() const;
  core::Results results() const;
};

struct NoCount {
  void update(const at::Tensor& sample);
  void merge(const NoCount& other);
  core::Results results() const;
};

struct NoResults {
  void update(const at::Tensor& sample);
  void merge(const NoResults& other);
  std::int64_t count() const;
};

struct OtherResults {
  void update(const at::Tensor& sample);
  void merge(const OtherResults& other);
  std::int64_t count() const;
  std::map<std::string, at::Tensor> results() const;
};

struct NoReduction {};

struct UnknownValue {
  at::Tensor tensor;
};

struct NetImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor x) { return x; }
};
TORCH_MODULE(Net);

void wrong() {
  // says: expected a reduction (update, merge, count, results) or a callable at::Tensor(const
  core::make_sink(NoReduction{});
  // says: a reduction needs: void update(const at::Tensor& sample);
  RecorderOptions().reduction(NoUpdate{});
  // says: a reduction needs: void merge(const R& other);
  core::SinkOf<NoMerge> sink(NoMerge{});
  // says: a reduction needs: std::int64_t count() const;
  using Wrong = reductions::Series<reductions::Mean, NoCount>;
  static_cast<void>(sizeof(Wrong));
  // says: a reduction needs: torchtap::core::Results results() const;
  static_cast<void>(sizeof(reductions::Over<NoResults>));
  // says: condition needs a callable bool() or bool(const torchtap::recorders::Sample&)
  RecorderOptions().condition([](int epoch) { return epoch > 3; });
  // says: needs at least one module type
  torchtap::selectors::types<>();
  // says: torchtap::hooks::register_value<T>: specialise torchtap::hooks::Visit<T> first
  torchtap::hooks::register_value<UnknownValue>();
}

/// Options that PyTorch takes in another form, and copies.
void options(torchtap::recorders::ForwardOutput recorder) {
  // says: transform needs a callable that returns what is recorded: at::Tensor(const at::Tensor&)
  RecorderOptions().transform([](const at::Tensor& x) { x.abs(); });
  // says: over takes a list of dimensions: over({0})
  reductions::MeanOptions().over(0);
  // says: over takes a list of dimensions: over({0}, reduction)
  reductions::over(0, reductions::Mean());
  // says: a recorder is not copied: move it, or pass a reference to it
  auto copy = recorder;
}

/// Anybody's first mistakes.
void first(Net net, const NetImpl& constant) {
  namespace hooks = torchtap::hooks;
  torchtap::recorders::ForwardOutput recorder;
  // says: torchtap::reductions::parse("mean") makes one of its name
  torchtap::recorders::ForwardOutput("mean");
  // says: expected a reduction (update, merge, count, results) or a callable at::Tensor(const
  torchtap::recorders::ForwardInput([](const at::Tensor& sample) { return sample; });
  // says: a reduction needs: torchtap::core::Results results() const;
  torchtap::recorders::BackwardOutput(OtherResults{});
  // says: attach needs a selector: one of torchtap::selectors, a string with the path of a module
  recorder.attach(*net, 3);
  // says: attach needs a selector: one of torchtap::selectors, a string with the path of a module
  recorder.attach(*net, 0);
  // says: attach changes how the modules of a model are called: pass a model that is not const
  recorder.attach(constant);
  // says: attach needs a model: a torch::nn::Module&, its holder or std::shared_ptr
  recorder.attach(net.get());
  // says: needs types of modules: holders such as torch::nn::Linear
  torchtap::selectors::types<int>();
  // says: a hook is a callable void(torchtap::hooks::Event& event)
  hooks::attach(*net, hooks::Kind::forward, [](auto& module, auto& input, auto& output) {});
  // says: a hook returns nothing: assign what PyTorch's hooks return
  hooks::attach(*net, hooks::Kind::forward, [](hooks::Event& event) { return event.outputs()[0] * 0; });
  // says: a hook returns nothing: assign what PyTorch's hooks return
  hooks::attach(net, "0", hooks::Kind::forward, [](const auto& event) { return event.outputs()[0] * 0; });
  // says: attach needs a module: a torch::nn::Module&, its holder or std::shared_ptr
  hooks::attach(net.get(), hooks::Kind::forward, [](hooks::Event& event) {});
  // says: attach needs a module: a torch::nn::Module&, its holder or std::shared_ptr
  hooks::attach(constant, hooks::Kind::forward, [](hooks::Event& event) {});
  // says: find needs a model: a torch::nn::Module&, its holder or std::shared_ptr
  torchtap::model::find(constant, "0");
  // says: for a torch::nn::AnyModule call module(any)
  recorder.attach(torch::nn::AnyModule());
}

/// What a component's header has.
void of_components(const torchtap::storage::RecordedEntry& entry) {
  // says: rows() needs #include <torchtap/rows/rows.hpp>, of the component rows
  static_cast<void>(entry.rows());
}

/// What a hook may only read, and 0 for a name.
void refused(Net net, const torchtap::hooks::Event& event, const torchtap::storage::RecordedEntry& entry) {
  namespace hooks = torchtap::hooks;
  torchtap::recorders::ForwardOutput recorder;
  // is refused
  event.outputs()[0] = at::Tensor();
  // is refused
  recorder[0].tensor(0);
  // is refused
  recorder[0].results().at(0);
  // is refused
  entry.tensor(0);
  // is refused
  hooks::attach(net, 0, [](hooks::Event& event) {});
  // is refused
  torchtap::model::find(net, 0);
}

}  // namespace
