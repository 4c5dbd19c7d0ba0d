// Reports and their recordings.
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/model/walk.hpp>
#include <torchtap/views/report/detail/measured_model.hpp>
#include <torchtap/views/report/report.hpp>

namespace torchtap::views::report {

Repeat::Repeat(std::unique_ptr<detail::Attached> attached) noexcept : attached_(std::move(attached)) {}
Repeat::Repeat(Repeat&&) noexcept = default;
Repeat& Repeat::operator=(Repeat&&) noexcept = default;
Repeat::~Repeat() = default;

void Repeat::phase(Phase next) {
  TORCH_CHECK_VALUE(
      attached_ != nullptr && attached_->measured->open,
      "views::report::Repeat::phase: the repeat has ended; call next(), or record() of the report.");
  attached_->measured->set_phase(next);
}

bool Repeat::in_call() const noexcept {
  return attached_ != nullptr && attached_->measured->in_call();
}

void Repeat::next() {
  TORCH_CHECK_VALUE(attached_ != nullptr,
                    "views::report::Repeat::next: the recording was stopped, or moved to another one; call "
                    "record() of the report.");
  attached_->measured->end();
  attached_->measured->begin();
}

void Repeat::end() noexcept {
  if (attached_ != nullptr) attached_->measured->end();
}

void Repeat::stop() noexcept {
  attached_.reset();
}

Report::Report(const selectors::ModuleView& model, ReportOptions options) {
  const std::vector<model::ModuleRef>& modules = model.vector();
  TORCH_CHECK_VALUE(!modules.empty() && modules.front().path().empty(),
                    "views::report::Report: ", modules.empty() ? "no modules were" : "a part of a model was",
                    " given; pass all that model::walk_modules finds, the root first.");
  measured_ = std::make_shared<detail::MeasuredModel>(modules, std::move(options));
}

Report::~Report() = default;
Report::Report(Report&&) noexcept = default;
Report& Report::operator=(Report&&) noexcept = default;

void Report::check_idle(const char* call) const {
  TORCH_CHECK_VALUE(measured_ != nullptr, "views::report::Report::", call,
                    ": this report was moved to another one; use that one.");
  TORCH_CHECK_VALUE(!measured_->attached, "views::report::Report::", call,
                    ": a recording of this report is open; let it end before the next begins.");
}

Repeat Report::record() {
  check_idle("record");
  TORCH_CHECK_VALUE(
      !measured_->gone(),
      "views::report::Report::record: this report let go of its model; let another one follow.");
  return Repeat(std::make_unique<detail::Attached>(measured_));
}

Measurements Report::results() const {
  TORCH_CHECK_VALUE(measured_ != nullptr,
                    "views::report::Report::results: this report was moved to another one; use that one.");
  TORCH_CHECK_VALUE(!measured_->open, "views::report::Report::results: a repeat runs; end it first.");
  return measured_->results();
}

void Report::let_go() {
  check_idle("let_go");
  measured_->let_go();
}

void Report::follow(const selectors::ModuleView& model) {
  check_idle("follow");
  measured_->follow(model.vector());
}

}  // namespace torchtap::views::report
