#pragma once

// Chooses the modules that a monitor watches.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/model/module_ref.hpp>
#include <torchtap/selectors/selector.hpp>

namespace torchtap::views::monitor::detail {

/// The watched modules of a model, as indices.
struct Chosen {
  std::vector<std::size_t> modules;
  std::vector<std::size_t> tops;  // if the root's calls cannot be seen: the outermost modules that can be
  std::int64_t unreachable = 0;   // those that were to be watched, and are not reached
};

/// `modules` begins with the root, which is watched, too. Throws `c10::ValueError` if there are none, or none
/// that hooks reach.
TORCHTAP_API Chosen choose(const std::vector<model::ModuleRef>& modules, const selectors::Selector& selector);

}  // namespace torchtap::views::monitor::detail
