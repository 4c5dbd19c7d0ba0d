// Measurements from JSON. A document is not trusted: each field is checked before it is read.
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <type_traits>

#include <torchtap/base/dtypes.hpp>
#include <torchtap/base/format.hpp>
#include <torchtap/base/rapidjson.hpp>
#include <torchtap/views/report/detail/fields.hpp>
#include <torchtap/views/report/detail/names.hpp>
#include <torchtap/views/report/detail/read_json.hpp>
#include <torchtap/views/report/save.hpp>

namespace torchtap::views::report {
namespace {

using base::rapid::Document;
using base::rapid::Value;

constexpr unsigned kFlags = base::rapid::kParseFullPrecisionFlag | base::rapid::kParseIterativeFlag;
constexpr int kDeepest = 1000;  // modules in each other: reading and destroying them is recursive

std::string text_of(const Value& value) {
  return {value.GetString(), value.GetStringLength()};
}

/// Reads the fields of one object.
class Reader {
 public:
  Reader(const std::string& where, std::string place, const Value& object)
      : where_(where), place_(std::move(place)), object_(object) {
    check(object.IsObject(), place_, "an object", object);
  }

  template <class T>
  void operator()(const char* name, T& field) {
    read(inside(name), at(name), field);
  }
  template <class T>
  void derived(const char* /*name*/, const T& /*value*/) {}
  template <class T>
  void added(const char* name, T& field) {
    if (object_.HasMember(name)) (*this)(name, field);
  }
  void operator()(const char* name, std::optional<double>& field) {
    field.reset();
    if (const Value& value = at(name); !value.IsNull()) read(inside(name), value, field.emplace());
  }
  void tensors(const std::string& name, std::vector<TensorInfo>& tensors) {
    std::vector<std::string> names, dtypes, devices;
    std::vector<std::vector<std::int64_t>> shapes;
    std::vector<std::int64_t> bytes;
    (*this)((name + "_names").c_str(), names);
    (*this)((name + "_shapes").c_str(), shapes);
    (*this)((name + "_dtypes").c_str(), dtypes);
    (*this)((name + "_devices").c_str(), devices);
    (*this)((name + "_bytes").c_str(), bytes);
    const std::size_t size = names.size();
    TORCH_CHECK_VALUE(
        shapes.size() == size && dtypes.size() == size && devices.size() == size && bytes.size() == size,
        where_, place_, " says of its tensors (", name, "_…) ", size, " names, ", shapes.size(), " shapes, ",
        dtypes.size(), " dtypes, ", devices.size(), " devices and ", bytes.size(),
        " sizes; they should be as many.");
    for (std::size_t i = 0; i < size; ++i) {
      const auto dtype = base::dtype_of_text(dtypes[i]);
      tensors.push_back({names[i], shapes[i], dtype.value_or(at::ScalarType::Undefined),
                         device(name + "_devices", devices[i]), bytes[i]});
    }
  }

  const Value& at(const char* name) const {
    const auto found = object_.FindMember(name);
    TORCH_CHECK_VALUE(found != object_.MemberEnd(), where_, place_, " has no \"", name, "\".");
    return found->value;
  }
  std::string inside(const std::string& name) const { return place_ + "." + name; }

 private:
  void check(bool is, const std::string& place, const char* wanted, const Value& value) const {
    static constexpr const char* kinds[]{"null",     "false",  "true",    "an object",
                                         "an array", "a text", "a number"};
    TORCH_CHECK_VALUE(is, where_, place, " should be ", wanted, " and is ", kinds[value.GetType()], ".");
  }
  at::Device device(const std::string& name, const std::string& text) const {
    try {
      return at::Device(text);
    } catch (const c10::Error&) {
      TORCH_CHECK_VALUE(false, where_, inside(name), " has \"", text,
                        "\", which is no device of this LibTorch.");
    }
  }

  void read(const std::string& place, const Value& value, std::int64_t& field) {
    check(value.IsInt64(), place, "a whole number", value);
    field = value.GetInt64();
  }
  void read(const std::string& place, const Value& value, bool& field) {
    check(value.IsBool(), place, "true or false", value);
    field = value.GetBool();
  }
  void read(const std::string& place, const Value& value, double& field) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    if (value.IsString()) {
      const std::string text = text_of(value);
      TORCH_CHECK_VALUE(text == "NaN" || text == "Infinity" || text == "-Infinity", where_, place,
                        " should be a number and is \"", text, "\".");
      field = text == "NaN" ? std::nan("") : text[0] == '-' ? -infinity : infinity;
      return;
    }
    check(value.IsNumber(), place, "a number", value);
    field = value.GetDouble();
  }
  void read(const std::string& place, const Value& value, std::string& field) {
    check(value.IsString(), place, "a text", value);
    field = text_of(value);
  }
  template <class From>
  auto known(const std::string& place, const Value& value, From&& from, const char* what) {
    std::string text;
    read(place, value, text);
    const auto found = from(text);
    TORCH_CHECK_VALUE(found, where_, place, " has \"", text, "\", which is no ", what, ".");
    return *found;
  }
  void read(const std::string& place, const Value& value, Role& field) {
    field = known(place, value, detail::role_from, "role");
  }
  template <class T>
  void read(const std::string& place, const Value& value, std::vector<T>& field) {
    check(value.IsArray(), place, "an array", value);
    field.clear();
    for (const Value& element : value.GetArray()) {
      T one{};
      read(place + "[" + std::to_string(field.size()) + "]", element, one);
      field.push_back(std::move(one));
    }
  }
  template <class T, class = decltype(&detail::Fields<T>::template visit<Reader, T>)>
  void read(const std::string& place, const Value& value, T& field) {
    Reader reader(where_, place, value);
    detail::Fields<T>::visit(reader, field);
  }

  const std::string& where_;
  std::string place_;
  const Value& object_;
};

/// The rule that a mark of an earlier format is by now.
std::string rule_of(const std::string& mark) {
  static const std::map<std::string, const char*> rules{{"dead", "dead_relu"},
                                                        {"exploding", "exploding_gradient"},
                                                        {"vanishing", "vanishing_gradient"},
                                                        {"non-finite", "nonfinite"},
                                                        {"never ran", "never_ran"}};
  const auto found = rules.find(mark);
  return found == rules.end() ? mark : found->second;
}

void read_module(const std::string& where, const std::string& place, const Value& value, int depth,
                 ModuleRow& row) {
  TORCH_CHECK_VALUE(depth < kDeepest, where, "modules are nested deeper than ", kDeepest, ".");
  Reader reader(where, place, value);
  Reader info(where, reader.inside("info"), reader.at("info"));
  detail::Fields<ModuleRow>::visit(info, row);
  std::transform(row.marks.begin(), row.marks.end(), row.marks.begin(), rule_of);
  const Value& children = reader.at("children");
  TORCH_CHECK_VALUE(children.IsObject(), where, reader.inside("children"), " should be an object.");
  for (const auto& member : children.GetObject()) {
    ModuleRow& child = row.children.emplace_back();
    child.name = text_of(member.name);
    read_module(where, reader.inside("children.") + child.name, member.value, depth + 1, child);
  }
}

}  // namespace

namespace detail {

Measurements read_json(const std::string& text, const std::string& where) {
  Document document;
  document.Parse<kFlags>(text.data(), text.size());
  TORCH_CHECK_VALUE(!document.HasParseError(), where, "it is not JSON, from byte ", document.GetErrorOffset(),
                    " on.");
  const bool one = document.IsObject() && document.MemberCount() == 1;
  TORCH_CHECK_VALUE(
      one && document.MemberBegin()->value.IsObject() && document.MemberBegin()->value.HasMember("report"),
      where, "it is JSON, but not a report: it should be an object with one model, which has \"report\".");
  const auto& member = *document.MemberBegin();
  const std::string name = text_of(member.name);
  Reader root(where, name, member.value);
  Reader report(where, root.inside("report"), root.at("report"));
  std::int64_t format = 0;
  report("format", format);
  const std::string unreadable = base::unreadable_format(format, kFormat);
  TORCH_CHECK_VALUE(unreadable.empty(), where, unreadable, ".");
  Measurements results;
  Fields<Measurements>::visit(report, results);
  read_module(where, name, member.value, 0, results.root);
  return results;
}

}  // namespace detail

Measurements from_json(const std::string& text) {
  return detail::read_json(text, "views::report::from_json: ");
}

}  // namespace torchtap::views::report
