#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "files/json.hpp"

/// Compares tensors number by number.
namespace torchtap::tools {

/// Two numbers agree if |a - b| <= atol + rtol * |b|, or if both are NaN; two whole numbers if |a - b| <=
/// atol.
struct Tolerance {
  double rtol = 1e-5;
  double atol = 1e-8;
};

/// The status of anything until it was compared in full.
constexpr char kNotCompared[] = "not compared";
/// The status of a module that recorded nothing on either side, be it that a side lacks it.
constexpr char kNotRun[] = "not run";
/// The status of a tensor that a trace did not keep.
constexpr char kNotKept[] = "not kept";

/// The comparison of the values of one module, or of one pair of tensors.
struct Comparison {
  /// "equal", "close", "different", "not compared", "not run" on both sides, "not kept"; or what else
  /// differs.
  std::string status = kNotCompared;
  std::string detail;   ///< where, in words
  std::int64_t at = 0;  ///< the first sample that does not agree
  std::int64_t samples = 0;
  double max_abs = 0;
  double max_rel = 0;
  double dot = 0, norm_a = 0, norm_b = 0;
  bool compared = false;

  /// Whether something differs.
  bool differs() const { return !agrees() && !is_gap(); }
  /// Whether all was compared, and agrees.
  bool agrees() const { return status == "equal" || status == "close" || status == kNotRun; }
  /// Whether something was not compared, and nothing else differs.
  bool is_gap() const { return status == kNotCompared || status == kNotKept; }
  double cosine() const;
  /// Something was compared in full and agrees, in "equal" or "close" numbers.
  void agree(const std::string& how = "equal");
  /// Something cannot be compared, so that the status is no better than that.
  void leave_out(const std::string& where);
  /// Keeps only the first failure.
  void fail(const std::string& what, const std::string& where, std::int64_t sample = 0);
  /// Adds `status` and the numbers to an object; null where nothing was compared.
  void describe(Json& object) const;

 private:
  bool left_out_ = false;
};

/// Adds the comparison of two tensors, either of which may be undefined. `where` names them, `sample` is
/// their number.
void compare(const at::Tensor& a, const at::Tensor& b, const std::string& where, std::int64_t sample,
             const Tolerance& tolerance, Comparison& result);

}  // namespace torchtap::tools
