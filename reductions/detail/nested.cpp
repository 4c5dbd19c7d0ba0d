// Writes the names and recipes of nested reductions.

#include <torchtap/reductions/detail/nested.hpp>

namespace torchtap::reductions::detail {

std::string short_name(const std::string& type) {
  const std::string nameless = "(anonymous namespace)::";
  const auto from = type.find(nameless);
  std::string name = from == std::string::npos ? type : type.substr(from + nameless.size());
  name = name.substr(0, name.find_first_of("(<"));
  return name.substr(name.rfind(':') + 1);  // npos + 1 == 0: no namespace
}

std::string recipe_of(const char* combinator, const std::string& part) {
  return part.empty() ? "" : std::string(combinator) + "(" + part + ")";
}

std::string snake_case(const std::string& description) {
  const std::string name = description.substr(0, description.find('('));
  std::string result;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto letter = static_cast<unsigned char>(name[i]);
    // A word starts at a capital after a small letter, or before one: "AbsMax", "TopK", but "EMA".
    const bool after_small = i > 0 && std::islower(static_cast<unsigned char>(name[i - 1])) != 0;
    const bool before_small =
        i > 0 && i + 1 < name.size() && std::islower(static_cast<unsigned char>(name[i + 1])) != 0;
    if (std::isupper(letter) != 0 && (after_small || before_small)) result += '_';
    result += static_cast<char>(std::tolower(letter));
  }
  return result;
}

}  // namespace torchtap::reductions::detail
