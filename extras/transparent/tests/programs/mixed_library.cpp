#include "mixed.hpp"

namespace {
struct OtherImpl : PartImpl {
  OtherImpl() : PartImpl(5) {}
  at::Tensor forward(const at::Tensor& x, double bias = 100) override { return x - bias; }
};
}  // namespace

Part make_part(double factor) {
  return factor == 0 ? Part(std::shared_ptr<PartImpl>(std::make_shared<OtherImpl>())) : Part(factor);
}

at::Tensor call_part(Part part, const at::Tensor& x) {
  return part->forward(x) + part(x);
}
