// Looks up kinds by name.
#include <iterator>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/recorders/kind.hpp>

namespace torchtap::recorders {
namespace {

const std::vector<std::string>& names() {
  // Never destroyed: threads may save while the program ends.
  static const std::vector<std::string>& all = *new const std::vector<std::string>([] {
    std::vector<std::string> names;
    names.reserve(std::size(kKinds));
    for (const KindTraits& kind : kKinds) names.emplace_back(kind.name);
    return names;
  }());
  return all;
}

}  // namespace

const std::string& name_of(RecorderKind kind) noexcept {
  return names()[static_cast<std::size_t>(kind)];
}

RecorderKind kind_of(const std::string& name) {
  const KindTraits* const found = find_kind(name);
  TORCH_CHECK_VALUE(found != nullptr, "recorders::make: there is no recorder called \"", name,
                    "\"; the kinds are ", base::quoted(names()), ".");
  return found->kind;
}

}  // namespace torchtap::recorders
