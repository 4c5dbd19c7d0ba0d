// Measurements from JSON. A document is not trusted: each field is checked before it is read.
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>

#include <torchtap/base/dtypes.hpp>
#include <torchtap/base/format.hpp>
#include <torchtap/json/json.hpp>
#include <torchtap/views/report/detail/fields.hpp>
#include <torchtap/views/report/detail/names.hpp>
#include <torchtap/views/report/detail/read_json.hpp>
#include <torchtap/views/report/save.hpp>

namespace torchtap::views::report {
namespace {

/// Reads the fields of one object.
class FieldReader {
 public:
  explicit FieldReader(json::Reader object) : object_(std::move(object)) {}

  template <class T>
  void operator()(const char* name, T& field) {
    read(object_.at(name), field);
  }
  template <class T>
  void derived(const char* /*name*/, const T& /*value*/) {}
  template <class T>
  void added(const char* name, T& field) {
    if (object_.find(name) != nullptr) (*this)(name, field);
  }
  void tensors(const std::string& name, std::vector<TensorInfo>& tensors) {
    const auto names = object_.get<std::vector<std::string>>(name + "_names");
    const auto shapes = object_.get<std::vector<std::vector<std::int64_t>>>(name + "_shapes");
    const auto dtypes = object_.get<std::vector<std::string>>(name + "_dtypes");
    const auto devices = object_.at(name + "_devices").elements();
    const auto bytes = object_.get<std::vector<std::int64_t>>(name + "_bytes");
    const std::size_t size = names.size();
    if (shapes.size() != size || dtypes.size() != size || devices.size() != size || bytes.size() != size) {
      object_.bad(c10::str("says of its tensors (", name, "_…) ", size, " names, ", shapes.size(),
                           " shapes, ", dtypes.size(), " dtypes, ", devices.size(), " devices and ",
                           bytes.size(), " sizes; they should be as many"));
    }
    for (std::size_t i = 0; i < size; ++i) {
      const auto dtype = base::dtype_of_text(dtypes[i]);
      tensors.push_back(
          {names[i], shapes[i], dtype.value_or(at::ScalarType::Undefined), device(devices[i]), bytes[i]});
    }
  }

 private:
  static at::Device device(const json::Reader& value) {
    const auto text = value.get<std::string>();
    try {
      return at::Device(text);
    } catch (const c10::Error&) {
      value.check(false, "a device of this LibTorch");
      throw;
    }
  }

  template <class T>
  static void read(const json::Reader& value, T& field) {
    if constexpr (detail::HasFields<T>::value) {
      FieldReader reader(value);
      detail::Fields<T>::visit(reader, field);
    } else {
      field = value.get<T>();
    }
  }
  static void read(const json::Reader& value, std::optional<double>& field) {
    field = value.value().is_null() ? std::nullopt : std::optional(value.get<double>());
  }
  static void read(const json::Reader& value, Role& field) {
    const auto known = detail::role_from(value.get<std::string>());
    value.check(known.has_value(), "a role");
    field = *known;
  }
  template <class T>
  static void read(const json::Reader& value, std::vector<T>& field) {
    field.clear();
    for (const json::Reader& element : value.elements()) {
      T one{};
      read(element, one);
      field.push_back(std::move(one));
    }
  }

  const json::Reader object_;
};

/// The rule that a mark of an earlier format is by now.
std::string rule_of(const std::string& mark) {
  static const auto& rules =
      *new const std::map<std::string, const char*>{{"dead", "dead_relu"},
                                                    {"exploding", "exploding_gradient"},
                                                    {"vanishing", "vanishing_gradient"},
                                                    {"non-finite", "nonfinite"},
                                                    {"never ran", "never_ran"}};
  const auto found = rules.find(mark);
  return found == rules.end() ? mark : found->second;
}

void read_module(const json::Reader& module, ModuleRow& row) {
  FieldReader info(module.at("info"));
  detail::Fields<ModuleRow>::visit(info, row);
  std::transform(row.marks.begin(), row.marks.end(), row.marks.begin(), rule_of);
  for (const auto& [name, member] : module.at("children").members()) {
    ModuleRow& child = row.children.emplace_back();
    child.name = name;
    read_module(member, child);
  }
}

}  // namespace

namespace detail {

Measurements read_json(const std::string& text, const std::string& where) {
  const json::Json document = json::parse(text, where);
  const bool one = document.is_object() && document.size() == 1;
  TORCH_CHECK_VALUE(
      one && document.front().contains("report"), where,
      "it is JSON, but not a report: it should be an object with one model, which has \"report\".");
  const json::Reader root = json::Reader(document, where).members().front().second;
  const json::Reader report = root.at("report");
  const std::string unreadable = base::unreadable_format(report.get<std::int64_t>("format"), kFormat);
  TORCH_CHECK_VALUE(unreadable.empty(), where, unreadable, ".");
  Measurements results;
  FieldReader fields(report);
  Fields<Measurements>::visit(fields, results);
  read_module(root, results.root);
  return results;
}

}  // namespace detail

Measurements from_json(const std::string& text) {
  return detail::read_json(text, "views::report::from_json: ");
}

}  // namespace torchtap::views::report
