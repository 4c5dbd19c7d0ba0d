#include <array>
#include <cstdio>
#include <utility>

#include <torchtap/core/detail/characters.hpp>
#include <torchtap/storage/dtype.hpp>
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

std::string dtype_text(at::ScalarType type) {
  const std::string name = storage::dtype_name(type);
  return name.empty() ? c10::toString(type) : name;
}

std::optional<at::ScalarType> dtype_from(const std::string& name) {
  if (const auto type = storage::dtype_of(name)) return type;
  for (int i = 0; i <= static_cast<int>(at::ScalarType::Undefined); ++i) {
    const auto type = static_cast<at::ScalarType>(i);
    if (name == c10::toString(type)) return type;
  }
  return std::nullopt;
}

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

std::string utf8_text(const std::string& text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = core::detail::character_at(text, at).bytes;
    if (size != 0) {
      result.append(text, at, size);
      at += size;
      continue;
    }
    char escape[8];
    std::snprintf(escape, sizeof escape, "\\%03o", static_cast<unsigned char>(text[at++]));
    result += escape;
  }
  return result;
}

}  // namespace torchtap::views::report::detail
