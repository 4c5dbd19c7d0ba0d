// Asks the program that is Python's to try the suspects.
#include "second_pass.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

#include <torchtap/views/compare/operations.hpp>

#include "files/files.hpp"

namespace torchtap::tools {
namespace {

namespace prints = views::compare;

std::string value_option(const std::string& path, std::uint32_t sample) {
  return path + ":" + std::to_string(sample);
}

/// A tensor of B as a request names it.
Json tensor_of(const prints::Run& b, std::uint32_t index) {
  const auto& record = b.records()[index];
  return {{"kind", static_cast<int>(record.kind)},
          {"path", b.path(record)},
          {"sample", record.sample},
          {"slot", record.slot}};
}

/// The digest of the first input of a call, which identifies it among threads; zeros if there is only one
/// thread.
std::array<std::uint64_t, 2> given(const prints::Run& run, std::uint32_t call) {
  if (call == prints::kNone || run.sequences().size() < 2 || run.calls()[call].inputs.empty()) return {};
  return run.records()[run.calls()[call].inputs.front()].digest;
}

Json spelled(const std::array<std::uint64_t, 2>& digest) {
  if (digest[0] == 0 && digest[1] == 0) return nullptr;
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(digest[0]),
                static_cast<unsigned long long>(digest[1]));
  return text;
}

/// Whether the second run of a program gave a call what the first one had given it.
bool repeats(const prints::Run& first, const prints::Run& second, std::uint32_t call,
             views::frames::Kind kind) {
  if (call == prints::kNone) return true;
  const auto& of = first.calls()[call];
  const auto& records = kind == views::frames::Kind::forward_input ? of.inputs : of.outputs;
  return std::all_of(records.begin(), records.end(), [&](std::uint32_t i) {
    const auto& record = first.records()[i];
    const auto print = first.print(record);
    if (!print || c10::isQIntType(print->scalar_type()))
      return true;  // of which values are written as float32
    bool there = false, same = false;
    for (const auto& other : second.records()) {
      if (other.kind != kind || other.sample != record.sample || other.slot != record.slot ||
          second.path(other) != first.path(record) || other.holds != prints::Record::Holds::tensor)
        continue;
      there = true, same |= other.digest == record.digest;
    }
    return !there || same;
  });
}

}  // namespace

SecondPass second_pass(const std::array<ComparedProgram, 2>& programs,
                       const std::array<std::vector<std::string>, 2>& windows, const std::string& folder,
                       const prints::Run& a, const prints::Run& b, const prints::Pairs& /*pairs*/,
                       const prints::Verdict& verdict, const prints::Thresholds& thresholds) {
  SecondPass result;
  result.own_is_a = programs[0].python();
  const std::size_t mine = result.own_is_a ? 0 : 1;
  const ComparedProgram &own = programs[mine], &other = programs[1 - mine];
  TORCH_INTERNAL_ASSERT(own.python());

  Json request{{"own", result.own_is_a ? "A" : "B"},
               {"other", result.own_is_a ? "B" : "A"},
               {"others", folder + "/other.values"},
               {"suspects", Json::array()},
               {"input", nullptr}};
  std::vector<std::string> of_own = windows[mine], of_other = windows[1 - mine];
  const auto asked = prints::suspects_of(verdict);
  std::vector<std::size_t> requested;  // which of these are in the request
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const prints::Divergence& finding = *asked[i];
    const bool between = finding.kind == prints::Divergence::Kind::between;
    const bool unseen = result.own_is_a && finding.unseen != prints::kNone;
    const bool nowhere =
        between && !unseen && (finding.call_a == prints::kNone || finding.call_b == prints::kNone);
    if (finding.kind == prints::Divergence::Kind::weight || finding.certain || nowhere) continue;
    const std::string& path = result.own_is_a ? finding.path : finding.path_b;
    const std::string& other_path = result.own_is_a ? finding.path_b : finding.path;
    const auto sample = result.own_is_a ? finding.sample : finding.sample_b;
    const auto other_sample = result.own_is_a ? finding.sample_b : finding.sample;
    const auto of_a = given(a, finding.call_a), of_b = given(b, finding.call_b);
    Json call{{"path", path},
              {"sample", sample},
              {"other_path", other_path},
              {"other_sample", other_sample},
              {"given", spelled(result.own_is_a ? of_a : of_b)},
              {"other_given", spelled(result.own_is_a ? of_b : of_a)}};
    for (auto [options, value] : {std::pair(&of_own, value_option(path, sample)),
                                  std::pair(&of_other, value_option(other_path, other_sample))}) {
      options->push_back("--values");
      options->push_back(value);
    }
    if (finding.kind == prints::Divergence::Kind::input) {
      if (request["input"].is_null()) request["input"] = std::move(call);
      continue;
    }
    const auto digest = [&](std::uint32_t of) -> Json {
      if (!result.own_is_a || of == prints::kNone) return nullptr;
      const std::uint32_t first = a.first_tensor(a.calls()[of].outputs);
      return first == prints::kNone ? Json(nullptr) : spelled(a.records()[first].digest);
    };
    call["digest"] = digest(finding.call_a);
    if (unseen) {
      const auto& seen = a.calls()[finding.unseen];
      call = {{"path", a.path(seen)},
              {"sample", a.records()[seen.inputs.front()].sample},
              {"other_path", ""},
              {"other_sample", 0},
              {"given", spelled(given(a, finding.unseen))},
              {"digest", digest(finding.unseen)},
              {"inputs", Json::array()},
              {"outputs", Json::array({tensor_of(b, finding.record_b)})}};
      for (const auto i : finding.unseen_inputs) call["inputs"].push_back(tensor_of(b, i));
      for (const char* part : {"inputs", "outputs"}) {
        for (const Json& of : call[part])
          of_other.insert(of_other.end(), {"--values", value_option(of["path"], of["sample"])});
      }
    }
    request["suspects"].push_back(std::move(call));
    requested.push_back(i);
  }
  const std::string wanted = folder + "/request.json", answered = folder + "/answer.json";
  std::ofstream(wanted) << json::text(request);
  other.run(folder + "/other.values", of_other);
  of_own.insert(of_own.end(), {"--try", wanted, "--answer", answered});
  own.run(folder + "/own.values", of_own);

  const auto own_values = prints::Run::read(folder + "/own.values");
  const auto other_values = prints::Run::read(folder + "/other.values");
  const auto& values_a = result.own_is_a ? own_values : other_values;
  const auto& values_b = result.own_is_a ? other_values : own_values;
  const auto check = [](bool repeatable, const ComparedProgram& program) {
    TORCH_CHECK(
        repeatable, "--run: \"", program.line(),
        "\" computes other values each time it runs, so its second run tells nothing of its first; "
        "seed it (torch.manual_seed), or compare files: two runs of one program show what it does not "
        "repeat.");
  };
  for (const auto* finding : asked) {
    if (finding->kind == prints::Divergence::Kind::weight || finding->certain) continue;
    for (const auto kind : {views::frames::Kind::forward_input, views::frames::Kind::forward_output}) {
      check(repeats(a, values_a, finding->call_a, kind), programs[0]);
      check(repeats(b, values_b, finding->call_b, kind), programs[1]);
    }
  }
  auto file = open_to_read(answered);
  const Json document = json::parse({std::istreambuf_iterator<char>(file), {}}, answered + ": ");
  const json::Reader answer(document, answered + ": ");
  result.tried.resize(asked.size());
  const std::vector<json::Reader> answers = answer.at("suspects").elements();
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const prints::Divergence& finding = *asked[i];
    const auto place = std::find(requested.begin(), requested.end(), i);
    if (place == requested.end()) {
      if (finding.kind == prints::Divergence::Kind::between && !finding.certain)
        result.tried[i].emplace().reason = "no module that both programs were seen to call is around it";
      continue;
    }
    const json::Reader& one = answers.at(static_cast<std::size_t>(place - requested.begin()));
    const auto text = [&](const char* name) { return one.get<std::string>(name, ""); };
    check(one.get("repeatable", true), own);
    SecondPass::Tried& tried = result.tried[i].emplace();
    if (one.at("proved").value().is_boolean()) tried.proved = one.get<bool>("proved");
    tried.own_error = one.get("own_error", 0.0);
    tried.other_error = one.get("other_error", 0.0);
    tried.cause = text("cause");
    tried.cause_error = one.get("cause_error", 0.0);
    tried.where = text("where");
    tried.reason = text("reason");
    tried.search = text("search");
    if (tried.proved != false) {
      tried.operation = prints::first_operation(
          {values_a, finding.path, finding.sample, given(a, finding.call_a)},
          {values_b, finding.path_b, finding.sample_b, given(b, finding.call_b)}, thresholds);
    }
    if (result.own_is_a && finding.unseen != prints::kNone) tried.unseen = a.path(a.calls()[finding.unseen]);
  }
  result.input_cause = answer.at("input").get<std::string>("cause", "");
  result.input_search = answer.at("input").get<std::string>("search", "");
  return result;
}

}  // namespace torchtap::tools
