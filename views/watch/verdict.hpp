#pragma once

/// When a module is dead, or its gradient explodes or vanishes: the same in the report, the explorer and the
/// command.

#include <cmath>

namespace torchtap::views::watch {

/// At least this share of the outputs of a dead module is zero. Only a module without modules inside can be
/// dead.
constexpr double dead_share = 0.99;

/// What is wrong with a gradient.
enum class Gradient { healthy, exploding, vanishing };

/// The verdict on the gradient of a module's own parameters. `own` is its root mean square; `before` that of
/// the nearest module before it that has parameters and a gradient that is finite and not zero, or 0 if there
/// is none.
///
/// It explodes if it is not finite, is greater than 1000, or than 1000 times the one before; it vanishes if
/// it is less than 1e-8, or than a thousandth of the one before. The ratio finds the layer where it happens;
/// the limits find what all layers have, or what adds up over many.
inline Gradient verdict_on_gradient(double own, double before) {
  constexpr double most = 1e3, least = 1e-8, step = 1e3;
  if (!std::isfinite(own) || own > most || (before > 0 && own > step * before)) return Gradient::exploding;
  return own < least || own * step < before ? Gradient::vanishing : Gradient::healthy;
}

}  // namespace torchtap::views::watch
