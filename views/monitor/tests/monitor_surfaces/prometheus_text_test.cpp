// Metrics, read by a strict parser of the exposition format in Python.
#include <cmath>
#include <limits>

#include <torchtap/views/monitor/detail/prometheus_text.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(prometheus_text)

using namespace torchtap_test;
using torchtap::views::monitor::detail::PrometheusText;

BOOST_AUTO_TEST_CASE(a_strict_parser_finds_what_was_written) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<std::string> paths{"",           "layer3.1.conv2", R"(a\b)", "\"quoted\"",
                                       "two\nlines", "{x=\"y\"} 1",    "höhe",   "no \xff letter",
                                       "tab\there",  R"(ends with \)"};
  const std::vector<double> values{0,       -0.,          1,         90311,     0.1, 1e300,
                                   -5e-324, std::nan(""), kInfinity, -kInfinity};
  const TemporaryDirectory directory;
  std::ofstream truth(directory / "truth");
  truth << std::hexfloat;
  PrometheusText text;
  text.family("torchtap_forwards_total", "counter", R"(Forwards, "all" of them.)");
  text.sample({}, 3);
  truth << "torchtap_forwards_total\tcounter\t" << 3. << '\n';
  text.family("torchtap_module_mean", "gauge", "Two\nlines and a \\.");
  const auto in_one_line = [](const std::string& value) {
    std::string line;
    for (const char c : value)
      line += c == '\n' ? "<newline>" : c == '\t' ? "<tab>" : c == '\xff' ? "\\377" : std::string(1, c);
    return line;
  };
  for (std::size_t i = 0; i < paths.size(); ++i) {
    text.sample({{"model", "a"}, {"module", paths[i]}}, values[i]);
    truth << "torchtap_module_mean\tgauge\t" << values[i] << "\tmodel\ta\tmodule\t" << in_one_line(paths[i])
          << '\n';
  }
  truth.close();
  std::ofstream(directory / "metrics") << text.text();
  BOOST_TEST(script("exposition.py", "\"" + directory / "metrics" + "\" \"" + directory / "truth" + "\""));
  std::ofstream(directory / "metrics", std::ios::app) << "torchtap_module_mean{model=\"a\nb\"} 1\n";
  BOOST_TEST(!script("exposition.py",
                     "\"" + directory / "metrics" + "\" \"" + directory / "truth" + "\" 2> /dev/null"));
}

BOOST_AUTO_TEST_SUITE_END()
