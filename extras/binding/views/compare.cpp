// Comparisons of models of Python, whose fingerprints torchtap_compare records.

#include <pybind11/stl.h>

#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/views/compare/compare.hpp>

#include "viewed_model.hpp"

namespace torchtap::python {
namespace {

namespace prints = views::compare;

/// Two runs that were compared.
struct Compared {
  prints::Run a, b;
  prints::Pairs pairs;
  prints::Verdict verdict;
  prints::Answer answer;

  Compared(const std::string& file_a, const std::string& file_b, const std::vector<std::string>& map,
           const prints::Thresholds& thresholds)
      : a(prints::Run::read(file_a)),
        b(prints::Run::read(file_b)),
        pairs(prints::pair_up(a, b, map)),
        verdict(prints::judge(a, b, pairs, thresholds)),
        answer(prints::answer_of(verdict)) {}
};

/// What differs, as Python's fields.
py::dict fields_of(const prints::Divergence& one) {
  py::dict fields;
  fields["kind"] = prints::name_of(one.kind);
  fields["path"] = one.path;
  fields["path_b"] = one.path_b;
  fields["type"] = one.type;
  fields["call"] = one.sample;
  fields["call_b"] = one.sample_b;
  fields["slot"] = one.slot;
  fields["after"] = one.after;
  fields["before"] = one.before;
  fields["error"] = one.error;
  fields["scale"] = one.scale;
  fields["allowed"] = one.allowed;
  fields["cause"] = one.cause;
  return fields;
}

py::list rows_of(const Compared& one) {
  py::list rows;
  for (const prints::Row& row : one.verdict.rows) {
    const prints::Call &call = one.a.calls()[row.a], &other = one.b.calls()[row.b];
    py::dict fields;
    fields["path"] = one.a.path(call);
    fields["path_b"] = one.b.path(other);
    fields["type"] = one.a.text(call.type);
    fields["call"] = call.ordinal;
    fields["error_in"] = row.error_in;
    fields["error"] = row.error;
    fields["allowed"] = row.allowed;
    fields["scale"] = row.scale;
    fields["same_bits"] = row.same_bits;
    fields["differs"] = row.differs;
    rows.append(std::move(fields));
  }
  return rows;
}

py::list weights_of(const Compared& one) {
  const auto name = [](const prints::Run& run, std::uint32_t record) -> py::object {
    if (record == prints::kNone) return py::none();
    return py::cast(run.path(run.records()[record]));
  };
  py::list rows;
  for (const prints::WeightRow& row : one.verdict.weights) {
    py::dict fields;
    fields["path"] = name(one.a, row.a);
    fields["path_b"] = name(one.b, row.b);
    fields["agrees"] = row.agrees;
    fields["same_bits"] = row.difference.same_bits;
    fields["error"] = row.difference.error;
    fields["words"] = row.words;
    rows.append(std::move(fields));
  }
  return rows;
}

std::vector<std::string> paths_of(const prints::Run& run, const std::vector<std::uint32_t>& calls) {
  std::vector<std::string> paths;
  for (const std::uint32_t call : calls) paths.push_back(run.path(run.calls()[call]));
  return paths;
}

py::dict facts_of(const Compared& one) {
  const prints::Verdict& verdict = one.verdict;
  py::dict facts;
  facts["agrees"] = one.answer.agrees();
  facts["first"] = one.answer.first ? py::object(fields_of(*one.answer.first)) : py::none();
  facts["proved"] = one.answer.is_proved();
  facts["cause"] = one.answer.cause();
  facts["gaps"] = one.answer.gaps;
  py::list suspects;
  for (const prints::Divergence& suspect : verdict.suspects) suspects.append(fields_of(suspect));
  facts["suspects"] = suspects;
  facts["first_bits"] = verdict.first_bits ? py::object(fields_of(*verdict.first_bits)) : py::none();
  facts["rows"] = rows_of(one);
  facts["weights"] = weights_of(one);
  facts["only_a"] = paths_of(one.a, verdict.only_a);
  facts["only_b"] = paths_of(one.b, verdict.only_b);
  facts["compared"] = verdict.compared;
  facts["not_compared"] = verdict.not_compared;
  facts["largest_error"] = verdict.largest_error;
  facts["largest_at"] = verdict.largest_at;
  facts["dtypes"] = verdict.dtypes;
  facts["map"] = one.pairs.map;
  return facts;
}

std::string text_of(const Compared& one, const std::string& name_a, const std::string& name_b,
                    std::size_t width, bool all) {
  prints::AnswerOptions options;
  options.name_a = name_a, options.name_b = name_b;
  options.width = width, options.all = all;
  std::ostringstream out;
  prints::print(out, one.a, one.b, one.pairs, one.verdict, one.answer, options);
  return out.str();
}

void define(py::module_& module) {
  const auto release = py::call_guard<py::gil_scoped_release>();
  py::class_<Compared>(module, "Compared")
      .def(py::init([](const std::string& a, const std::string& b, const std::vector<std::string>& map,
                       std::optional<std::pair<double, double>> tolerance, bool bits) {
             prints::Thresholds thresholds;
             if (tolerance) std::tie(thresholds.tolerance, thresholds.gain) = *tolerance;
             thresholds.bits = bits;
             return std::make_unique<Compared>(a, b, map, thresholds);
           }),
           release)
      .def("facts", &facts_of)
      .def("text", &text_of, release);
}

const DefinedView defined("compare", &define);

}  // namespace
}  // namespace torchtap::python
