#pragma once

// Finds the models of a program by the calls that it makes on them.

#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <typeindex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <torchtap/model/module_ref.hpp>

#include "hidden_pass.hpp"

namespace torch::jit {
struct Method;
}

namespace torchtap::tools::preload {

/// Says that modules of a frozen model of TorchScript are not `done`: recorded, measured.
std::string about_frozen(const std::string& done);

/// A model of the program. Has no share in its modules: it must not live longer because of us.
struct FoundModel : std::enable_shared_from_this<FoundModel> {
  std::string type;
  const torch::nn::Module* address = nullptr;                 // null for TorchScript, and when it is gone
  std::vector<std::weak_ptr<const torch::nn::Module>> lives;  // of which one expires with it, or before
  const c10::ivalue::Object* object = nullptr;                // of TorchScript
  std::optional<c10::weak_intrusive_ptr<c10::ivalue::Object>> script;
  std::int64_t held = 0;  // references to the object that are ours, see `Models::count_held`
  std::string method;
  std::vector<model::ModuleRef> modules;
  std::unordered_map<const torch::nn::Module*, model::ModuleRef> visible;  // whose calls can be seen
  bool over = false;                                                       // it was let go
  bool ran = false;                                                        // so that it stays what it is

  // From its passes so far.
  Pass::Modules called;  // of the visible ones
  /// Calls of the first module, in evaluation and in training mode; 0 until a backward ended a pass.
  std::array<std::int64_t, 2> calls_before_backward{};

  FoundModel() = default;
  virtual ~FoundModel() = default;
  FoundModel(const FoundModel&) = delete;
  FoundModel& operator=(const FoundModel&) = default;
  /// Whether it was destroyed, or changed. Parts of a model that no shared pointer owns may be kept longer
  /// than itself: it is read in its calls only, even if this is false.
  bool gone() const {
    return over || (script.has_value() && static_cast<std::int64_t>(script->use_count()) <= held) ||
           std::any_of(lives.begin(), lives.end(), [](const auto& life) { return life.expired(); });
  }
  /// The modules that the next pass will call, as far as is known.
  Pass::Modules expected() const;
};

/// The models of the program: roots that it asks for parameters or modules, or sets to train or eval, and
/// methods of TorchScript that it calls. A model that is a part of another is not listed itself. Not
/// thread-safe.
class Models {
 public:
  struct Rules {
    std::function<std::shared_ptr<FoundModel>()> make;
    /// Whether calls of the module can be seen. Asked once for each module of a model.
    std::function<bool(const model::ModuleRef&)> sees;
    std::function<void(const std::string&)> note;  ///< gets sentences for the launcher
    std::string done = "recorded";                 ///< what is done to models
    /// Gets each model that ran and that the program destroyed. If it returns false, the model is left as it
    /// is.
    std::function<bool(const std::shared_ptr<FoundModel>&)> gone = [](const auto&) { return true; };
    std::size_t most = 64;  ///< that live at once
  };
  explicit Models(Rules rules) : rules_(std::move(rules)) {}

  /// The program asked for `root`. Returns the model if it was not known, or may have changed; else null.
  std::shared_ptr<FoundModel> found(const torch::nn::Module& root);
  /// The model of a module that is called; null if no living model has it. Notes its type then.
  FoundModel* of(const torch::nn::Module& module);
  /// The model of a method, which is added if it is new; null if there are too many.
  FoundModel* of(const torch::jit::Method& method);
  /// Runs `hooking`, after which hooks in the code of a TorchScript model refer to it, and counts these
  /// references: the model is gone when no others are left. While several threads call models, whose
  /// references come and go meanwhile, nothing is counted, and a hooked model lives as long as its hooks.
  template <class Hooking>
  void count_held(FoundModel& model, Hooking&& hooking) {
    const auto before = static_cast<std::int64_t>(model.script->use_count());
    hooking();
    if (!several_threads_)
      model.held = std::max<std::int64_t>(
          0, model.held + static_cast<std::int64_t>(model.script->use_count()) - before);
  }
  /// The entry of a module that lives; null if there is none.
  const model::ModuleRef* place_of(const torch::nn::Module& module) const;
  /// Lets go of models that the program destroyed.
  void let_go();
  /// In a forked child: the models of the parent that live.
  void inherit(const Models& parent);

  const std::vector<std::shared_ptr<FoundModel>>& all() const noexcept { return all_; }
  const std::string& done() const noexcept { return rules_.done; }
  /// Types of modules that ran and are in no model.
  std::set<std::string> strangers() const;
  /// A sentence about these types; empty if there are none.
  std::string about_strangers() const;

 private:
  struct Place {
    std::shared_ptr<FoundModel> model;
    std::size_t index;
    std::weak_ptr<const torch::nn::Module> owner;
    bool owned = false;
    bool gone() const { return owned ? owner.expired() || model->gone() : model->gone(); }
  };
  bool add(const std::shared_ptr<FoundModel>& found);
  /// Forgets its places.
  void forget(const std::shared_ptr<FoundModel>& found);

  const Rules rules_;
  std::vector<std::shared_ptr<FoundModel>> all_;
  std::unordered_map<const torch::nn::Module*, Place> places_;
  std::vector<std::shared_ptr<FoundModel>> left_out_;  // of TorchScript: there were too many
  std::thread::id script_thread_;                      // that called methods
  bool several_threads_ = false;
  std::unordered_map<std::type_index, std::string> strangers_;
};

}  // namespace torchtap::tools::preload
