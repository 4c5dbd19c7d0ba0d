#pragma once

/// Recognises a module later without keeping it alive.

#include <functional>

#include <torchtap/base/api.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torchtap::model::extend {

/// Whether another reference is to this module, which still lives. Never holds for a module that nothing
/// shares: another one may have its address.
TORCHTAP_API std::function<bool(const ModuleRef&)> recogniser(const ModuleRef& module);

}  // namespace torchtap::model::extend
