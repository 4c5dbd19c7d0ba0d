#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

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

/// The point at which a falling function of positive numbers is `alpha`.
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

/// By the rotations of Jacobi (1846).
Eigen eigen(std::vector<double> a, std::size_t n) {
  std::vector<double> v(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) v[i * n + i] = 1;
  const auto off = [&] {
    double sum = 0;
    for (std::size_t i = 0; i < n * n; ++i) sum += i % (n + 1) == 0 ? 0 : a[i] * a[i];
    return sum;
  };
  double all = off();
  for (std::size_t i = 0; i < n; ++i) all += a[i * n + i] * a[i * n + i];
  for (int sweep = 0; sweep < 60 && off() > 1e-32 * all; ++sweep) {
    for (std::size_t p = 0; p + 1 < n; ++p) {
      for (std::size_t q = p + 1; q < n; ++q) {
        if (a[p * n + q] == 0) continue;
        const double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
        const double t = std::copysign(1 / (std::abs(theta) + std::hypot(theta, 1)), theta);
        const double c = 1 / std::hypot(t, 1), s = t * c;
        const auto rotate = [&](double& x, double& y) {
          const double before = x;
          x = c * before - s * y;
          y = s * before + c * y;
        };
        for (std::size_t k = 0; k < n; ++k) rotate(a[k * n + p], a[k * n + q]);
        for (std::size_t k = 0; k < n; ++k) rotate(a[p * n + k], a[q * n + k]);
        for (std::size_t k = 0; k < n; ++k) rotate(v[p * n + k], v[q * n + k]);
      }
    }
  }
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](auto i, auto k) { return a[i * n + i] < a[k * n + k]; });
  Eigen found;
  for (const std::size_t i : order) {
    found.values.push_back(a[i * n + i]);
    found.vectors.insert(found.vectors.end(), v.begin() + static_cast<std::ptrdiff_t>(i * n),
                         v.begin() + static_cast<std::ptrdiff_t>((i + 1) * n));
  }
  return found;
}

}  // namespace torchtap::views::monitor::detail
