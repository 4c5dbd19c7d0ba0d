#include <array>
#include <utility>

#include <torchtap/views/report/detail/names.hpp>

namespace torchtap::views::report::detail {
namespace {

constexpr std::array<std::pair<Mark, const char*>, 5> kMarks{{{Mark::dead, "dead"},
                                                              {Mark::exploding, "exploding"},
                                                              {Mark::vanishing, "vanishing"},
                                                              {Mark::non_finite, "non-finite"},
                                                              {Mark::never_ran, "never ran"}}};
constexpr std::array<std::pair<Role, const char*>, 5> kRoles{{{Role::source, "source"},
                                                              {Role::producer, "producer"},
                                                              {Role::propagator, "propagator"},
                                                              {Role::absorber, "absorber"},
                                                              {Role::origin, "origin"}}};

template <class Table, class Value>
const char* find_name(const Table& table, Value value) {
  for (const auto& [known, name] : table) {
    if (known == value) return name;
  }
  return "";
}

template <class Value, class Table>
std::optional<Value> find_value(const Table& table, const std::string& name) {
  for (const auto& [value, known] : table) {
    if (name == known) return value;
  }
  return std::nullopt;
}

}  // namespace

const char* name_of(Mark mark) {
  return find_name(kMarks, mark);
}

const char* name_of(Role role) {
  return find_name(kRoles, role);
}

std::optional<Mark> mark_from(const std::string& name) {
  return find_value<Mark>(kMarks, name);
}

std::optional<Role> role_from(const std::string& name) {
  return find_value<Role>(kRoles, name);
}

}  // namespace torchtap::views::report::detail
