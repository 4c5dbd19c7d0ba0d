#pragma once

/// Learns the reference of a model.

#include <memory>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/recorders/recorder.hpp>
#include <torchtap/selectors/selector.hpp>
#include <torchtap/selectors/walk.hpp>
#include <torchtap/storage/entry.hpp>
#include <torchtap/views/monitor/options.hpp>

namespace torchtap::views::monitor {

/// Takes in every forward of a model, as a `Monitor` with `MonitorOptions::learn` does, and leaves it to its
/// owner to save what was learned:
///
///     views::monitor::Learner learner(*model);
///     for (const auto& batch : *validation) model->forward(batch.data);
///     storage::save("reference", learner.entries(), storage::SaveOptions().mkdir(true));
class TORCHTAP_API Learner {
 public:
  /// `select`: the modules besides the model itself. Throws `c10::ValueError`, which names the remedies, if
  /// no module can be reached.
  explicit Learner(const selectors::ModuleView& model,
                   const selectors::Selector& select = MonitorOptions().select());
  Learner(Learner&&) noexcept;
  Learner& operator=(Learner&&) noexcept;
  ~Learner();

  /// Goes on with another object of the model. Throws `c10::ValueError` if its modules have other paths or
  /// types.
  void follow(const selectors::ModuleView& model);
  /// The reference so far, for `storage::save`: results of `reductions::Blocks`.
  std::vector<storage::Entry> entries() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace torchtap::views::monitor
