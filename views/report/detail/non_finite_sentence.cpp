#include <algorithm>
#include <vector>

#include <torchtap/views/report/detail/non_finite_sentence.hpp>
#include <torchtap/views/text/units.hpp>

namespace torchtap::views::report::detail {
namespace {

using text::count_text;

/// "aten::softmax in a and 3 more modules, aten::max in b".
std::string where_text(const std::vector<const Occurrence*>& findings) {
  std::vector<std::pair<std::string, std::vector<std::string>>> by_function;
  for (const Occurrence* finding : findings) {
    auto same = std::find_if(by_function.begin(), by_function.end(),
                             [&](const auto& one) { return one.first == finding->function; });
    if (same == by_function.end()) same = by_function.insert(by_function.end(), {finding->function, {}});
    auto& modules = same->second;
    const std::string module = place(finding->module);
    if (std::find(modules.begin(), modules.end(), module) == modules.end()) modules.push_back(module);
  }
  constexpr std::size_t most = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(by_function.size(), most); ++i) {
    const auto& [function, modules] = by_function[i];
    text += (i == 0 ? "" : ", ") + function + " in " + modules.front();
    if (modules.size() > 1) {
      text += " and " + std::to_string(modules.size() - 1) + " more module" + (modules.size() > 2 ? "s" : "");
    }
  }
  if (by_function.size() > most) text += " and " + std::to_string(by_function.size() - most) + " others";
  return text;
}

bool is_intended(const Occurrence& finding) {
  return finding.values.intended_inf > 0;
}

}  // namespace

std::string place(const std::string& path) {
  return path.empty() ? "the model itself" : path;
}

std::string values_text(const NonFinite& values) {
  std::string text;
  const auto add = [&](std::int64_t number, const char* word) {
    if (number != 0) text += (text.empty() ? "" : " and ") + count_text(number) + word;
  };
  add(values.nan, " NaN");
  add(values.inf, " Inf");
  if (text.empty()) add(values.intended_inf, " intended Inf");
  return text;
}

std::string moment_of(const Occurrence& finding, const Measurements& results) {
  return std::string(", ") + (finding.backward ? "backward" : "forward") + " of call " +
         std::to_string(finding.call + 1) +
         (results.repeats + results.warmup > 1 ? " in repeat " + std::to_string(finding.repeat + 1) : "");
}

std::string first_non_finite(const Measurements& results) {
  const auto find = [&](const auto& is) {
    const auto found = std::find_if(results.findings.begin(), results.findings.end(), is);
    return found == results.findings.end() ? nullptr : &*found;
  };
  const Occurrence* first = find([](const Occurrence& one) { return one.values.nan > 0; });
  const bool is_nan = first != nullptr;
  if (!is_nan) first = find([](const Occurrence& one) { return one.values.inf > 0; });
  if (first == nullptr) return "";
  std::string text = std::string("the first ") + (is_nan ? "NaN" : "Inf") + ": ";
  if (first->role == Role::source) {
    text += first->function + ", which " + place(first->module) + " reads" + moment_of(*first, results) +
            ", has " + values_text(first->values) + " itself";
  } else {
    text += first->function + " in " + place(first->module) + moment_of(*first, results) + ", makes " +
            values_text(first->values) + " of ";
    const Occurrence* before = first->role == Role::propagator ? find([](const Occurrence& one) {
      return one.values.inf > 0 && (one.role == Role::source || one.role == Role::producer);
    })
                                                               : nullptr;
    const bool of_masks = first->role == Role::producer && is_nan &&
                          std::any_of(first->inputs.begin(), first->inputs.end(), [](const std::string& one) {
                            return one.find(" infinite") != std::string::npos;
                          });
    if (before != nullptr) {
      text += "infinities, which are from " + before->function + " in " + place(before->module);
    } else {
      text += of_masks ? "infinities that were written on purpose" : "finite values";
    }
  }
  for (const std::string& input : first->inputs) text += "; " + input;
  return text;
}

std::string intended_infinities(const Measurements& results) {
  std::vector<const Occurrence*> origins, absorbers;
  for (const Occurrence& finding : results.findings) {
    if (!is_intended(finding)) continue;
    if (finding.role == Role::origin) origins.push_back(&finding);
    if (finding.role == Role::absorber) absorbers.push_back(&finding);
  }
  if (origins.empty()) return "";
  std::string text = "from " + where_text(origins);
  if (!absorbers.empty()) text += "; absorbed by " + where_text(absorbers);
  return text;
}

}  // namespace torchtap::views::report::detail
