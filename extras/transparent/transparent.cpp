#include <dlfcn.h>
#include <torch/nn/modules/container/functional.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <typeindex>
#include <unordered_map>

#include <torchtap/base/error.hpp>
#include <torchtap/hooks/attach.hpp>
#include <torchtap/hooks/extend/own_calls.hpp>
#include <torchtap/model/extend/interposed_calls.hpp>
#include <torchtap/transparent/detail/intercept.hpp>
#include <torchtap/transparent/detail/norms.hpp>
#include <torchtap/transparent/detail/types.hpp>
#include <torchtap/transparent/transparent.hpp>

namespace torchtap::transparent {
namespace {

using model::extend::Obstacle;

std::atomic<bool> norms_are_compiled_in{false};

std::string file_of(const void* code) {
  Dl_info info;
  return code != nullptr && dladdr(code, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname
                                                                                  : "the program itself";
}

/// Explains why calls of a user-defined type are not seen and how to change that.
Obstacle why_not_followed(const std::string& type, std::optional<model::extend::Following> following) {
  using model::extend::Following;
  if (!following.has_value()) {
    return {"no holder of its type was seen",
            c10::str("no holder of ", type,
                     " was made in a part of the program that is linked with torchtap::transparent. Declare "
                     "the type with TORCH_MODULE (a class template: with a class of your own that derives "
                     "from torch::nn::ModuleHolder), and make the module with that holder instead of "
                     "std::make_shared.")};
  }
  switch (*following) {
    case Following::yes:
      return {"not made by its holder",
              "its holder did not make it in a part of the program that is linked with "
              "torchtap::transparent, but std::make_shared, new, or a library that was compiled without; so "
              "it may be called where no call is seen. Make it with its holder, as in `Name "
              "module(arguments);` for TORCH_MODULE(Name), and link torchtap::transparent where it is made."};
    case Following::incomplete:
      return {"its class was defined too late",
              c10::str("the class was not yet defined where its holder was first used. Define ", type,
                       " before the first function that uses its holder.")};
    case Following::final_class:
      return {"its class is final",
              c10::str("the class is final, or its destructor is not public: its holder calls modules "
                       "through a class derived from ",
                       type, ". Remove `final`.")};
    case Following::no_forward:
      return {"no forward", "it has no forward."};
    case Following::no_single_forward:
      return {"its forward is overloaded or a template",
              c10::str("its holder cannot tell which forward to follow: ", type,
                       "::forward is overloaded, a template, static, private, or not a function. Give the "
                       "class exactly one public member function forward.")};
    case Following::unusual_forward:
      return {"its forward has qualifiers",
              c10::str(type,
                       "::forward is volatile, `&&` or takes C variadic arguments, which its holder cannot "
                       "pass on. Declare it without.")};
    case Following::returns_reference:
      return {"its forward returns a reference",
              c10::str(type,
                       "::forward returns a reference, which may refer to an argument that hooks have "
                       "replaced. Return a value.")};
    case Following::immovable_values:
      return {"values that cannot be moved",
              c10::str(type,
                       "::forward takes or returns by value a type that is not defined where forward is "
                       "called, that can be neither copied nor moved, or that has no move constructor and no "
                       "torchtap::hooks::Visit, so that torchtap does not copy it. Pass it by reference.")};
    case Following::sequential:
      return {"no entries", "a Sequential is hooked through its entries; add them first."};
  }
  return {};
}

/// Asks the dynamic linker whose definitions the program calls.
class Linkage final : public model::extend::InterposedCalls {
 public:
  static const Linkage& instance() {
    static const auto* linkage = new Linkage;
    return *linkage;
  }

  bool cover(const torch::nn::Module& module) const override {
    const auto found = types().find(typeid(module));
    return found != types().end() && found->second.empty() &&
           (norms_are_compiled_in || norms_.count(typeid(module)) == 0);
  }

  Obstacle why_not(const torch::nn::Module& module) const override {
    const std::string type = c10::demangle(typeid(module).name());
    if (module.weak_from_this().expired()) {
      const bool has_holder =
          types().count(typeid(module)) != 0 || model::extend::noted_type(typeid(module)).has_value();
      return {"no std::shared_ptr owns it",
              c10::str("no std::shared_ptr owns it, so torchtap::transparent cannot tell when it dies; ",
                       has_holder ? "make it with its holder."
                                  : "declare a holder of its type, `TORCH_MODULE_IMPL(Name, " + type +
                                        ");`, and make it with that, `Name module(arguments);`.")};
    }
    if (const auto found = types().find(typeid(module)); found != types().end()) {
      if (!found->second.empty()) return {"called past torchtap", found->second};
      return {"compiled in without torchtap::transparent",
              "LibTorch compiles the forward of " + type +
                  " into the program, and no part of this program was compiled with torchtap::transparent; "
                  "link torchtap::transparent to the CMake target that calls this module, or make the module "
                  "an entry of a torch::nn::Sequential."};
    }
    Obstacle obstacle = why_not_followed(type, model::extend::noted_type(typeid(module)));
    obstacle.text += " Or make it an entry of a torch::nn::Sequential.";
    return obstacle;
  }

  const std::unordered_map<std::type_index, std::string>& types() const noexcept { return types_; }
  bool is_norm(std::type_index type) const { return norms_.count(type) != 0; }

 private:
  Linkage() {
    for (const auto& definition : detail::symbol_definitions()) add(definition);
    for (const auto& definition : detail::entry_point_definitions()) add(definition);
    for (const auto& definition : detail::norm_definitions()) {
      norms_.emplace(*definition.type, true);
      add(definition);
    }
  }

  void add(const detail::Definition& definition) {
    std::string& problem = types_[*definition.type];
    const char* symbol = detail::symbol_of(definition.function);
    const void* called = symbol == nullptr ? nullptr : dlsym(RTLD_DEFAULT, symbol);
    const std::string type = c10::demangle(definition.type->name());
    if (called != definition.function) {
      problem = c10::str("torchtap::transparent is loaded, but the program calls ", type, "::forward in ",
                         file_of(called),
                         ". Link torchtap::transparent to the program itself, before LibTorch, or start the "
                         "program with `torchtap preload`. Calls of a statically linked LibTorch cannot be "
                         "seen.");
    } else if (!definition.in_header && dlsym(RTLD_NEXT, symbol) == nullptr) {
      problem = c10::str("torchtap::transparent found no ", type, "::forward in LibTorch to call.");
    }
  }

  std::unordered_map<std::type_index, std::string> types_;  // to the problem with it; empty if there is none
  std::unordered_map<std::type_index, bool> norms_;
};

/// Whether calls that LibTorch itself makes are seen: FunctionalImpl::operator() is compiled there and calls
/// forward.
bool sees_inside_torch() {
  const auto probe = std::make_shared<torch::nn::FunctionalImpl>([](at::Tensor x) { return x; });
  if (!Linkage::instance().cover(*probe)) return false;
  const hooks::extend::OwnCalls own;
  bool seen = false;
  const auto handle =
      hooks::attach(*probe, hooks::Kind::forward_output, [&seen](hooks::Event&) { seen = true; });
  (*probe)(at::Tensor());
  return seen;
}

// On loading, not at the first call: the walk over a model needs it.
[[gnu::constructor]] void install() {
  struct Lazy final : model::extend::InterposedCalls {
    bool cover(const torch::nn::Module& module) const override { return Linkage::instance().cover(module); }
    Obstacle why_not(const torch::nn::Module& module) const override {
      return Linkage::instance().why_not(module);
    }
  };
  static const auto* lazy = new const Lazy;  // models may outlive static objects
  model::extend::set_interposed_calls(lazy);
}

}  // namespace

std::vector<std::string> check() {
  std::vector<std::string> problems;
  for (const auto& [type, problem] : Linkage::instance().types()) {
    if (!problem.empty()) problems.push_back(problem);
  }
  if (!norms_are_compiled_in) {
    problems.push_back(
        "Calls of BatchNorm and InstanceNorm are not seen: LibTorch compiles them into the program, which "
        "was compiled without torchtap::transparent.");
  }
  static const bool inside = sees_inside_torch();
  if (!inside) {
    problems.push_back(
        "Calls that LibTorch makes itself (to the layers inside a Transformer) are not seen: this LibTorch "
        "was built so that its own calls cannot be redirected (-Bsymbolic, hidden symbols or no semantic "
        "interposition).");
  }
  return problems;
}

namespace detail {

std::string why_blind() {
  std::string why;
  for (const auto& [type, problem] : Linkage::instance().types()) {
    // The linker does not know norms: their calls are seen where the program has our definitions.
    if (problem.empty() && (norms_are_compiled_in || !Linkage::instance().is_norm(type))) return "";
    if (why.empty()) why = problem;
  }
  return why;
}

bool note_norms() noexcept {
  norms_are_compiled_in = true;
  return true;
}

const char* symbol_of(const void* code) {
  Dl_info info;
  return dladdr(code, &info) != 0 && info.dli_saddr == code ? info.dli_sname : nullptr;
}

const void* next_definition(const void* ours) {
  const char* symbol = symbol_of(ours);
  const void* next = symbol == nullptr ? nullptr : dlsym(RTLD_NEXT, symbol);
  TORCH_CHECK_NOT_IMPLEMENTED(
      next != nullptr && next != ours, "torchtap::transparent: found no definition of ",
      symbol == nullptr ? "a forward" : symbol, " after its own to call; is LibTorch linked statically?");
  return next;
}

}  // namespace detail
}  // namespace torchtap::transparent
