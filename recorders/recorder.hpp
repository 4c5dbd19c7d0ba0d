#pragma once

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

#include <torchtap/core/api.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/model/detail/has_forward.hpp>
#include <torchtap/model/module_ref.hpp>
#include <torchtap/recorders/detail/kind.hpp>
#include <torchtap/recorders/options.hpp>
#include <torchtap/recorders/subrecorder.hpp>
#include <torchtap/selectors/selector.hpp>
#include <torchtap/storage/recording.hpp>

namespace torchtap::selectors {
class ModuleView;
}

namespace torchtap::recorders {
namespace detail {
class Store;
}

/// Collects one kind of data from many modules; each module attached to is a subrecorder with data of its
/// own. Subrecorder `i` is the i-th module attached, whatever order the modules fire in, and keeps that index
/// when another one is removed.
///
/// A call that hands over no tensors (a traced module whose forward returns nothing, as `StochasticDepth` in
/// evaluation mode does) has nothing to record. Where one call of `attach`, `modules` or `children` attached
/// to several modules, such calls are left out and counted (`Subrecorder::without_tensors`). Where it
/// attached to one module alone, they are an error, as nothing else was asked for. A value that may hold
/// tensors, but of a type that torchtap cannot look into, is an error always; so is a quantized tensor that
/// is to be kept, as files have no form for it (see `dequantized`). `Options::on_error` is given these errors
/// where it is set.
///
/// Threads. The model may run in any number of threads at any time, also while the recorder is called.
/// - Any number of threads may also make, at the same time, calls that read or change what was recorded:
///   `size`, `samples`, `dropped`, `operator[]`, `at`, `indices`, iteration, `save`, `entries`, `snapshot`,
///   `restore`, `merge`, `reset`, `apply`, `apply_sample`, `flush`, `until_recorded`, and all of
///   `Subrecorder`.
/// - Calls that change which modules there are need the recorder to themselves, with no other call of it at
///   the same time: `attach`, `modules`, `children`, `module`, `replace`, `remove`, `detach`, the end of a
///   `Scope`, moving, assigning and destroying.
/// - `save`, `entries`, `snapshot`, `merge` and `reset` take each subrecorder as of one moment, but not all
///   subrecorders as of the same one: if the model runs meanwhile, the last one may have seen samples that
///   the first one has not.
///
/// Lifetimes. The recorder and the model may be destroyed in either order. Destroying the recorder removes
/// its hooks; a forward that another thread is in the middle of may still run one to its end, safely. Tensors
/// and values that were handed out stay as they are.
///
/// Move-only. Subrecorders stay at their addresses when the recorder is moved. A recorder that was moved from
/// is attached to nothing and stays so: it may be destroyed, assigned to, detached, iterated over and asked
/// for its kind, options, size, indices and numbers of samples; every other call throws `c10::ValueError`.
/// Only recorders of the same kind may be assigned.
///
/// The five kinds and their names are those of torchfunc's recorders.
class TORCHTAP_API Recorder {
 public:
  Recorder(Recorder&&) noexcept;
  virtual ~Recorder();

  /// Attaches to the modules of `model` that `selector` wants, at any depth, the root included; without a
  /// selector to every module that has a forward. May be called again, on the same or another model:
  /// subrecorders are added.
  ///
  /// Throws `c10::ValueError` if a module cannot be reached or nothing is selected; nothing is attached then.
  Recorder& attach(torch::nn::Module& model, const selectors::Selector& selector = {});
  /// The same for a TorchScript model. `method` is the one that is recorded; "forward" includes the copies
  /// that tracing makes of it for a module that is called several times. Also throws `c10::ValueError` for a
  /// model that was frozen.
  Recorder& attach(const torch::jit::Module& model, const selectors::Selector& selector = {},
                   const std::string& method = "forward");
  /// The same for the modules of a walk:
  ///
  ///     recorder.attach(selectors::children(net), selectors::indices({2}));
  Recorder& attach(const selectors::ModuleView& modules, const selectors::Selector& selector = {});
  /// Attaches to these modules, say from a range-v3 pipeline.
  Recorder& attach(const std::vector<model::ModuleRef>& modules);
  /// Where the model's own type is known, the compiler tells whether it has a `forward`: a root that only
  /// holds other networks has none and is left out.
  template <class Model, class = std::enable_if_t<std::is_base_of_v<torch::nn::Module, Model>>>
  Recorder& attach(Model& model, const selectors::Selector& selector = {}) {
    model::detail::note_model<Model>();
    return attach(static_cast<torch::nn::Module&>(model), selector);
  }
  /// The same for what a holder (`torch::nn::Sequential`, a `TORCH_MODULE`) holds.
  template <class Holder, class = typename Holder::ContainedType>
  Recorder& attach(const Holder& model, const selectors::Selector& selector = {}) {
    return attach(*model.ptr(), selector);
  }

  /// The same as `attach(model, selector)`, under the name that torchfunc's recorders have for it.
  Recorder& modules(torch::nn::Module& model, const selectors::Selector& selector = {});
  /// The same for a TorchScript model.
  Recorder& modules(const torch::jit::Module& model, const selectors::Selector& selector = {},
                    const std::string& method = "forward");
  /// The same for a model of known type.
  template <class Model, class = std::enable_if_t<std::is_base_of_v<torch::nn::Module, Model>>>
  Recorder& modules(Model& model, const selectors::Selector& selector = {}) {
    model::detail::note_model<Model>();
    return modules(static_cast<torch::nn::Module&>(model), selector);
  }
  /// The same for what a holder holds.
  template <class Holder, class = typename Holder::ContainedType>
  Recorder& modules(const Holder& model, const selectors::Selector& selector = {}) {
    return modules(*model.ptr(), selector);
  }

  /// Attaches to the direct children of `model` that `selector` wants; indices count children. torchfunc's
  /// name for it.
  Recorder& children(torch::nn::Module& model, const selectors::Selector& selector = {});
  /// The same for the direct children of a TorchScript model.
  Recorder& children(const torch::jit::Module& model, const selectors::Selector& selector = {},
                     const std::string& method = "forward");
  /// The same for what a holder holds.
  template <class Holder, class = typename Holder::ContainedType>
  Recorder& children(const Holder& model, const selectors::Selector& selector = {}) {
    return children(*model.ptr(), selector);
  }

  /// Attaches to what an `AnyModule` holds, under the path `name`.
  Recorder& module(torch::nn::AnyModule& module, const std::string& name = "");
  /// Has `module` take the place of the one that subrecorder `index` was attached to, say because that one
  /// was destroyed and made anew: what it does is recorded after what is there, under the path and type that
  /// the subrecorder has. Gradients of the last 64 modules that were replaced are still recorded. Throws
  /// `c10::IndexError` as `operator[]` does and `c10::ValueError` if the module cannot be reached; nothing is
  /// changed then.
  Recorder& replace(std::int64_t index, const model::ModuleRef& module);

  /// "ForwardOutput", …
  const std::string& kind() const noexcept;
  /// What it was made with.
  const Options& options() const noexcept;

  /// Subrecorders that were not removed.
  std::int64_t size() const noexcept;
  bool empty() const noexcept { return size() == 0; }
  /// Recorded events, over all subrecorders.
  std::int64_t samples() const noexcept;
  /// The subrecorder of the `index`-th module attached. Throws `c10::IndexError`, also for one that was
  /// removed.
  Subrecorder& operator[](std::int64_t index);
  /// The same, for reading.
  const Subrecorder& operator[](std::int64_t index) const;
  /// The subrecorder of the module at `path` (or alias). Throws `c10::IndexError` listing the nearest; if
  /// several models have that path, ask by index.
  Subrecorder& at(const std::string& path);
  /// The same, for reading.
  const Subrecorder& at(const std::string& path) const;
  /// The indices of the subrecorders that were not removed, in order.
  std::vector<std::int64_t> indices() const;

  /// Iterates over the subrecorders that were not removed, in order of attachment. A recorder is a range of
  /// range-v3. Removing a subrecorder leaves iterators to others valid; attaching makes former ends invalid.
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

  /// Takes the hook off module `index`, forgets the subrecorder and returns what it had recorded, as
  /// `Subrecorder::value` does. The others keep their indices. Where samples are spooled they stay in the
  /// recording, and the value returned is nothing (`is_none`). Throws `c10::IndexError` as `operator[]` does.
  core::Value remove(std::int64_t index);
  /// Takes all hooks off; what was recorded stays.
  void detach() noexcept;
  /// Forgets all samples; the hooks stay.
  void reset();
  /// `Subrecorder::apply` and `apply_sample` for each.
  void apply(const std::function<at::Tensor(const at::Tensor&)>& function);
  /// `Subrecorder::apply_sample` for each.
  void apply_sample(const std::function<at::Tensor(const at::Tensor&, std::int64_t samples)>& function);

  /// Adds what `other` recorded, by path: reductions are merged, kept samples appended. As if this recorder
  /// had seen what `other` saw, after its own. Throws `c10::ValueError` if kinds or paths differ, and
  /// `c10::Error` if two reductions cannot be merged; nothing is changed then. (All are tried first; if
  /// forwards that run meanwhile make one impossible after that, the ones before it stay merged.)
  void merge(const Recorder& other);

  /// Runs `forward` and stops it once every subrecorder has recorded in it, or was called without tensors:
  /// what comes after the last module of interest is not computed. True if it was stopped, false if it ran to
  /// its end.
  ///
  /// For recorders of forwards, in the thread that calls; throws `c10::ValueError` for gradients. It stops by
  /// an exception that is not derived from `std::exception`: a `catch (...)` in the model that does not throw
  /// it on keeps the forward running. The idea is baukit's `Trace(stop=True)`; here it is the last module
  /// that runs, not the last one listed, that stops.
  bool until_recorded(const std::function<void()>& forward);

  /// Writes one `.pt` file a subrecorder and a manifest into `directory`; see `storage::save`. Subrecorders
  /// that never recorded are in the manifest with 0 samples.
  ///
  /// Files are numbered in the order of the subrecorders that are left: after `remove(0)`, `recorder[1]` is
  /// entry 0 of the manifest and its file is `0.pt`. What belongs together in memory and on disk is `path`.
  ///
  /// If samples are spooled (`Options::spool`), `directory` has to be where they are: the recording there is
  /// finished, with everything recorded so far, and recording goes on. It is also finished when the recorder
  /// is destroyed, but errors cannot be reported then.
  void save(const std::string& directory, const storage::SaveOptions& options = {}) const;
  /// Returns when all samples that are spooled are safe on disk: what was recorded so far survives a crash.
  /// Tries again what failed before. Throws `c10::Error` if it fails; nothing is lost then.
  void flush();
  /// Events left out because the disk could not keep up or the memory budget was used up, over all
  /// subrecorders.
  std::int64_t dropped() const noexcept;
  /// What `save` writes. Throws `c10::ValueError` if samples are spooled.
  std::vector<storage::Entry> entries() const;

  /// Writes the state of the whole recorder with cereal, to go on in another process.
  void snapshot(std::ostream& stream) const;
  /// Goes on from a snapshot of a recorder of the same kind, attached to modules of the same paths, with the
  /// same reduction. Throws `c10::Error` that names what differs or is damaged; nothing is changed then.
  void restore(std::istream& stream);
  /// The same with a file, which appears whole or not at all, also after a power failure.
  void snapshot(const std::string& file) const;
  /// The same with a file.
  void restore(const std::string& file);

 protected:
  /// For the kinds.
  Recorder(detail::Kind kind, Options options);
  // For the kinds: through a `Recorder&`, one kind would become another.
  Recorder& operator=(Recorder&&) noexcept;

 private:
  friend class Scope;
  struct Attached;
  using AttachedList = std::vector<std::unique_ptr<Attached>>;  // null where removed

  std::vector<std::pair<std::int64_t, detail::Record*>> live() const;
  const AttachedList& attached() const noexcept;
  std::size_t next_attached(std::size_t position) const noexcept;
  void finish_spool() noexcept;
  void check_not_moved(const char* call) const;

  detail::Kind kind_;
  std::shared_ptr<const Options> options_;
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
  /// An iterator is also a const one.
  template <class Other, class = std::enable_if_t<std::is_const_v<Value> && !std::is_const_v<Other>>>
  BasicIterator(const BasicIterator<Other>& other)  // NOLINT: as of containers
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

/// Takes off, at its end, the hooks that a recorder got while the scope lasted, exceptions included. What was
/// recorded stays with the recorder, and so do hooks from before.
///
/// Follows the modules when the recorder is moved to another one, and does nothing if they are gone with
/// their recorder by then.
class [[nodiscard]] TORCHTAP_API Scope {
 public:
  /// Begins: the hooks that the recorder gets from now on are taken off at the end. Throws `c10::ValueError`
  /// for a recorder that was moved from.
  explicit Scope(Recorder& recorder);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::weak_ptr<Recorder::AttachedList> attached_;
  std::size_t first_;
};

/// Defines a recorder that is made from options, from a reduction alone, or from nothing: every sample is
/// kept.
#define TORCHTAP_RECORDER(Name, value)                                                                      \
  class TORCHTAP_API Name : public Recorder {                                                               \
    static_assert(std::string_view(detail::traits(detail::Kind::value).name) == #Name);                     \
                                                                                                            \
   public:                                                                                                  \
    explicit Name(Options options = {}) : Recorder(detail::Kind::value, std::move(options)) {}              \
    template <class Reduction,                                                                              \
              class = std::enable_if_t<core::is_reduction_v<Reduction> || core::is_fold_v<Reduction>>>      \
    explicit Name(Reduction&& reduction) : Name(Options().reduction(std::forward<Reduction>(reduction))) {} \
  }

/// Inputs before `forward`.
TORCHTAP_RECORDER(ForwardPre, forward_pre);
/// Inputs as they are after `forward`: what the module changed in place is seen.
TORCHTAP_RECORDER(ForwardInput, forward_input);
/// Outputs of `forward`.
TORCHTAP_RECORDER(ForwardOutput, forward_output);
/// Gradients with respect to inputs, counting what flowed through this module only.
TORCHTAP_RECORDER(BackwardInput, backward_input);
/// Gradients with respect to outputs.
TORCHTAP_RECORDER(BackwardOutput, backward_output);

#undef TORCHTAP_RECORDER

/// A recorder of the kind that is called so, "ForwardOutput", as `Recorder::kind` and manifests say it.
/// Throws `c10::ValueError` that lists the kinds.
TORCHTAP_API std::unique_ptr<Recorder> make(const std::string& kind, Options options = {});

}  // namespace torchtap::recorders
