// Measurements as CSV have the fields of JSON's "info", in columns.
#include <cmath>
#include <cstdio>
#include <locale>
#include <sstream>
#include <string_view>

#include <torchtap/base/dtypes.hpp>
#include <torchtap/base/utf8.hpp>
#include <torchtap/views/report/detail/fields.hpp>
#include <torchtap/views/report/save.hpp>
#include <torchtap/views/text/units.hpp>

namespace torchtap::views::report {
namespace {

std::string cell(std::int64_t value) {
  return std::to_string(value);
}
std::string cell(bool value) {
  return value ? "true" : "false";
}
std::string cell(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text.precision(17);
  text << value;
  return text.str();
}
std::string cell(const std::string& value) {
  return value;
}
std::string cell(const std::vector<std::int64_t>& shape) {
  return text::shape_text(shape, "scalar");
}
template <class T>
std::string cell(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += (text.empty() ? "" : "; ") + cell(value);
  return text;
}

/// Gives a line: of the names of the fields, or of their values.
class Cells {
 public:
  explicit Cells(bool titles) : titles_(titles) {}

  template <class T>
  void operator()(const char* name, const T& value) {
    write(name, value, 0);
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
    add(name, value ? cell(*value) : "");
  }
  void tensors(const std::string& name, const std::vector<TensorInfo>& tensors) {
    const auto column = [&](const char* what, const auto& field) {
      std::string text;
      for (const TensorInfo& tensor : tensors) text += (text.empty() ? "" : "; ") + cell(field(tensor));
      add(name + what, text);
    };
    column("_names", [](const TensorInfo& tensor) { return tensor.name; });
    column("_shapes", [](const TensorInfo& tensor) { return tensor.shape; });
    column("_dtypes", [](const TensorInfo& tensor) { return base::dtype_text(tensor.dtype); });
    column("_devices", [](const TensorInfo& tensor) { return tensor.device.str(); });
    column("_bytes", [](const TensorInfo& tensor) { return tensor.bytes; });
  }

  const std::string& text() const { return text_; }

 private:
  template <class T>
  auto write(const char* name, const T& value, int)
      -> decltype(&detail::Fields<T>::template visit<Cells, const T>, void()) {
    const std::string before = prefix_;
    prefix_ += std::string(name) + ".";
    detail::Fields<T>::visit(*this, value);
    prefix_ = before;
  }
  template <class T>
  void write(const char* name, const T& value, long) {
    add(name, cell(value));
  }
  void write(const char* name, const std::string& value, int) {
    add(name, value.empty() && std::string_view(name) == "path" ? "(root)" : value);
  }
  void add(const std::string& name, const std::string& value) {
    if (!first_) text_ += ',';
    first_ = false;
    text_ += text::csv_text(titles_ ? prefix_ + name : base::utf8_text(value));
  }

  bool titles_;
  bool first_ = true;
  std::string prefix_, text_;
};

void add_rows(const ModuleRow& row, std::string& text) {
  Cells line(false);
  detail::Fields<ModuleRow>::visit(line, row);
  text += line.text() + "\r\n";
  for (const ModuleRow& child : row.children) add_rows(child, text);
}

}  // namespace

std::string csv(const Measurements& results) {
  Cells titles(true);
  detail::Fields<ModuleRow>::visit(titles, results.root);
  std::string text = titles.text() + "\r\n";
  add_rows(results.root, text);
  return text;
}

}  // namespace torchtap::views::report
