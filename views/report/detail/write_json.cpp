// Measurements as JSON.
#include <cmath>
#include <type_traits>

#include <torchtap/base/dtypes.hpp>
#include <torchtap/base/rapidjson.hpp>
#include <torchtap/version.hpp>
#include <torchtap/views/report/detail/fields.hpp>
#include <torchtap/views/report/detail/names.hpp>
#include <torchtap/views/report/detail/write_json.hpp>
#include <torchtap/views/report/save.hpp>
#include <torchtap/views/text/characters.hpp>
#include <torchtap/views/text/units.hpp>

namespace torchtap::views::report {
namespace {

using base::rapid::kFormatSingleLineArray;
using Buffer = base::rapid::StringBuffer;
using Json = base::rapid::PrettyWriter<Buffer>;

class Writer {
 public:
  Writer(Json& json, bool ordered) : json_(json), ordered_(ordered) {}

  template <class T>
  void operator()(const char* name, const T& value) {
    json_.Key(name);
    write(value);
  }
  template <class T>
  void derived(const char* name, const T& value) {
    (*this)(name, value);
  }
  template <class T>
  void added(const char* name, const T& value) {
    (*this)(name, value);
  }
  void operator()(const char* name, const std::optional<double>& value) {
    json_.Key(name);
    if (value) {
      write(*value);
    } else {
      json_.Null();
    }
  }
  void tensors(const std::string& name, const std::vector<TensorInfo>& tensors) {
    const auto column = [&](const char* what, const auto& field) {
      json_.Key((name + what).c_str());
      json_.StartArray();
      for (const TensorInfo& tensor : tensors) write(field(tensor));
      json_.EndArray();
    };
    column("_names", [](const TensorInfo& tensor) { return tensor.name; });
    column("_shapes", [](const TensorInfo& tensor) { return tensor.shape; });
    column("_dtypes", [](const TensorInfo& tensor) { return base::dtype_text(tensor.dtype); });
    column("_devices", [](const TensorInfo& tensor) { return tensor.device.str(); });
    column("_bytes", [](const TensorInfo& tensor) { return tensor.bytes; });
  }

  void module(const ModuleRow& row, const Measurements* results) {
    json_.StartObject();
    if (results != nullptr) {
      json_.Key("report");
      json_.StartObject();
      (*this)("format", detail::kFormat);
      (*this)("torchtap", std::string(TORCHTAP_VERSION));
      detail::Fields<Measurements>::visit(*this, *results);
      json_.EndObject();
    }
    json_.Key("info");
    write(row);
    if (ordered_ && row.children.size() > 1) {
      json_.Key("order");
      json_.StartArray();
      for (const ModuleRow& child : row.children) text(child.name);
      json_.EndArray();
    }
    json_.Key("children");
    json_.StartObject();
    for (const ModuleRow& child : row.children) {
      text(child.name, /*key=*/true);
      module(child, nullptr);
    }
    json_.EndObject();
    json_.EndObject();
  }
  void text(const std::string& text, bool key = false) {
    const std::string good = text::utf8_text(text);
    const auto size = static_cast<base::rapid::SizeType>(good.size());
    if (key) {
      json_.Key(good.data(), size);
    } else {
      json_.String(good.data(), size);
    }
  }

 private:
  void write(std::int64_t value) { json_.Int64(value); }
  void write(bool value) { json_.Bool(value); }
  void write(double value) {
    if (std::isfinite(value)) {  // cereal has it write others as words that are not JSON
      json_.Double(value);
    } else {
      text(std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
    }
  }
  void write(const std::string& value) { text(value); }
  void write(Role role) { text(detail::name_of(role)); }
  template <class T>
  void write(const std::vector<T>& values) {
    json_.StartArray();
    for (const T& value : values) write(value);
    json_.EndArray();
  }
  template <class T, class = decltype(&detail::Fields<T>::template visit<Writer, const T>)>
  void write(const T& value) {
    json_.StartObject();
    detail::Fields<T>::visit(*this, value);
    json_.EndObject();
  }

  Json& json_;
  const bool ordered_;
};

}  // namespace

namespace detail {

std::string write_json(const Measurements& results, bool ordered) {
  Buffer buffer;
  Json json(buffer);
  json.SetIndent(' ', ordered ? 0 : 1);
  json.SetFormatOptions(kFormatSingleLineArray);
  Writer writer(json, ordered);
  json.StartObject();
  writer.text(results.root.type, /*key=*/true);
  writer.module(results.root, &results);
  json.EndObject();
  return std::string(buffer.GetString(), buffer.GetSize()) + "\n";
}

}  // namespace detail

std::string json(const Measurements& results) {
  return detail::write_json(results, /*ordered=*/false);
}

}  // namespace torchtap::views::report
