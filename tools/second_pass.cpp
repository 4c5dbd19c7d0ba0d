// Asks the program that is Python's to try the suspects.
#include "second_pass.hpp"

#include <c10/util/Exception.h>

#include <cstdio>
#include <fstream>

#include "files.hpp"

namespace torchtap::tools {
namespace {

namespace prints = views::compare;

std::string value_option(const std::string& path, std::uint32_t sample) {
  return path + ":" + std::to_string(sample);
}

/// The digest of the first tensor that the call returned, as it is spelled in a request.
Json digest_of(const prints::Run& a, const prints::Finding& finding) {
  if (finding.call_a == prints::kNone) return nullptr;
  const auto& outputs = a.calls()[finding.call_a].outputs;
  if (outputs.empty()) return nullptr;
  char text[33];
  const auto& digest = a.records()[outputs.front()].digest;
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(digest[0]),
                static_cast<unsigned long long>(digest[1]));
  return text;
}

double number(const Json& value) {
  return value.is_number() ? value.get<double>() : 0;
}

std::string text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

}  // namespace

SecondPass second_pass(const std::array<ComparedProgram, 2>& programs, const std::string& folder,
                       const prints::Run& a, const prints::Verdict& verdict) {
  SecondPass result;
  result.own_is_a = programs[0].python();
  const ComparedProgram& own = programs[result.own_is_a ? 0 : 1];
  const ComparedProgram& other = programs[result.own_is_a ? 1 : 0];
  TORCH_INTERNAL_ASSERT(own.python());

  Json request{{"own", result.own_is_a ? "A" : "B"},
               {"other", result.own_is_a ? "B" : "A"},
               {"others", folder + "/other.values"},
               {"suspects", Json::array()},
               {"input", nullptr}};
  std::vector<std::string> of_own, of_other;
  for (const prints::Finding& finding : verdict.suspects) {
    if (finding.kind == prints::Finding::Kind::weight) continue;
    const std::string& path = result.own_is_a ? finding.path : finding.path_b;
    const std::string& other_path = result.own_is_a ? finding.path_b : finding.path;
    const auto sample = result.own_is_a ? finding.sample : finding.sample_b;
    const auto other_sample = result.own_is_a ? finding.sample_b : finding.sample;
    Json call{{"path", path}, {"sample", sample}, {"other_path", other_path}, {"other_sample", other_sample}};
    for (auto [options, value] : {std::pair(&of_own, value_option(path, sample)),
                                  std::pair(&of_other, value_option(other_path, other_sample))}) {
      options->push_back("--values");
      options->push_back(value);
    }
    if (finding.kind == prints::Finding::Kind::input) {
      request["input"] = std::move(call);
    } else {
      call["digest"] = result.own_is_a ? digest_of(a, finding) : Json(nullptr);
      request["suspects"].push_back(std::move(call));
    }
  }
  const std::string asked = folder + "/request.json", answered = folder + "/answer.json";
  std::ofstream(asked) << request;
  other.run(folder + "/other.values", of_other);
  of_own.insert(of_own.end(), {"--try", asked, "--answer", answered});
  own.run(folder + "/own.values", of_own);

  auto file = open_to_read(answered);
  const Json answer = Json::parse(file);
  for (const Json& one : answer.at("suspects")) {
    TORCH_CHECK(
        one.at("repeatable") != false, "--run: \"", own.line(),
        "\" computes other values each time it runs, so its second run tells nothing of its first; seed "
        "it (torch.manual_seed).");
    SecondPass::Tried tried;
    if (one.at("proved").is_boolean()) tried.proved = one.at("proved").get<bool>();
    tried.own_error = number(one.at("own_error"));
    tried.other_error = number(one.at("other_error"));
    tried.cause = text(one.at("cause"));
    tried.cause_error = number(one.at("cause_error"));
    tried.where = text(one.at("where"));
    tried.reason = text(one.value("reason", Json(nullptr)));
    result.tried.push_back(std::move(tried));
  }
  if (answer.at("input").is_object()) result.input_cause = text(answer.at("input").at("cause"));
  return result;
}

}  // namespace torchtap::tools
