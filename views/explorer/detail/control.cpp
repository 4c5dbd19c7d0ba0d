// The settings that a page may change.
#include <c10/util/Exception.h>

#include <torchtap/json/json.hpp>
#include <torchtap/views/explorer/detail/control.hpp>
#include <torchtap/views/explorer/detail/page_answers.hpp>

namespace torchtap::views::explorer::detail {
namespace {

constexpr const char* expected =
    "expected {\"every\": STEPS, \"paused\": true or false}, with either of them";

/// All or nothing.
void change(Control& control, const std::string& body) {
  const json::Json document = json::parse_object(body);
  TORCH_CHECK_VALUE(!document.empty(), expected, ", got \"", body.substr(0, 80), "\".");
  std::int64_t every = control.every();
  bool paused = control.paused();
  for (const auto& [name, value] : document.items()) {
    TORCH_CHECK_VALUE(name == "every" || name == "paused", expected, ", got \"", name, "\".");
    if (name == "every") {
      TORCH_CHECK_VALUE(json::read(value, every) && every >= 0,
                        "\"every\" has to be a number of steps, or 0 for as often as the overhead allows.");
    } else {
      TORCH_CHECK_VALUE(json::read(value, paused), "\"paused\" has to be true or false.");
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
    return answer_of({{"every", control->every()}, {"paused", control->paused()}});
  } catch (const c10::ValueError& error) {
    return refusal(400, error.what_without_backtrace());
  }
}

}  // namespace torchtap::views::explorer::detail
