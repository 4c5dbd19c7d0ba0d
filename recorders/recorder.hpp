#pragma once

/// Recorders: objects that collect data from many modules.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/model/module_ref.hpp>
#include <torchtap/recorders/kind.hpp>
#include <torchtap/recorders/options.hpp>
#include <torchtap/recorders/subrecorder.hpp>
#include <torchtap/selectors/selector.hpp>
#include <torchtap/selectors/walk.hpp>
#include <torchtap/storage/recording.hpp>

namespace torchtap::recorders {
namespace extend {
struct Records;
}
namespace detail {
class Store;
}  // namespace detail

/// How a recorder attaches to a model.
class TORCHTAP_API AttachOptions {
 public:
  /// A name for the model, with which the paths of its subrecorders begin, here and in files: "teacher.head",
  /// and "teacher" for the root. So one recorder can have several models. Selectors see the model's own
  /// paths.
  AttachOptions& name(std::string model) {
    name_ = std::move(model);
    return *this;
  }
  AttachOptions& name(std::nullptr_t) = delete;
  /// The name; "" unless it was set.
  const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
};

/// Collects one kind of data from many modules, with a subrecorder for each of them. Subrecorder `i` belongs
/// to the i-th module attached, whatever the order in which modules run, and keeps this index when others are
/// removed.
///
/// A call without tensors (of a traced module whose forward returns nothing, such as `StochasticDepth` in
/// evaluation mode) has nothing to record. If one call of `attach`, `modules` or `children` attached to
/// several modules, such calls are left out and counted (`Subrecorder::without_tensors`). If it attached to a
/// single module, they are an error. A value of an unknown type, which may hold tensors, is always an error.
/// Keeping a quantized tensor is an error, too, because files cannot hold it (see `dequantized`).
/// `RecorderOptions::on_error` receives these errors if it is set.
///
/// A sample that does not fit its reduction (another shape or device than the first one's; sparse; nested)
/// does not end the program's forward: it is left out and counted (`Subrecorder::left_out`, `note`).
///
/// Threads. The model may run in any number of threads at any time, also while the recorder is called.
/// - Any number of threads may also make, at the same time, calls that read or change the recorded data:
///   `size`, `samples`, `dropped`, `operator[]`, `at`, `indices`, iteration, `save`, `entries`, `snapshot`,
///   `restore`, `merge`, `reset`, `apply`, `apply_sample`, `flush`, `until_recorded`, and all of
///   `Subrecorder`.
/// - Calls that change which modules there are need the recorder to themselves, with no other call of it at
///   the same time: `attach`, `modules`, `children`, `module`, `replace`, `remove`, `detach`, the end of a
///   `Scope`, moving, assigning and destroying.
/// - `save`, `entries`, `snapshot`, `merge` and `reset` take each subrecorder at one moment, but different
///   subrecorders at different moments: if the model runs meanwhile, the last one may have more samples than
///   the first.
///
/// Lifetimes. The recorder and the model may be destroyed in either order. Destroying the recorder removes
/// its hooks; a hook that is running in another thread ends safely. Tensors and values that were returned
/// stay valid.
///
/// Move-only. Subrecorders stay at their addresses when the recorder is moved. A recorder that was moved from
/// is attached to nothing: it may be destroyed, assigned to, detached, iterated over and asked for its kind,
/// options, size, indices and numbers of samples; every other call throws `c10::ValueError`. Only recorders
/// of the same kind may be assigned.
///
/// Five kinds have the names of torchfunc's recorders. `BackwardParameter` has a subrecorder for each
/// parameter, where the others have one for each module.
class TORCHTAP_API Recorder {
 public:
  Recorder(Recorder&&) noexcept;
  virtual ~Recorder();

  /// Attaches to the modules of `model` that `selector` selects, at any depth, the root included; without a
  /// selector to every module that has a forward. May be called again, on the same or another model (see
  /// `AttachOptions::name`): subrecorders are added. A module that this recorder was detached from goes on
  /// with its subrecorder instead. `model` is whatever a `ModuleView` is made of, among it the modules of a
  /// walk:
  ///
  ///     recorder.attach(net, "layer1.*");
  ///     recorder.attach(selectors::children(net), selectors::indices({2}));
  ///
  /// Throws `c10::ValueError` if a module cannot be reached, nothing is selected, or a TorchScript model was
  /// frozen; nothing is attached then.
  Recorder& attach(const selectors::ModuleView& model, const selectors::Selector& selector = {},
                   const AttachOptions& options = {});
  /// Attaches to every module that has a forward.
  Recorder& attach(const selectors::ModuleView& model, const AttachOptions& options) {
    return attach(model, {}, options);
  }
  /// Attaches to a TorchScript model, around `method`.
  Recorder& attach(const torch::jit::Module& model, const selectors::Selector& selector,
                   const std::string& method) {
    return attach(selectors::modules(model, method), selector);
  }
  /// Attaches to these modules, say from a range-v3 pipeline, each of which has to be reached.
  Recorder& attach(const std::vector<model::ModuleRef>& modules, const AttachOptions& options = {});
  /// Any other arguments: an error of the compiler that says what is wanted.
  template <class Model, class... Rest,
            class = std::enable_if_t<
                !selectors::is_model_v<std::remove_reference_t<Model>> ||
                !std::conjunction_v<std::disjunction<std::is_convertible<Rest, selectors::Selector>,
                                                     std::is_convertible<Rest, std::string>,
                                                     std::is_convertible<Rest, const AttachOptions&>>...>>>
  Recorder& attach(Model&&, Rest&&...) {
    using Given = std::remove_reference_t<Model>;
    static_assert(!(std::is_const_v<Given> && std::is_base_of_v<torch::nn::Module, Given>),
                  "attach changes how the modules of a model are called: pass a model that is not const");
    static_assert(selectors::is_model_v<Given> || std::is_base_of_v<torch::nn::Module, Given>,
                  "attach needs a model: a torch::nn::Module&, its holder or std::shared_ptr (of another "
                  "pointer what it points to), a torch::jit::Module, or modules of a walk; for a "
                  "torch::nn::AnyModule call module(any)");
    static_assert(
        !selectors::is_model_v<Given> || (... && (std::is_convertible_v<Rest, selectors::Selector> ||
                                                  std::is_convertible_v<Rest, std::string> ||
                                                  std::is_convertible_v<Rest, const AttachOptions&>)),
        "attach needs a selector: one of torchtap::selectors, a string with the path of a module "
        "(or a glob), or a callable "
        "bool(const torchtap::model::ModuleRef&)");
    return *this;
  }

  /// Attaches as `attach` does, under torchfunc's name.
  template <class Model, class... Method>
  Recorder& modules(Model&& model, const selectors::Selector& selector = {}, const Method&... method) {
    return attach(std::forward<Model>(model), selector, method...);
  }
  /// Attaches to the direct children of a model that `selector` selects; indices count children. For a
  /// TorchScript model, `method` may be given as for `attach`. torchfunc's name.
  template <class Model, class... Method>
  Recorder& children(Model&& model, const selectors::Selector& selector = {}, const Method&... method) {
    return attach(selectors::children(model, method...), selector);
  }

  /// Attaches to the module in an `AnyModule`, under the path `name`.
  Recorder& module(torch::nn::AnyModule& module, const std::string& name = "");
  /// 0 is no name.
  Recorder& module(torch::nn::AnyModule& module, std::nullptr_t name) = delete;
  /// Attaches subrecorder `index` to `module` instead of its previous module, for example because the program
  /// made it anew. Further samples are added; its path and type stay. Gradients of the last 64 modules that
  /// were replaced are still recorded. Throws `c10::IndexError` as `operator[]` does and `c10::ValueError` if
  /// the module cannot be reached; nothing is changed then.
  Recorder& replace(std::int64_t index, const model::ModuleRef& module);

  /// "ForwardOutput", …
  const std::string& kind() const noexcept;
  /// The options it was made with.
  const RecorderOptions& options() const noexcept;

  /// Subrecorders that were not removed.
  std::int64_t size() const noexcept;
  bool empty() const noexcept { return size() == 0; }
  /// Recorded events, over all subrecorders.
  std::int64_t samples() const noexcept;
  /// The subrecorder of the `index`-th module attached. Throws `c10::IndexError`, also for a removed one.
  Subrecorder& operator[](std::int64_t index);
  /// Access for reading.
  const Subrecorder& operator[](std::int64_t index) const;
  /// The same under another name, as a recording has it.
  Subrecorder& at(std::int64_t index) { return (*this)[index]; }
  /// Access for reading.
  const Subrecorder& at(std::int64_t index) const { return (*this)[index]; }
  /// The subrecorder of the module at `path` (or alias). Throws `c10::IndexError` listing the nearest; if
  /// several models have that path, ask by index.
  Subrecorder& at(const std::string& path);
  /// Access for reading.
  const Subrecorder& at(const std::string& path) const;
  /// The indices of the subrecorders that were not removed, in order.
  std::vector<std::int64_t> indices() const;

  /// Iterates over the subrecorders that were not removed, in order of attachment. A recorder is a range of
  /// range-v3. Removing a subrecorder keeps iterators to others valid; attaching invalidates end iterators.
  template <class Value>
  class BasicIterator;
  using iterator = BasicIterator<Subrecorder>;
  using const_iterator = BasicIterator<const Subrecorder>;
  iterator begin();
  iterator end();
  const_iterator begin() const;
  const_iterator end() const;
  const_iterator cbegin() const;
  const_iterator cend() const;

  /// Removes subrecorder `index` and its hook, and returns its data, like `Subrecorder::value`. The others
  /// keep their indices. If samples are spooled, they stay in the recording, and the returned value is
  /// nothing (`is_none`). Throws `c10::IndexError` as `operator[]` does.
  core::Value remove(std::int64_t index);
  /// Removes all hooks; the recorded data stays.
  void detach() noexcept;
  /// Discards all samples; the hooks stay.
  void reset();
  /// Calls `Subrecorder::apply` of each subrecorder.
  void apply(const std::function<at::Tensor(const at::Tensor&)>& function);
  /// Calls `Subrecorder::apply_sample` of each subrecorder.
  void apply_sample(const std::function<at::Tensor(const at::Tensor&, std::int64_t samples)>& function);

  /// Adds the data of `other`: reductions are merged, kept samples appended, as if this recorder had seen the
  /// samples of `other` after its own. Throws `c10::ValueError` if kinds or paths differ, and `c10::Error` if
  /// two reductions cannot be merged; nothing is changed then. (All merges are tried first; if one fails
  /// later because of a forward that runs at the same time, the ones before it stay.)
  void merge(const Recorder& other);

  /// Runs `forward` and stops it once every subrecorder has recorded in it, or was called without tensors:
  /// nothing after the last recorded module is computed. Returns true if it was stopped, false if it ran to
  /// its end.
  ///
  /// For recorders of forwards, in the thread that calls; throws `c10::ValueError` for gradients. The forward
  /// is stopped by an exception that is not derived from `std::exception`; a `catch (...)` in the model has
  /// to rethrow it. As baukit's `Trace(stop=True)`, but the last module that runs stops the forward, not the
  /// last one listed.
  bool until_recorded(const std::function<void()>& forward);

  /// Writes one `.pt` file per subrecorder and a manifest into `directory`; see `storage::save`. Subrecorders
  /// that never recorded are in the manifest with 0 samples.
  ///
  /// Files are numbered in the order of the remaining subrecorders: after `remove(0)`, `recorder[1]` is entry
  /// 0 of the manifest and its file is `0.pt`. `path` identifies a subrecorder in memory and on disk.
  ///
  /// If samples are spooled (`RecorderOptions::spool`), `directory` has to be the spool's: the recording
  /// there is finished with everything recorded so far, and recording continues. The destructor finishes it,
  /// too, but cannot report errors.
  void save(const std::string& directory, const storage::SaveOptions& options = {}) const;
  /// Writes all spooled samples to disk, so that they survive a crash, and retries writes that failed before.
  /// Throws `c10::Error` if that fails; no sample is lost.
  void flush();
  /// Events dropped because the disk could not keep up or the memory budget was used up, over all
  /// subrecorders.
  std::int64_t dropped() const noexcept;
  /// The entries that `save` writes. Throws `c10::ValueError` if samples are spooled.
  std::vector<storage::Entry> entries() const;

  /// Writes the state of the whole recorder, from which `restore` resumes it, also in another process.
  void snapshot(std::ostream& stream) const;
  /// Resumes from a snapshot of a recorder of the same kind, attached to modules of the same paths, with the
  /// same reduction. Throws `c10::Error` that names the difference or the damage; nothing is changed then.
  void restore(std::istream& stream);
  /// The same to a file, which appears whole or not at all, also after a power failure.
  void snapshot(const std::string& file) const;
  /// The same from a file.
  void restore(const std::string& file);

 protected:
  /// For the kinds.
  Recorder(RecorderKind kind, RecorderOptions options);
  // Protected, because assigning through a `Recorder&` could change its kind.
  Recorder& operator=(Recorder&&) noexcept;

 private:
  friend class Scope;
  friend struct extend::Records;
  struct Attached;
  using AttachedList = std::vector<std::unique_ptr<Attached>>;  // null where removed

  std::vector<std::pair<std::int64_t, detail::Record*>> live() const;
  const AttachedList& attached() const noexcept;
  /// What this recorder has of the module and is detached from it; null if there is nothing.
  Attached* detached_of(const model::ModuleRef& module, const std::string& path) const;
  std::size_t next_attached(std::size_t position) const noexcept;
  void finish_spool() noexcept;
  void check_not_moved(const char* call) const;
  void check_kept(const char* call) const;

  RecorderKind kind_;
  std::shared_ptr<const RecorderOptions> options_;
  // Null in a recorder that was moved from.
  std::shared_ptr<detail::Store> store_;
  std::shared_ptr<AttachedList> attached_;  // shared for scopes, which follow it when the recorder is moved
};

template <class Value>
class Recorder::BasicIterator {
  using Owner = std::conditional_t<std::is_const_v<Value>, const Recorder, Recorder>;

 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = Subrecorder;
  using difference_type = std::ptrdiff_t;
  using pointer = Value*;
  using reference = Value&;

  BasicIterator() = default;
  BasicIterator(Owner* recorder, std::size_t position)
      : recorder_(recorder), position_(recorder->next_attached(position)) {}
  /// Converts an iterator to a const one.
  template <class Other, class = std::enable_if_t<std::is_const_v<Value> && !std::is_const_v<Other>>>
  BasicIterator(const BasicIterator<Other>& other)  // NOLINT: implicit, as for containers
      : recorder_(other.recorder_), position_(other.position_) {}

  reference operator*() const { return (*recorder_)[static_cast<std::int64_t>(position_)]; }
  pointer operator->() const { return &**this; }
  BasicIterator& operator++() {
    position_ = recorder_->next_attached(position_ + 1);
    return *this;
  }
  BasicIterator operator++(int) {
    BasicIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const BasicIterator& a, const BasicIterator& b) noexcept {
    return a.position_ == b.position_;
  }
  friend bool operator!=(const BasicIterator& a, const BasicIterator& b) noexcept { return !(a == b); }

 private:
  template <class Other>
  friend class BasicIterator;

  Owner* recorder_ = nullptr;
  std::size_t position_ = 0;
};

inline Recorder::iterator Recorder::begin() {
  return {this, 0};
}
inline Recorder::iterator Recorder::end() {
  return {this, attached().size()};
}
inline Recorder::const_iterator Recorder::begin() const {
  return {this, 0};
}
inline Recorder::const_iterator Recorder::end() const {
  return {this, attached().size()};
}
inline Recorder::const_iterator Recorder::cbegin() const {
  return begin();
}
inline Recorder::const_iterator Recorder::cend() const {
  return end();
}

/// Removes in its destructor the hooks that a recorder got during the scope. Recorded data and earlier hooks
/// stay.
///
/// Follows the recorder when that is moved, and does nothing if the recorder was destroyed.
class [[nodiscard]] TORCHTAP_API Scope {
 public:
  /// Begins the scope. Throws `c10::ValueError` for a recorder that was moved from.
  [[nodiscard]] explicit Scope(Recorder& recorder);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::weak_ptr<Recorder::AttachedList> attached_;
  std::vector<bool> before_;  // whether each subrecorder was attached
};

/// Defines a recorder that is made from options, from a reduction, or from nothing, and then keeps every
/// sample. For any other argument the compiler names the member of a reduction that it lacks.
#define TORCHTAP_RECORDER(Name, value)                                                                 \
  class TORCHTAP_API Name : public Recorder {                                                          \
    static_assert(std::string_view(traits(RecorderKind::value).name) == #Name);                        \
                                                                                                       \
   public:                                                                                             \
    explicit Name(RecorderOptions options = {}) : Recorder(RecorderKind::value, std::move(options)) {} \
    template <class Reduction,                                                                         \
              class = std::enable_if_t<!std::is_convertible_v<Reduction, RecorderOptions> &&           \
                                       !std::is_base_of_v<Recorder, std::decay_t<Reduction>>>>         \
    explicit Name(Reduction&& reduction)                                                               \
        : Name(RecorderOptions().reduction(std::forward<Reduction>(reduction))) {}                     \
    template <class Other, class = std::enable_if_t<std::is_base_of_v<Recorder, Other>>>               \
    Name(Other&) : Name(RecorderOptions()) { /* NOLINT: implicit, as copying is */                     \
      static_assert(!std::is_base_of_v<Recorder, Other>,                                               \
                    "a recorder is not copied: move it, or pass a reference to it");                   \
    }                                                                                                  \
  }

/// Inputs before `forward`.
TORCHTAP_RECORDER(ForwardPre, forward_pre);
/// Inputs after `forward`, with in-place changes of the module.
TORCHTAP_RECORDER(ForwardInput, forward_input);
/// Outputs of `forward`.
TORCHTAP_RECORDER(ForwardOutput, forward_output);
/// Gradients with respect to inputs, as far as they flow through this module.
TORCHTAP_RECORDER(BackwardInput, backward_input);
/// Gradients with respect to outputs.
TORCHTAP_RECORDER(BackwardOutput, backward_output);
/// Gradients with respect to parameters, as each backward delivers them.
///
/// There is a subrecorder for each parameter, called as in PyTorch's `named_parameters`: "layer1.weight",
/// with the type of the module that holds it. `attach` takes the parameters of the selected modules
/// themselves, not of their submodules; the modules need not be reachable, and modules without a forward
/// count, too. A parameter of several modules (tied weights) has one subrecorder, at the first of them, with
/// its other names as aliases. A module without parameters gives none; it is a `c10::ValueError` if no module
/// has any, or if one belongs to an exported model, in which no gradients are computed.
///
/// A sample is the gradient of one backward, summed over all uses of the parameter, after hooks that were
/// there before (`at::Tensor::register_hook`) and before it is added to `grad()`. So `grad()` is the sum of
/// the samples since `zero_grad`, which the recorder does not see; the gradients of several backwards are
/// several samples. A backward inside of a backward (checkpointing) and one through gradients
/// (`create_graph`) are backwards of their own. Gradients that `torch::autograd::grad` returns are not added
/// to `grad()`: LibTorch 1.13 does not show them, and from 2.0 on they are samples of the parameters that it
/// was asked for.
///
/// A parameter that is frozen (`requires_grad` is false), or that no backward reached, has no samples until
/// that changes; `note()` reports frozen ones. The hook is on the tensor: it stays when that moves to another
/// device or gets other data (`to`, `set_data`). A tensor that is registered in its place is recorded after
/// `replace(index, module)`, which takes the parameter of the same name and no longer records the former one.
/// A sparse gradient is a sample as it is, which files cannot hold and reductions leave out; see
/// `RecorderOptions::transform`.
///
/// `RecorderOptions::slot` other than 0, companions and `until_recorded` are errors. No backward may go
/// through the parameters in another thread while the recorder is attached, detached or destroyed.
TORCHTAP_RECORDER(BackwardParameter, backward_parameter);

#undef TORCHTAP_RECORDER

/// Makes a recorder of a kind.
TORCHTAP_API std::unique_ptr<Recorder> make(RecorderKind kind, RecorderOptions options = {});
/// Makes a recorder of the kind called `kind`, such as "ForwardOutput", as in `Recorder::kind` and manifests.
/// Throws `c10::ValueError` listing the kinds for any other name.
TORCHTAP_API std::unique_ptr<Recorder> make(const std::string& kind, RecorderOptions options = {});

}  // namespace torchtap::recorders
