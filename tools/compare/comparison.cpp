#include "comparison.hpp"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

double number(const at::Tensor& tensor) {
  return tensor.item<double>();
}

}  // namespace

double Comparison::cosine() const {
  if (norm_a == 0 && norm_b == 0) return 1;
  return dot / std::sqrt(norm_a * norm_b);
}

void Comparison::fail(const std::string& what, const std::string& where, std::int64_t sample) {
  if (!agrees()) return;
  status = what;
  detail = where;
  at = sample;
}

void Comparison::describe(Json& object) const {
  object["status"] = status;
  object["detail"] = detail;
  object["samples"] = samples;
  object["max_abs"] = compared ? Json(max_abs) : nullptr;
  object["max_rel"] = compared ? Json(max_rel) : nullptr;
  object["cosine"] = compared ? Json(cosine()) : nullptr;
}

void compare(const at::Tensor& a, const at::Tensor& b, const std::string& where, std::int64_t sample,
             const Tolerance& tolerance, Comparison& result) {
  if (a.defined() != b.defined()) return result.fail("only one is a tensor", where, sample);
  if (!a.defined()) return;
  if (a.sizes() != b.sizes()) {
    const std::string shapes = shape_to_text(a.sizes().vec()) + " and " + shape_to_text(b.sizes().vec());
    return result.fail("shapes differ", where + (where.empty() ? "" : ", ") + shapes, sample);
  }
  result.compared = true;
  if (a.numel() == 0) return;
  const bool whole = at::isIntegralType(a.scalar_type(), true) && at::isIntegralType(b.scalar_type(), true);
  const bool complex = a.is_complex() || b.is_complex();
  const auto type = complex ? at::kComplexDouble : at::kDouble;
  const at::Tensor x = a.to(type).flatten();
  const at::Tensor y = b.to(type).flatten();
  result.dot += number(at::real(x * y.conj()).sum());
  result.norm_a += number(x.abs().square().sum());
  result.norm_b += number(y.abs().square().sum());
  // float64 does not hold all whole numbers.
  const at::Tensor same = whole ? a.to(at::kLong).flatten().eq(b.to(at::kLong).flatten())
                                : x.eq(y).logical_or(x.isnan().logical_and(y.isnan()));
  if (a.scalar_type() == b.scalar_type() && a.equal(b)) return;
  if (same.all().item<bool>()) return;
  const at::Tensor zero = at::zeros({}, at::kDouble);
  // An infinity or NaN on one side only counts as infinitely far away.
  at::Tensor apart = (x - y).abs().nan_to_num(INFINITY, INFINITY, INFINITY);
  if (whole) {  // which is exact unless it overflows, and then float64 is near enough
    const at::Tensor exact = (a.to(at::kLong) - b.to(at::kLong)).flatten().abs().to(at::kDouble);
    apart = at::where(apart.lt(0x1p62), exact, apart);
  }
  const at::Tensor distance = at::where(same, zero, apart);
  const at::Tensor relative = at::where(same, zero, (distance / y.abs()).nan_to_num(INFINITY, INFINITY));
  result.max_abs = std::max(result.max_abs, number(distance.max()));
  result.max_rel = std::max(result.max_rel, number(relative.max()));
  // An infinite tolerance allows nothing: infinities agree only if they are the same.
  const at::Tensor allowed = (y.abs() * tolerance.rtol + tolerance.atol).nan_to_num(0, 0);
  if (distance.le(allowed).all().item<bool>()) {
    if (result.status == "equal") result.status = "close";
  } else {
    result.fail("different", where, sample);
  }
}

}  // namespace torchtap::tools
