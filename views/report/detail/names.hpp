#pragma once

// Names of marks and roles, as files and tables have them.

#include <optional>
#include <string>

#include <torchtap/views/report/measurements.hpp>

namespace torchtap::views::report::detail {

/// "never ran".
const char* name_of(Mark mark);
/// "producer".
const char* name_of(Role role);
std::optional<Mark> mark_from(const std::string& name);
std::optional<Role> role_from(const std::string& name);

}  // namespace torchtap::views::report::detail
