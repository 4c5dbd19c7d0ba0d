// Wrong uses that the compiler has to refuse in words of ours, as tests/compile_fail/wrong.cpp has for the
// kernel.
#include <torchtap/reductions/map.hpp>
#include <torchtap/reductions/mean.hpp>

namespace {

namespace reductions = torchtap::reductions;

void wrong() {
  // says: map takes a callable: at::Tensor(const at::Tensor& sample)
  static_cast<void>(sizeof(reductions::Map<int (*)(const at::Tensor&, int), reductions::Mean>));
}

}  // namespace
