#include <array>
#include <utility>

#include <torchtap/views/report/detail/names.hpp>

namespace torchtap::views::report::detail {
namespace {

constexpr std::array<std::pair<Role, const char*>, 5> kRoles{{{Role::source, "source"},
                                                              {Role::producer, "producer"},
                                                              {Role::propagator, "propagator"},
                                                              {Role::absorber, "absorber"},
                                                              {Role::origin, "origin"}}};

}  // namespace

const char* name_of(Role role) {
  for (const auto& [known, name] : kRoles) {
    if (known == role) return name;
  }
  return "";
}

std::optional<Role> role_from(const std::string& name) {
  for (const auto& [role, known] : kRoles) {
    if (name == known) return role;
  }
  return std::nullopt;
}

}  // namespace torchtap::views::report::detail
