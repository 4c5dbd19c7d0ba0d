// Wrong uses that the compiler has to refuse in words of ours: check.py compiles this file, and looks for
// each text that stands after `says:` among the errors.
#include <torchtap/core/sink.hpp>
#include <torchtap/hooks/register_value.hpp>
#include <torchtap/recorders/options.hpp>
#include <torchtap/reductions/every.hpp>
#include <torchtap/reductions/map.hpp>
#include <torchtap/reductions/mean.hpp>
#include <torchtap/reductions/series.hpp>
#include <torchtap/selectors/selector.hpp>

namespace {

namespace core = torchtap::core;
namespace reductions = torchtap::reductions;
using torchtap::recorders::Options;

/// Reductions but for one member.
struct NoUpdate {
  void merge(const NoUpdate& other);
  std::int64_t count() const;
  core::Results results() const;
};

struct NoMerge {
  void update(const at::Tensor& sample);
  std::int64_t count() const;
  core::Results results() const;
};

struct NoCount {
  void update(const at::Tensor& sample);
  void merge(const NoCount& other);
  core::Results results() const;
};

struct NoResults {
  void update(const at::Tensor& sample);
  void merge(const NoResults& other);
  std::int64_t count() const;
};

struct NoReduction {};

struct UnknownValue {
  at::Tensor tensor;
};

void wrong() {
  // says: expected a reduction (update, merge, count, results) or a callable at::Tensor(const
  core::make_sink(NoReduction{});
  // says: a reduction needs: void update(const at::Tensor& sample);
  Options().reduction(NoUpdate{});
  // says: a reduction needs: void merge(const R& other);
  core::SinkOf<NoMerge> sink(NoMerge{});
  // says: a reduction needs: std::int64_t count() const;
  using Wrong = reductions::Series<reductions::Mean, NoCount>;
  static_cast<void>(sizeof(Wrong));
  // says: a reduction needs: torchtap::core::Results results() const;
  static_cast<void>(sizeof(reductions::Every<NoResults>));
  // says: map takes a callable: at::Tensor(const at::Tensor& sample)
  static_cast<void>(sizeof(reductions::Map<int (*)(const at::Tensor&, int), reductions::Mean>));
  // says: condition needs a callable bool() or bool(const torchtap::recorders::Sample&)
  Options().condition([](int epoch) { return epoch > 3; });
  // says: needs at least one module type
  torchtap::selectors::types<>();
  // says: torchtap::hooks::register_value<T>: specialise torchtap::hooks::Visit<T> first
  torchtap::hooks::register_value<UnknownValue>();
}

}  // namespace
