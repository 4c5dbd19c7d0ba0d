// https://prometheus.io/docs/instrumenting/exposition_formats/
#include <charconv>
#include <cmath>

#include <torchtap/base/utf8.hpp>
#include <torchtap/views/monitor/detail/prometheus_text.hpp>

namespace torchtap::views::monitor::detail {
namespace {

std::string escaped_for_prometheus(const std::string& text, bool quotes) {
  std::string escaped;
  for (const char c : base::utf8_text(text)) {
    if (c == '\n') {
      escaped += "\\n";
    } else {
      if (c == '\\' || (quotes && c == '"')) escaped += '\\';
      escaped += c;
    }
  }
  return escaped;
}

/// The shortest text that reads back as the same number.
std::string prometheus_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace

void PrometheusText::family(const std::string& name, const std::string& type, const std::string& help) {
  name_ = name;
  text_ +=
      "# HELP " + name + " " + escaped_for_prometheus(help, false) + "\n# TYPE " + name + " " + type + "\n";
}

void PrometheusText::sample(const Labels& labels, double value) {
  text_ += name_;
  char before = '{';
  for (const auto& [label, of] : labels) {
    text_ += before + label + "=\"" + escaped_for_prometheus(of, true) + "\"";
    before = ',';
  }
  if (!labels.empty()) text_ += "}";
  text_ += " " + prometheus_number(value) + "\n";
}

}  // namespace torchtap::views::monitor::detail
