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

bool is_whole(const at::Tensor& tensor) {
  return at::isIntegralType(tensor.scalar_type(), true);
}

/// Where whole numbers are the same as floating-point numbers, which int64 may not hold.
at::Tensor same_as_floats(const at::Tensor& whole, const at::Tensor& floats) {
  const at::Tensor holds =
      floats.ge(-0x1p63).logical_and(floats.lt(0x1p63)).logical_and(floats.eq(floats.trunc()));
  const at::Tensor zero = at::zeros({}, floats.options());
  return holds.logical_and(at::where(holds, floats, zero).to(at::kLong).eq(whole.to(at::kLong)));
}

/// Where numbers are the same, exactly: `x` and `y` are `a` and `b` in float64 or complex128.
at::Tensor same_numbers(const at::Tensor& a, const at::Tensor& b, const at::Tensor& x, const at::Tensor& y) {
  if (x.is_complex()) {
    const at::Tensor parts_x = at::view_as_real(x), parts_y = at::view_as_real(y);
    const at::Tensor same = parts_x.eq(parts_y).logical_or(parts_x.isnan().logical_and(parts_y.isnan()));
    return same.all(-1);
  }
  // float64 does not hold all whole numbers.
  if (is_whole(a) && is_whole(b)) return a.to(at::kLong).flatten().eq(b.to(at::kLong).flatten());
  if (is_whole(a)) return same_as_floats(a.flatten(), y);
  if (is_whole(b)) return same_as_floats(b.flatten(), x);
  return x.eq(y).logical_or(x.isnan().logical_and(y.isnan()));
}

}  // namespace

double Comparison::cosine() const {
  if (norm_a == 0 && norm_b == 0) return 1;
  return dot / std::sqrt(norm_a * norm_b);
}

void Comparison::agree(const std::string& how) {
  if ((status == kNotCompared && !left_out_) || (status == "equal" && how == "close")) status = how;
}

void Comparison::leave_out(const std::string& where) {
  if (differs() || left_out_) return;
  left_out_ = true;
  status = kNotCompared;
  detail = where;
}

void Comparison::fail(const std::string& what, const std::string& where, std::int64_t sample) {
  if (differs()) return;
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
  if (!a.defined()) return result.agree();
  if (a.sizes() != b.sizes()) {
    const std::string shapes = shape_to_text(a.sizes().vec()) + " and " + shape_to_text(b.sizes().vec());
    return result.fail("shapes differ", where + (where.empty() ? "" : ", ") + shapes, sample);
  }
  result.compared = true;
  if (a.numel() == 0) return result.agree();
  const bool whole = is_whole(a) && is_whole(b);
  const bool complex = a.is_complex() || b.is_complex();
  const auto type = complex ? at::kComplexDouble : at::kDouble;
  const at::Tensor x = a.to(type).flatten();
  const at::Tensor y = b.to(type).flatten();
  result.dot += number(at::real(x * y.conj()).sum());
  result.norm_a += number(x.abs().square().sum());
  result.norm_b += number(y.abs().square().sum());
  if (a.scalar_type() == b.scalar_type() && a.equal(b)) return result.agree();
  const at::Tensor same = same_numbers(a, b, x, y);
  if (same.all().item<bool>()) return result.agree();
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
  const double rtol = whole ? 0 : tolerance.rtol;
  const at::Tensor allowed = (y.abs() * rtol + tolerance.atol).nan_to_num(0, 0);
  // Numbers that differ may have the same float64: int64 2^53 + 1 and 2^53.
  const at::Tensor near =
      same.logical_or(distance.le(allowed).logical_and(distance.gt(0).logical_or(allowed.gt(0))));
  near.all().item<bool>() ? result.agree("close") : result.fail("different", where, sample);
}

}  // namespace torchtap::tools
