// Asks the program that is Python's to try the suspects.
#include "second_pass.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include <torchtap/views/compare/operations.hpp>

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

/// A module that only A has seen, all of what the code between two modules did: its call, and the calls in B
/// that made its input and got its output.
struct Unseen {
  const prints::Call* call = nullptr;
  std::uint32_t before = prints::kNone, after = prints::kNone;
};

std::optional<Unseen> unseen_in_b(const prints::Run& a, const prints::Pairs& pairs,
                                  const prints::Finding& finding) {
  if (finding.kind != prints::Finding::Kind::between || finding.record_a == prints::kNone)
    return std::nullopt;
  const auto digest = [&](std::uint32_t record) { return a.records()[record].digest; };
  const auto only = [](const auto& slots) { return slots.size() == 1 ? slots.front() : prints::kNone; };
  Unseen found;
  std::uint32_t last = prints::kNone;  // the last call that B has, too
  for (const auto& sequence : a.sequences()) {
    for (const std::uint32_t index : sequence.calls) {
      const prints::Call& call = a.calls()[index];
      const std::uint32_t in = only(call.inputs), out = only(call.outputs);
      const bool seen = pairs.of_a[index] != prints::kNone;
      if (seen && std::find(call.inputs.begin(), call.inputs.end(), finding.record_a) != call.inputs.end()) {
        if (found.call == nullptr || digest(found.call->outputs.front()) != digest(finding.record_a))
          return std::nullopt;
        found.after = pairs.of_a[index];
        return found;
      }
      if (!call.leaf || in == prints::kNone || out == prints::kNone) continue;
      if (seen) {
        last = index;
        found.call = nullptr;
      } else if (last != prints::kNone && found.call == nullptr &&
                 digest(a.calls()[last].outputs.front()) == digest(in)) {
        found.call = &call;
        found.before = pairs.of_a[last];
      } else {
        found.call = nullptr;
        last = prints::kNone;
      }
    }
  }
  return std::nullopt;
}

/// A call of B as a request names it.
Json tensors_of(const prints::Run& b, std::uint32_t call, views::frames::Kind kind) {
  const auto& of = b.calls()[call];
  const auto& slots = of.inputs.empty() ? of.outputs : of.inputs;
  return {
      {"kind", static_cast<int>(kind)}, {"path", b.path(of)}, {"sample", b.records()[slots.front()].sample}};
}

double number(const Json& value) {
  return value.is_number() ? value.get<double>() : 0;
}

std::string text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

}  // namespace

SecondPass second_pass(const std::array<ComparedProgram, 2>& programs, const std::string& folder,
                       const prints::Run& a, const prints::Run& b, const prints::Pairs& pairs,
                       const prints::Verdict& verdict, const prints::Thresholds& thresholds) {
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
  std::vector<std::string> of_own, of_other, unseen_paths;
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
      continue;
    }
    call["digest"] = result.own_is_a ? digest_of(a, finding) : Json(nullptr);
    const auto unseen = result.own_is_a ? unseen_in_b(a, pairs, finding) : std::nullopt;
    unseen_paths.push_back(unseen ? a.path(*unseen->call) : "");
    if (unseen) {
      const auto& first = a.records()[unseen->call->inputs.front()];
      call = {
          {"path", a.path(*unseen->call)}, {"sample", first.sample}, {"other_path", ""}, {"other_sample", 0}};
      call["inputs"] = tensors_of(b, unseen->before, views::frames::Kind::forward_output);
      call["outputs"] = tensors_of(b, unseen->after, views::frames::Kind::forward_input);
      for (const char* part : {"inputs", "outputs"}) {
        const Json& of = call[part];
        of_other.insert(of_other.end(), {"--values", value_option(of["path"], of["sample"])});
      }
    }
    request["suspects"].push_back(std::move(call));
  }
  const std::string asked = folder + "/request.json", answered = folder + "/answer.json";
  std::ofstream(asked) << request;
  other.run(folder + "/other.values", of_other);
  of_own.insert(of_own.end(), {"--try", asked, "--answer", answered});
  own.run(folder + "/own.values", of_own);

  const auto own_values = prints::Run::read(folder + "/own.values");
  const auto other_values = prints::Run::read(folder + "/other.values");
  const auto& values_a = result.own_is_a ? own_values : other_values;
  const auto& values_b = result.own_is_a ? other_values : own_values;
  auto file = open_to_read(answered);
  const Json answer = Json::parse(file);
  auto finding = verdict.suspects.begin();
  for (const Json& one : answer.at("suspects")) {
    while (finding->kind == prints::Finding::Kind::weight || finding->kind == prints::Finding::Kind::input)
      ++finding;
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
    if (tried.proved != false) {
      tried.operation = prints::first_operation({values_a, finding->path, finding->sample},
                                                {values_b, finding->path_b, finding->sample_b}, thresholds);
    }
    tried.unseen = unseen_paths.at(result.tried.size());
    ++finding;
    result.tried.push_back(std::move(tried));
  }
  if (answer.at("input").is_object()) result.input_cause = text(answer.at("input").at("cause"));
  return result;
}

}  // namespace torchtap::tools
