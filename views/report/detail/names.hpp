#pragma once

// Names of dtypes, marks and roles, as files and tables have them.

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include <torchtap/views/report/results.hpp>

namespace torchtap::views::report::detail {

/// "float32"; c10's name for a type that Python names otherwise or not at all ("QInt8").
std::string dtype_text(at::ScalarType type);
/// Nothing for a name that `dtype_text` does not give in this LibTorch.
std::optional<at::ScalarType> dtype_from(const std::string& name);

/// "never ran".
const char* name_of(Mark mark);
/// "producer".
const char* name_of(Role role);
std::optional<Mark> mark_from(const std::string& name);
std::optional<Role> role_from(const std::string& name);

/// `text` as UTF-8: bytes that are not, become an escape ("\377").
std::string utf8_text(const std::string& text);

}  // namespace torchtap::views::report::detail
