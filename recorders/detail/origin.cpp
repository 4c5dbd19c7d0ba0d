// Says why a module or a parameter may give no samples.
#include <torchtap/model/extend/interposed_calls.hpp>
#include <torchtap/model/extend/node.hpp>
#include <torchtap/model/extend/runs_hooks.hpp>
#include <torchtap/recorders/detail/origin.hpp>

namespace torchtap::recorders::detail {

Origin::Origin(const model::ModuleRef& module)
    : module_(model::extend::Access::node(module).keep),
      point_(model::extend::doors_of(module).point),
      inside_hooks_(model::extend::Access::node(module).has_own_hooks),
      by_view_(model::extend::doors_of(module).interposed == model::extend::Interposed::holder) {}

std::string Origin::always() const {
  if (!inside_hooks_) return {};
  return "the file has hooks of this model compiled in, which run after what was recorded if the program "
         "calls "
         "model(...), and not at all if it calls model.forward(...).";
}

std::string Origin::why_none(bool called) const {
  if (parameter_.has_value()) {
    const at::Tensor parameter(parameter_->lock());
    return !parameter.defined() || parameter.requires_grad()
               ? ""
               : "the parameter is frozen (requires_grad is false), so no backward makes a gradient of it.";
  }
  const auto module = module_.lock();
  if (module == nullptr) return {};
  if (point_ != nullptr) {
    if (std::string why = point_->torchtap_why_unseen(); !why.empty()) return why;
  }
  if (!model::extend::given_out(*module)) {
    return called || !by_view_
               ? ""
               : "it was not called, or through an interface, a base class or ptr<Impl>(), where "
                 "calls are not seen.";
  }
  return "the program got a pointer to this module by as<Impl>() instead of as<Holder>(), or in a file "
         "compiled with TORCHTAP_EXACT_TYPES; calls through that pointer are not seen.";
}

}  // namespace torchtap::recorders::detail
