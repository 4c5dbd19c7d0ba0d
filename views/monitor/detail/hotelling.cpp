#include <ATen/Functions.h>

#include <cmath>
#include <functional>
#include <tuple>

#include <torchtap/base/recording_mode.hpp>
#include <torchtap/views/monitor/detail/hotelling.hpp>

namespace torchtap::views::monitor::detail {
namespace {

constexpr double tiny = 1e-300, exact = 1e-15;
constexpr int most_terms = 100000;

/// The continued fraction b0 + a1 / (b1 + a2 / (b2 + …)), by the method of Lentz. `term(i)` returns a_i and
/// b_i.
double continued_fraction(double b0, const std::function<std::pair<double, double>(int)>& term) {
  double f = b0 == 0 ? tiny : b0, c = f, d = 0;
  for (int i = 1; i < most_terms; ++i) {
    const auto [a, b] = term(i);
    d = b + a * d;
    c = b + a / c;
    if (d == 0) d = tiny;
    if (c == 0) c = tiny;
    d = 1 / d;
    f *= c * d;
    if (std::abs(c * d - 1) < exact) break;
  }
  return f;
}

/// The regularised incomplete gamma function Q(a, x).
double gamma_above(double a, double x) {
  if (x <= 0) return 1;
  const double front = std::exp(a * std::log(x) - x - std::lgamma(a));
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (int i = 1; i < most_terms && term > sum * exact; ++i) sum += term *= x / (a + i);
    return 1 - front * sum;
  }
  return front /
         continued_fraction(x + 1 - a, [&](int i) { return std::pair(-i * (i - a), x + 2 * i + 1 - a); });
}

/// The regularised incomplete beta function I_x(a, b), of x and 1 - x.
double beta_below(double a, double b, double x, double rest) {
  if (x <= 0) return 0;
  if (rest <= 0) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - beta_below(b, a, rest, x);
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log(rest)) /
      a;
  return front / continued_fraction(1, [&](int i) {
           const int m = i / 2;
           const double over = (a + 2 * m) * (a + (i % 2 == 0 ? 2 * m - 1 : 2 * m + 1));
           return std::pair(i % 2 == 0 ? m * (b - m) * x / over : -(a + m) * (a + b + m) * x / over, 1.0);
         });
}

/// Where a falling function of positive numbers is `alpha`.
double where_it_falls_to(double alpha, const std::function<double(double)>& above) {
  double low = 0, high = 1;
  while (above(high) > alpha && high < 1e300) {
    low = high;
    high *= 2;
  }
  for (int i = 0; i < 200 && high - low > exact * high; ++i) {
    const double middle = (low + high) / 2;
    (above(middle) > alpha ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

double chi_squared_limit(double alpha, double d) {
  return where_it_falls_to(alpha, [&](double x) { return gamma_above(d / 2, x / 2); });
}

double f_limit(double alpha, double d1, double d2) {
  return where_it_falls_to(alpha, [&](double x) {
    const double all = d2 + d1 * x;
    return beta_below(d2 / 2, d1 / 2, d2 / all, d1 * x / all);
  });
}

Eigen eigen(const std::vector<double>& matrix, std::size_t n) {
  const base::RecordingMode quiet;
  const auto size = static_cast<std::int64_t>(n);
  const at::Tensor given =
      at::from_blob(const_cast<double*>(matrix.data()), {size, size}, at::TensorOptions().dtype(at::kDouble));
  const auto [values, vectors] = at::linalg_eigh(given);
  const at::Tensor rows = vectors.t().contiguous();
  return {{values.data_ptr<double>(), values.data_ptr<double>() + n},
          {rows.data_ptr<double>(), rows.data_ptr<double>() + n * n}};
}

}  // namespace torchtap::views::monitor::detail
