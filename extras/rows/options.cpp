// The options of recorders that keep rows.
#include <algorithm>
#include <memory>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/recorders/options.hpp>
#include <torchtap/rows/detail/keep_rows.hpp>

namespace torchtap::recorders {
namespace {

using rows::detail::Asked;
using rows::detail::Kept;

Asked asked_by(const RecorderOptions& options) {
  const auto* const kept = dynamic_cast<const Kept*>(options.takes().get());
  return kept == nullptr ? Asked() : kept->asked;
}

}  // namespace

RecorderOptions& RecorderOptions::rows(std::vector<std::int64_t> dimensions) {
  TORCH_CHECK_VALUE(!dimensions.empty(),
                    "recorders::RecorderOptions::rows: name the dimensions whose elements are "
                    "rows, such as rows({0, 1}) of [B, T, C].");
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    TORCH_CHECK_VALUE(std::count(dimensions.begin(), dimensions.end(), dimensions[i]) == 1,
                      "recorders::RecorderOptions::rows: dimension ", dimensions[i], " is named twice.");
  }
  Asked asked = asked_by(*this);
  asked.dimensions = std::move(dimensions);
  return takes(std::make_shared<Kept>(std::move(asked)));
}

RecorderOptions& RecorderOptions::where(std::string mask) {
  TORCH_CHECK_VALUE(!mask.empty(),
                    "recorders::RecorderOptions::where: the name is empty; give the one that "
                    "core::Context has for the mask.");
  Asked asked = asked_by(*this);
  asked.mask = std::move(mask);
  return takes(std::make_shared<Kept>(std::move(asked)));
}

RecorderOptions& RecorderOptions::beside(std::vector<std::string> names) {
  Asked asked = asked_by(*this);
  for (auto& name : names) {
    TORCH_CHECK_VALUE(!name.empty(),
                      "recorders::RecorderOptions::beside: a name is empty; give those that "
                      "core::Context has.");
    TORCH_CHECK_VALUE(std::find(asked.beside.begin(), asked.beside.end(), name) == asked.beside.end(),
                      "recorders::RecorderOptions::beside: \"", name, "\" is named twice.");
    asked.beside.push_back(std::move(name));
  }
  return takes(std::make_shared<Kept>(std::move(asked)));
}

}  // namespace torchtap::recorders
