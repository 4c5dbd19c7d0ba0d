// Measurements as JSON.
#include <torchtap/base/dtypes.hpp>
#include <torchtap/json/json.hpp>
#include <torchtap/version.hpp>
#include <torchtap/views/report/detail/fields.hpp>
#include <torchtap/views/report/detail/names.hpp>
#include <torchtap/views/report/detail/write_json.hpp>
#include <torchtap/views/report/save.hpp>

namespace torchtap::views::report {
namespace {

using json::Json;

/// Makes an object of the fields that it visits.
class Writer {
 public:
  template <class T>
  static Json object_of(const T& value) {
    Writer writer;
    detail::Fields<T>::visit(writer, value);
    return std::move(writer.object_);
  }

  template <class T>
  void operator()(const char* name, const T& value) {
    object_[name] = json_of(value);
  }
  template <class T>
  void derived(const char* name, const T& value) {
    (*this)(name, value);
  }
  template <class T>
  void added(const char* name, const T& value) {
    (*this)(name, value);
  }
  void tensors(const std::string& name, const std::vector<TensorInfo>& tensors) {
    Json names = Json::array(), shapes = names, dtypes = names, devices = names, bytes = names;
    for (const TensorInfo& tensor : tensors) {
      names.push_back(tensor.name);
      shapes.push_back(tensor.shape);
      dtypes.push_back(base::dtype_text(tensor.dtype));
      devices.push_back(tensor.device.str());
      bytes.push_back(tensor.bytes);
    }
    object_[name + "_names"] = std::move(names);
    object_[name + "_shapes"] = std::move(shapes);
    object_[name + "_dtypes"] = std::move(dtypes);
    object_[name + "_devices"] = std::move(devices);
    object_[name + "_bytes"] = std::move(bytes);
  }

 private:
  static Json json_of(Role role) { return detail::name_of(role); }
  template <class T>
  static Json json_of(const T& value) {
    if constexpr (detail::HasFields<T>::value) {
      return object_of(value);
    } else {
      return value;
    }
  }
  template <class T>
  static Json json_of(const std::vector<T>& values) {
    Json list = Json::array();
    for (const T& value : values) list.push_back(json_of(value));
    return list;
  }

  Json object_ = Json::object();
};

Json json_of_module(const ModuleRow& row, const Measurements* results, bool ordered) {
  Json module = Json::object();
  if (results != nullptr) {
    Json& report = module["report"] = {{"format", detail::kFormat}, {"torchtap", TORCHTAP_VERSION}};
    report.update(Writer::object_of(*results));
  }
  module["info"] = Writer::object_of(row);
  if (ordered && row.children.size() > 1) {
    Json& order = module["order"] = Json::array();
    for (const ModuleRow& child : row.children) order.push_back(child.name);
  }
  Json& children = module["children"] = Json::object();
  for (const ModuleRow& child : row.children)
    json::add(children, child.name, json_of_module(child, nullptr, ordered));
  return module;
}

}  // namespace

namespace detail {

std::string write_json(const Measurements& results, bool ordered) {
  Json document;
  json::add(document, results.root.type, json_of_module(results.root, &results, ordered));
  return ordered ? json::text(document) : json::lines(document);
}

}  // namespace detail

std::string json(const Measurements& results) {
  return detail::write_json(results, /*ordered=*/false);
}

}  // namespace torchtap::views::report
