// Defines two `pretty_print` functions that LibTorch 1.13 declares in headers but does not export.

#include <torch/version.h>

// LibTorch 1.13 declares these two functions in headers and defines them in a source file, but does not
// export them. A class that derives from BatchNorm2dImpl, as torchtap::nn::BatchNorm2d does, needs them for
// its virtual tables and would not link. Newer versions (checked: 2.6 and 2.14) define them in the headers.
#if TORCH_VERSION_MAJOR < 2

#include <torch/nn/functional/batchnorm.h>
#include <torch/nn/functional/instancenorm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

#include <ostream>

namespace torch::nn {
namespace {

template <class Options>
void print(std::ostream& stream, const char* name, std::size_t dimensions, const Options& options) {
  stream << std::boolalpha << "torch::nn::" << name << dimensions << "d(" << options.num_features()
         << ", eps=" << options.eps() << ", momentum=";
  if constexpr (std::is_same_v<std::decay_t<decltype(options.momentum())>, double>) {
    stream << options.momentum();
  } else {
    stream << options.momentum().value();
  }
  stream << ", affine=" << options.affine() << ", track_running_stats=" << options.track_running_stats()
         << ")";
}

}  // namespace

template <std::size_t D, typename Derived>
void BatchNormImplBase<D, Derived>::pretty_print(std::ostream& stream) const {
  print(stream, "BatchNorm", D, this->options);
}

template <std::size_t D, typename Derived>
void InstanceNormImpl<D, Derived>::pretty_print(std::ostream& stream) const {
  print(stream, "InstanceNorm", D, this->options);
}

template void BatchNormImplBase<1, BatchNorm1dImpl>::pretty_print(std::ostream&) const;
template void BatchNormImplBase<2, BatchNorm2dImpl>::pretty_print(std::ostream&) const;
template void BatchNormImplBase<3, BatchNorm3dImpl>::pretty_print(std::ostream&) const;
template void InstanceNormImpl<1, InstanceNorm1dImpl>::pretty_print(std::ostream&) const;
template void InstanceNormImpl<2, InstanceNorm2dImpl>::pretty_print(std::ostream&) const;
template void InstanceNormImpl<3, InstanceNorm3dImpl>::pretty_print(std::ostream&) const;

}  // namespace torch::nn

#endif
