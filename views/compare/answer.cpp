#include <c10/util/StringUtil.h>

#include <algorithm>

#include <torchtap/views/compare/answer.hpp>
#include <torchtap/views/text/characters.hpp>
#include <torchtap/views/text/units.hpp>

namespace torchtap::views::compare {
namespace {

std::string named_path(const std::string& path) {
  return path.empty() ? "(root)" : text::printable(path);
}

}  // namespace

std::vector<const Divergence*> suspects_of(const Verdict& verdict) {
  std::vector<const Divergence*> asked;
  for (const auto* const findings : {&verdict.suspects, &verdict.unjudged}) {
    for (const auto& finding : *findings) asked.push_back(&finding);
  }
  std::stable_sort(asked.begin(), asked.end(), [](const auto* x, const auto* y) {
    return (x->kind == Divergence::Kind::weight ? 0 : x->record_a) <
           (y->kind == Divergence::Kind::weight ? 0 : y->record_a);
  });
  return asked;
}

bool Answer::is_proved() const {
  return first && (first->kind == Divergence::Kind::weight || first->kind == Divergence::Kind::input ||
                   first->certain || (tried && tried->proved == true));
}

std::string Answer::cause() const {
  if (!first) return "";
  // A trial of the module around explains that module's outputs, and fingerprints explain the difference
  // inside of it.
  const bool around = tried && tried->unseen.empty();
  if (first->kind == Divergence::Kind::between && around && !first->cause.empty()) return first->cause;
  if (tried && !tried->cause.empty()) return tried->cause;
  return input_cause.empty() ? first->cause : input_cause;
}

Answer answer_of(const Verdict& verdict, const std::vector<std::optional<Tried>>& all_tried) {
  Answer answer;
  const auto asked = suspects_of(verdict);
  for (std::size_t i = 0; i < asked.size() && !answer.first; ++i) {
    const Divergence& finding = *asked[i];
    std::optional<Tried> tried;
    if (!all_tried.empty()) tried = all_tried.at(i);
    if (finding.unjudged) {
      if (tried && tried->proved.has_value()) {
        ++answer.judged;
        if (*tried->proved) answer.first = finding, answer.tried = tried;
      }
      continue;
    }
    // Tensors made inside of a module may differ although its output, which the trial is about, does not.
    constexpr double kFar = 16;
    const bool inside = finding.kind == Divergence::Kind::between &&
                        !(finding.error <= kFar * finding.allowed) && tried && tried->unseen.empty();
    if (tried && tried->proved == false && inside) {
      tried->proved.reset();
      tried->reason = "in float64 the module around returns the same from the same inputs";
    }
    if (tried && tried->proved == false && !finding.exact) {
      ++answer.innocent;
      continue;
    }
    answer.first = finding;
    answer.tried = tried;
    if (tried && tried->proved == false) answer.first->certain = true, answer.tried.reset();
  }
  if (!answer.first && verdict.weight) answer.first = verdict.weight;
  answer.gaps = verdict.gaps;
  if (answer.first) return answer;
  constexpr std::size_t kMost = 5;  // suspects of a thread
  if (answer.innocent >= kMost) answer.gaps.push_back("calls after these 5, which amplified rounding");
  if (answer.innocent != 0 && verdict.repeated != 0)
    answer.gaps.push_back(
        c10::str(text::counted(verdict.repeated, "other call"), " of modules that amplified rounding"));
  const auto left = verdict.unjudged_tensors - static_cast<std::int64_t>(answer.judged);
  if (left > 0)
    answer.gaps.push_back(c10::str(text::counted(left, "tensor"), " from ", named_path(verdict.unjudged_from),
                                   " on, where rounding has grown to errors that hide faults"));
  return answer;
}

}  // namespace torchtap::views::compare
