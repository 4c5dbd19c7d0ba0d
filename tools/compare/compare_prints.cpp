// Compares two runs.
#include "compare_prints.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "compared_program.hpp"
#include "prints_report.hpp"
#include "recordings/recordings.hpp"
#include "second_pass.hpp"
#include "temporary_folder.hpp"
#include "terminal/message_text.hpp"

namespace torchtap::tools {

namespace {

namespace prints = views::compare;
using Kind = prints::Divergence::Kind;

PrintsAnswer answer_of(const prints::Verdict& verdict, const SecondPass* pass) {
  PrintsAnswer answer;
  static_cast<prints::Answer&>(answer) =
      prints::answer_of(verdict, pass == nullptr ? std::vector<std::optional<prints::Tried>>() : pass->tried);
  if (pass != nullptr) {
    answer.own_is_a = pass->own_is_a;
    if (answer.first && answer.first->kind == Kind::input) {
      answer.input_cause = pass->input_cause;
      answer.input_search = pass->input_search;
    }
  }
  for (const std::string& gap : answer.gaps) answer.outcome.leave_out(gap);
  if (answer.first) answer.outcome.differ();
  return answer;
}

/// The options of a recorder for these forwards.
std::vector<std::string> window(std::int64_t forwards, std::int64_t skip) {
  return {"--forwards", std::to_string(forwards), "--skip", std::to_string(skip)};
}

/// The largest number of calls of one module.
std::int64_t calls_of(const prints::Run& run) {
  std::int64_t most = 0;
  for (const auto& call : run.calls()) most = std::max<std::int64_t>(most, call.ordinal + 1);
  return most;
}

}  // namespace

int compare_prints(const PrintsOptions& options) {
  prints::Thresholds thresholds;
  if (!options.tolerance.empty()) thresholds = prints::Thresholds::parse(options.tolerance);
  thresholds.bits = options.bits;
  std::optional<TemporaryFolder> folder;
  std::vector<std::string> files = options.sides;
  std::optional<std::array<ComparedProgram, 2>> programs;
  if (!options.runs.empty()) {
    folder.emplace();
    programs.emplace(
        std::array<ComparedProgram, 2>{ComparedProgram(options.runs[0]), ComparedProgram(options.runs[1])});
    files = {folder->path() + "/a.prints", folder->path() + "/b.prints"};
    for (std::size_t side = 0; side < 2; ++side)
      (*programs)[side].run(files[side], window(options.forwards, options.skip));
  }
  std::array<prints::Run, 2> runs{prints::Run::read(files[0]), prints::Run::read(files[1])};
  std::array<std::int64_t, 2> forwards{options.forwards, options.forwards};
  for (std::size_t side = 0; programs && side < 2; ++side) {
    // On a side where no model was seen, a module that is called again is taken for the next forward. The
    // other side knows how often one forward calls it.
    const std::int64_t calls = calls_of(runs[1 - side]);
    if (!runs[side].model_is_unseen() || runs[1 - side].model_is_unseen() || options.forwards != 1 ||
        calls < 2)
      continue;
    forwards[side] = calls;
    files[side] += ".again";  // a file that is there is another process's
    (*programs)[side].run(files[side], window(calls, options.skip));
    runs[side] = prints::Run::read(files[side]);
  }
  const prints::Run &a = runs[0], &b = runs[1];
  const prints::Pairs pairs = prints::pair_up(a, b, options.map);
  const prints::Verdict verdict = prints::judge(a, b, pairs, thresholds);
  std::optional<SecondPass> pass;
  const auto asked = prints::suspects_of(verdict);
  const bool tried = std::any_of(asked.begin(), asked.end(), [](const prints::Divergence* finding) {
    return finding->kind != Kind::weight && !finding->certain;
  });
  if (programs && tried && ((*programs)[0].python() || (*programs)[1].python())) {
    const std::array<std::vector<std::string>, 2> windows{window(forwards[0], options.skip),
                                                          window(forwards[1], options.skip)};
    pass = second_pass(*programs, windows, folder->path(), a, b, pairs, verdict, thresholds);
  }
  const PrintsAnswer answer = answer_of(verdict, pass ? &*pass : nullptr);
  (options.json ? print_json : print_text)({a, b, pairs, verdict, answer, options});
  return answer.outcome.status();
}

}  // namespace torchtap::tools
