// Knows which code of the program each thread runs for subrecorders.
#include <torchtap/base/error.hpp>
#include <torchtap/recorders/detail/own_code.hpp>
#include <torchtap/recorders/detail/slots.hpp>

namespace torchtap::recorders::detail {
namespace {

const OwnCode*& innermost() noexcept {
  static thread_local const OwnCode* code = nullptr;
  return code;
}

}  // namespace

OwnCode::OwnCode(const Slots& of, What what) : of_(of), what_(what), outer_(innermost()) {
  if (what == What::transform) {
    TORCH_CHECK(
        !runs(of, what), of.describe(),
        ": its transform runs the module that it is of, and so would call itself without end; have it "
        "run another module.");
  } else {
    TORCH_CHECK(
        !runs(of, What::reduction) && !runs(of, What::beside), of.describe(), ": its reduction, ",
        of.options->reduction()->describe(),
        ", asks for its own recorder, or runs the module, while it folds or gives its results, and so "
        "would wait for itself; have it keep what it needs. (A condition and a transform may ask.)");
  }
  innermost() = this;
}

bool OwnCode::runs(const Slots& of, What what) noexcept {
  const OwnCode* code = innermost();
  while (code != nullptr && (&code->of_ != &of || code->what_ != what)) code = code->outer_;
  return code != nullptr;
}

OwnCode::~OwnCode() {
  innermost() = outer_;
}

}  // namespace torchtap::recorders::detail
