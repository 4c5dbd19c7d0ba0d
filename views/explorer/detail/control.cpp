// The settings that a page may change.
#include <c10/util/Exception.h>

#include <torchtap/base/rapidjson.hpp>
#include <torchtap/views/explorer/detail/control.hpp>
#include <torchtap/views/explorer/detail/json.hpp>
#include <torchtap/views/explorer/detail/page_answers.hpp>

namespace torchtap::views::explorer::detail {
namespace {

namespace rapid = base::rapid;

constexpr const char* expected =
    "expected {\"every\": STEPS, \"paused\": true or false}, with either of them";

/// All or nothing.
void change(Control& control, const std::string& body) {
  rapid::Document document;
  document.Parse<rapid::kParseIterativeFlag>(body.data(), body.size());
  TORCH_CHECK_VALUE(!document.HasParseError() && document.IsObject() && document.MemberCount() > 0, expected,
                    ", got \"", body.substr(0, 80), "\".");
  std::int64_t every = control.every();
  bool paused = control.paused();
  for (const auto& member : document.GetObject()) {
    const std::string name(member.name.GetString(), member.name.GetStringLength());
    TORCH_CHECK_VALUE(name == "every" || name == "paused", expected, ", got \"", name, "\".");
    if (name == "every") {
      TORCH_CHECK_VALUE(member.value.IsInt64() && member.value.GetInt64() >= 0,
                        "\"every\" has to be a number of steps, or 0 for as often as the overhead allows.");
      every = member.value.GetInt64();
    } else {
      TORCH_CHECK_VALUE(member.value.IsBool(), "\"paused\" has to be true or false.");
      paused = member.value.GetBool();
    }
  }
  control.set_every(every);
  control.pause(paused);
}

}  // namespace

Answer control_answer(const Runs& runs, const std::string& target, const std::string& body) {
  try {
    const Request request = Request::parse(target);
    const auto& path = request.path;
    if (path.size() != 5 || path[0] != "api" || path[1] != "v1" || path[2] != "runs" || path[4] != "control")
      return refusal(405, "Only runs/RUN/control may be PUT.");
    const auto run = run_named(runs, path[3]);
    if (run == nullptr) return refusal(404, "There is no run \"" + path[3] + "\".");
    Control* const control = run->control();
    if (control == nullptr) return refusal(403, "This run is read from a file; nobody here records it.");
    change(*control, body);
    Json json;
    json.begin();
    json.field("every", control->every());
    json.field("paused", control->paused());
    json.end();
    return {200, "application/json", json.text(), "", ""};
  } catch (const c10::ValueError& error) {
    return refusal(400, error.what_without_backtrace());
  }
}

}  // namespace torchtap::views::explorer::detail
