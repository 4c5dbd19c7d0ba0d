#pragma once

// Names of roles, as files and tables have them.

#include <optional>
#include <string>

#include <torchtap/views/report/measurements.hpp>

namespace torchtap::views::report::detail {

/// "producer".
const char* name_of(Role role);
std::optional<Role> role_from(const std::string& name);

}  // namespace torchtap::views::report::detail
