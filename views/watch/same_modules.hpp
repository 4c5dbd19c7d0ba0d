#pragma once

/// Lets a view go on with a model that is made anew.

#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/model/module_ref.hpp>

namespace torchtap::views::watch {

/// The modules by name and type alone: no part of the model lives longer because of them.
TORCHTAP_API std::vector<model::ModuleRef> names_of(const std::vector<model::ModuleRef>& modules);

/// Throws `c10::ValueError` with the name of the public call unless the modules have the paths and types of
/// the former ones, and can be reached where these could.
TORCHTAP_API void check_same(const char* call, const std::vector<model::ModuleRef>& former,
                             const std::vector<model::ModuleRef>& modules);

}  // namespace torchtap::views::watch
