// Reductions in Python: one class around any reduction, and functions that make one from its options.

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <torchtap/base/error.hpp>
#include <torchtap/reductions/reductions.hpp>
#ifdef TORCHTAP_PYTHON_QUANTIZATION
#include <torchtap/quantization/formats.hpp>
#endif

#include "binding.hpp"
#include "callable.hpp"

namespace torchtap::python {
namespace {

using namespace reductions;  // NOLINT: names all of them
using Fold = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;
using AnyShape = core::AnyShape<Fold>;

Fold to_fold(const py::object& callable, const std::string& what) {
  return to_function<at::Tensor, const at::Tensor&, const at::Tensor&>(callable, what);
}

/// A reduction that is an object of the user's. Takes an object of torchtap.reductions._Own, which calls it.
class OwnObject {
 public:
  explicit OwnObject(py::object own)
      : name_(py::cast<std::string>(own.attr("name"))), own_(held(std::move(own))) {}
  OwnObject(const OwnObject& other) : name_(other.name_), count_(other.count_), own_(other.copied()) {}
  OwnObject(OwnObject&&) noexcept = default;

  /// Hands over a copy, which the object may keep or change.
  void update(const at::Tensor& sample) {
    core::check_no_wrapper(sample, name_.c_str());
    const at::Tensor copy = sample.clone();
    const UsersCode users;
    own_->attr("update")(copy);
    ++count_;
  }
  void merge(const OwnObject& other) {
    const UsersCode users;
    own_->attr("merge")(*other.own_);
    count_ += other.count_;
  }
  std::int64_t count() const noexcept { return count_; }
  core::Results results() const {
    core::Results results;
    if (count_ == 0) return results;
    const UsersCode users;
    for (const auto& [name, tensor] : py::dict(own_->attr("results")())) {
      results.set(py::cast<std::string>(name), py::cast<at::Tensor>(tensor));
    }
    return results;
  }
  std::string describe() const { return name_; }

  template <class Archive>
  void save(Archive& archive) const {
    core::state_version(archive, "object", 1);
    const UsersCode users;
    const auto state = py::cast<std::string>(own_->attr("state")());
    archive(cereal::make_nvp("count", count_), cereal::make_nvp("state", state));
  }
  template <class Archive>
  void load(Archive& archive) {
    core::state_version(archive, "object", 1);
    std::string state;
    archive(cereal::make_nvp("count", count_), cereal::make_nvp("state", state));
    const UsersCode users;
    own_->attr("load_state")(py::bytes(state));
  }

 private:
  std::shared_ptr<const py::object> copied() const {
    const UsersCode users;
    return held(own_->attr("copy")());
  }

  std::string name_;
  std::int64_t count_ = 0;
  std::shared_ptr<const py::object> own_;
};

/// The options of a reduction, by name, as Python's classes pass them.
class Given {
 public:
  explicit Given(py::dict options) : options_(std::move(options)) {}

  template <class T>
  T get(const char* name) const {
    return option<T>(options_, name);
  }
  template <class T>
  std::optional<T> find(const char* name) const {
    return get<std::optional<T>>(name);
  }
  Any reduction() const { return Any(to_sink(options_["reduction"])); }

  template <class Options>
  Options rows(Options options) const {
    return options.over(get<std::vector<std::int64_t>>("over")).over_all(get<bool>("over_all"));
  }
  template <class Options>
  Options folds(Options options) const {
    const auto policy = get<std::string>("non_finite");
    TORCH_CHECK_VALUE(policy == "propagate" || policy == "omit" || policy == "raise",
                      "torchtap: non_finite has to be \"propagate\", \"omit\" or \"raise\", got \"", policy,
                      "\".");
    options.non_finite(policy == "omit"    ? NonFinite::omit
                       : policy == "raise" ? NonFinite::raise
                                           : NonFinite::propagate);
    return rows(std::move(options));
  }

 private:
  py::dict options_;
};

template <class R, class Options>
Any plain_fold(const Given& given) {
  return R(given.folds(Options()));
}
template <class R, class Options>
Any plain_rows(const Given& given) {
  return R(given.rows(Options()));
}

Any histogram(const Given& given) {
  HistogramOptions options(given.get<std::int64_t>("bins"));
  options.low(given.find<double>("low")).high(given.find<double>("high"));
  return Histogram(given.rows(options));
}

Any by(const Given& given) {
  const auto name = given.get<std::string>("name");
  const auto n = given.find<std::int64_t>("n");
  ByOptions options = n.has_value() ? ByOptions(name, *n) : ByOptions(name);
  if (const auto most = given.find<std::int64_t>("most")) options.most(*most);
  return By(std::move(options), given.reduction());
}

Any series(const Given& given) {
  std::vector<Any> members;
  for (const auto& member : given.get<std::vector<py::object>>("members"))
    members.emplace_back(to_sink(member));
  return AnySeries(std::move(members));
}

Any mapped(const Given& given) {
  const auto other = given.find<std::string>("other");
  const auto function = given.get<py::object>("function");
  const std::string what = "the function of a Map";
  if (!other.has_value())
    return map(to_function<at::Tensor, const at::Tensor&>(function, what), given.reduction());
  return map(*other, to_fold(function, what), given.reduction());
}

CovarianceOptions covariance(const Given& given) {
  return given.folds(CovarianceOptions().unbiased(given.get<bool>("unbiased")));
}

#ifdef TORCHTAP_PYTHON_QUANTIZATION
Any formats(const Given& given) {
  const auto names = given.find<std::vector<std::string>>("formats");
  auto options = names.has_value() ? quantization::FormatsOptions(*names) : quantization::FormatsOptions();
  for (const auto& [format, scale] : given.get<std::map<std::string, double>>("scales")) {
    options.scale(format, scale);
  }
  return quantization::Formats(given.rows(std::move(options)));
}
#else
Any formats(const Given&) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "torchtap.Formats needs the component quantization, which this torchtap was built without. Install it "
      "in the source with `pip install . --config-settings "
      "cmake.define.TORCHTAP_COMPONENTS=\"python;quantization\"`.");
}
#endif

using Make = std::function<Any(const Given&)>;
const std::map<std::string, Make>& makers() {
  static const auto* all = new std::map<std::string, Make>{
      {"Sum", plain_fold<Sum, SumOptions>},
      {"Mean", plain_fold<Mean, MeanOptions>},
      {"Min", plain_fold<Min, MinOptions>},
      {"Max", plain_fold<Max, MaxOptions>},
      {"AbsMax", plain_fold<AbsMax, AbsMaxOptions>},
      {"Gram", plain_fold<Gram, GramOptions>},
      {"Count", plain_rows<Count, CountOptions>},
      {"First", plain_rows<First, FirstOptions>},
      {"Last", plain_rows<Last, LastOptions>},
      {"Moments",
       [](const Given& given) {
         return Moments(given.folds(
             MomentsOptions().unbiased(given.get<bool>("unbiased")).order(given.get<std::int64_t>("order"))));
       }},
      {"Norm", [](const Given& given) { return Norm(given.folds(NormOptions().p(given.get<double>("p")))); }},
      {"EMA", [](const Given& given) { return EMA(given.folds(EMAOptions(given.get<double>("decay")))); }},
      {"Histogram", histogram},
      {"LogHistogram",
       [](const Given& given) {
         return LogHistogram(given.rows(LogHistogramOptions(given.get<std::int64_t>("mantissa_bits"))));
       }},
      {"Quantiles",
       [](const Given& given) {
         QuantilesOptions options;
         options.at(given.get<std::vector<double>>("at")).k(given.get<std::int64_t>("k"));
         return Quantiles(given.rows(options.seed(given.get<std::uint64_t>("seed"))));
       }},
      {"TopK",
       [](const Given& given) {
         return TopK(
             given.folds(TopKOptions(given.get<std::int64_t>("k")).largest(given.get<bool>("largest"))));
       }},
      {"Reservoir",
       [](const Given& given) {
         return Reservoir(given.rows(
             ReservoirOptions(given.get<std::int64_t>("k")).seed(given.get<std::uint64_t>("seed"))));
       }},
      {"Covariance", [](const Given& given) { return Covariance(covariance(given)); }},
      {"CrossCovariance",
       [](const Given& given) { return CrossCovariance(given.get<std::string>("name"), covariance(given)); }},
      {"LinearCKA",
       [](const Given& given) { return LinearCKA(given.get<std::string>("name"), covariance(given)); }},
      {"Blocks", [](const Given& given) { return Blocks(given.get<std::int64_t>("most")); }},
      {"Series", series},
      {"By", by},
      {"Where", [](const Given& given) { return Where(given.get<std::string>("name"), given.reduction()); }},
      {"Joint", [](const Given& given) { return Joint(given.get<std::string>("name"), given.reduction()); }},
      {"Every", [](const Given& given) { return every(given.get<std::int64_t>("n"), given.reduction()); }},
      {"Window", [](const Given& given) { return window(given.get<std::int64_t>("n"), given.reduction()); }},
      {"Over",
       [](const Given& given) {
         return over(given.get<std::vector<std::int64_t>>("dims"), given.reduction());
       }},
      {"Map", mapped},
      {"Formats", formats},
  };
  return *all;
}

Any parsed(const std::string& text, std::vector<std::int64_t> dims, bool over_all) {
  return parse(text, ParseOptions().over(std::move(dims)).over_all(over_all));
}

/// "Moments", of a reduction's description.
std::string name_of(const Any& reduction) {
  const std::string described = reduction.describe();
  return described.substr(0, described.find('('));
}

at::Tensor only_result(const Any& reduction) {
  const core::Results results = reduction.results();
  TORCH_CHECK_VALUE(results.size() == 1, "torchtap: ", reduction.describe(), " has ",
                    results.empty() ? std::string("no results before its first sample")
                                    : "the results " + base::quoted(results.names()) + "; name one",
                    ".");
  return results.begin()->second;
}

at::Tensor quantile(const Any& reduction, double q) {
  if (const auto* sketch = reduction.get<Quantiles>()) return sketch->quantile(q);
  if (const auto* bins = reduction.get<LogHistogram>()) return bins->quantile(q);
  TORCH_CHECK_TYPE(false, "torchtap: ", reduction.describe(),
                   " has no quantiles; use Quantiles or LogHistogram.");
}

py::tuple state_of(const Any& reduction) {
  const std::unique_ptr<core::Sink> sink{Any(reduction)};
  const auto saved = core::save(*sink);
  TORCH_CHECK_TYPE(saved.has_value(), "torchtap: ", reduction.describe(),
                   " cannot be pickled, because it has a function or an object of yours.");
  return py::make_tuple(saved->recipe, py::bytes(saved->bytes));
}

Any from_state(const py::tuple& state) {
  return restore({py::cast<std::string>(state[0]), py::cast<std::string>(state[1])});
}

}  // namespace

std::unique_ptr<core::Sink> to_sink(const py::object& reduction) {
  if (py::isinstance<Any>(reduction)) return Any(py::cast<const Any&>(reduction));
  const py::object own = py::module_::import("torchtap.reductions").attr("_own")(reduction);
  if (!own.is_none()) return core::make_sink(OwnObject(own));
  TORCH_CHECK_TYPE(PyCallable_Check(reduction.ptr()) != 0 && PyType_Check(reduction.ptr()) == 0,
                   "torchtap: expected a reduction, such as torchtap.Moments(), an object with "
                   "update(sample) and results(), or a callable (accumulated, sample) -> accumulated, got ",
                   py::cast<std::string>(py::repr(reduction)), ".");
  if (py::isinstance<AnyShape>(reduction)) return core::make_sink(py::cast<AnyShape>(reduction));
  return core::make_sink(to_fold(reduction, "the callable"));
}

void define_reductions(py::module_& module) {
  py::class_<Any>(module, "Reduction")
      .def(py::init([](const std::string& name, const py::kwargs& options) {
        const auto found = makers().find(name);
        TORCH_CHECK_VALUE(found != makers().end(), "torchtap.Reduction: there is no class \"", name,
                          "\"; torchtap.parse(\"moments\") makes a reduction of its name, and "
                          "torchtap.Moments() with all options.");
        return found->second(Given(options));
      }))
      // With Python's lock, which is all that keeps an object whole that several threads update.
      .def(
          "update",
          [](Any& reduction, const py::object& sample) {
            reduction.update(tensor_argument(sample, name_of(reduction) + ".update"));
          },
          py::arg("sample"),
          "Folds a sample in. Throws if it does not fit those before; nothing is changed then.")
      .def(
          "check",
          [](const Any& reduction, const py::object& sample) {
            reduction.check(tensor_argument(sample, name_of(reduction) + ".check"));
          },
          py::arg("sample"), "Throws the error that update would throw. Changes nothing.")
      .def(
          "merge",
          [](Any& reduction, const py::object& other) {
            reduction.merge(argument<const Any&>(other, name_of(reduction) + ".merge", "a reduction"));
          },
          py::arg("other"), "Adds what `other`, a reduction made alike, has seen after this one's samples.")
      .def_property_readonly("count", &Any::count, "The number of samples or, under over, of rows.")
      .def_property_readonly("value", &only_result, "The result, where there is one alone.")
      .def(
          "results", [](const Any& reduction) { return to_python(reduction.results()); },
          "The results by name; empty before the first sample.")
      .def("__getitem__",
           [](const Any& reduction, const std::string& name) { return reduction.results().at(name); })
      .def("quantile", &quantile, py::arg("q"), "The q-quantile; of Quantiles and LogHistogram.")
      .def("fresh", &Any::fresh, "The same reduction without samples.")
      .def("__copy__", [](const Any& reduction) { return Any(reduction); })
      .def("__deepcopy__", [](const Any& reduction, const py::dict&) { return Any(reduction); })
      .def("__repr__", &Any::describe)
      .def(py::pickle(&state_of, &from_state));
  py::class_<AnyShape>(module, "AnyShape", "A callable that `any_shape` made.")
      .def("__call__", &AnyShape::operator(), py::arg("accumulated"), py::arg("sample"));
  module.def(
      "any_shape",
      [](const py::object& callable) { return core::any_shape(to_fold(callable, "the callable")); },
      py::arg("callable"));
  module.def("parse", &parsed);
  module.def(
      "catalogue",
      [] {
        std::map<std::string, std::string> all;
        for (const auto& entry : catalogue()) all[entry.usage] = entry.summary;
        return all;
      },
      "What `parse` knows, and what it gives.");
}

}  // namespace torchtap::python
