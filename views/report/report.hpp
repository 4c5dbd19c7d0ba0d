#pragma once

/// Measures the cost of each module of a model.

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/selectors/walk.hpp>
#include <torchtap/views/report/measurements.hpp>
#include <torchtap/views/report/options.hpp>
#include <torchtap/views/report/print.hpp>
#include <torchtap/views/report/save.hpp>

namespace torchtap::views::report {

namespace detail {
class MeasuredModel;
struct Attached;
}  // namespace detail

/// The parts of a repeat.
enum class Phase {
  forward,
  backward,
  /// Work outside of the model, charged to no module: a step of the optimizer, a loader.
  other,
  /// As `other`, but a backward through nodes of this repeat's forward counts whenever it comes: a
  /// generator's backward does, in a step that belongs to its critic.
  between,
};

/// One repeat, from `Report::record` to its end, or several, one after the other. Belongs to the thread that
/// made it, and is destroyed there, scopes in reverse order. Move-only. Measurements before an exception
/// count.
class [[nodiscard]] TORCHTAP_API Repeat {
 public:
  Repeat(Repeat&&) noexcept;
  Repeat& operator=(Repeat&&) noexcept;
  ~Repeat();

  /// Announces the next phase; call it outside of the model. Operations of the backward are recognised
  /// without it; the phase counts for operations that run in no module. Throws `c10::ValueError` if no repeat
  /// runs.
  void phase(Phase next);
  /// Whether a call of a module has begun and not returned, in any thread. Any thread may ask.
  bool in_call() const noexcept;
  /// Ends the running repeat and begins another. Call it in the recording's thread: unlike a new recording it
  /// attaches nothing, so it is cheap in a long loop, and can be called in a hook. Throws `c10::ValueError`
  /// after `stop`.
  void next();
  /// Ends the repeat; hooks stay attached, and measure nothing until `next`. Any thread may call it.
  void end() noexcept;
  /// Ends the repeat and detaches; the destructor does so, too.
  void stop() noexcept;

 private:
  friend class Report;
  explicit Repeat(std::unique_ptr<detail::Attached> attached) noexcept;

  std::unique_ptr<detail::Attached> attached_;
};

/// Measures a model:
///
///     report::Report report(*model);
///     for (int repeat = 0; repeat < 20; ++repeat) {
///       auto recording = report.record();
///       auto loss = model->forward(x).mean();
///       recording.phase(report::Phase::backward);
///       loss.backward();
///     }
///     std::cout << report;
///     report.save("insight.json");
///
/// Measurements and gradients of the model are the same bits as without. A `torch::nn` model has hooks only
/// while a recording lives; a TorchScript model keeps them until the report goes, because it is compiled with
/// them. Modules that cannot be hooked in this program are measured as part of the module around them, and
/// `Measurements::notes` names them.
class TORCHTAP_API Report {
 public:
  /// For a model; it has to live as long as the report records. In modules of a walk the first is the root.
  /// Throws `c10::ValueError` for a part of a model.
  explicit Report(const selectors::ModuleView& model, ReportOptions options = {});
  ~Report();
  Report(Report&&) noexcept;
  Report& operator=(Report&&) noexcept;

  /// Begins a repeat: it counts calls of the model by this thread and by threads that LibTorch starts for
  /// them. Throws `c10::ValueError` while another recording of this report lives, and as `operations::Scope`
  /// does.
  Repeat record();

  /// The measurements so far; without any repeat, the modules and their parameters. Throws `c10::ValueError`
  /// while a repeat runs.
  Measurements results() const;

  /// Keeps `results()`, and nothing of the model, which was destroyed or is about to be. `record` throws from
  /// then on until a model follows. Throws `c10::ValueError` while a recording lives.
  void let_go();
  /// Goes on with a model of the same paths and types, as of a program that loads its model again. Throws
  /// `c10::ValueError` for another one, and while a recording lives.
  void follow(const selectors::ModuleView& model);

  /// Writes `results()` to a .json, .csv or .html file. Throws as `results` and `report::save` do.
  void save(const std::string& path) const { report::save(results(), path); }
  /// Prints `results()` as a table of 80 columns; `report::print` has options.
  friend std::ostream& operator<<(std::ostream& out, const Report& report) { return out << report.results(); }

 private:
  void check_idle(const char* call) const;

  std::shared_ptr<detail::MeasuredModel> measured_;
};

}  // namespace torchtap::views::report
