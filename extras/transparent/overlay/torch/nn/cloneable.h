#pragma once
#pragma GCC system_header

// See pimpl.h beside this file. Cloneable::clone makes its copy by std::make_shared; the copy of a module
// that a holder made has to be marked as such, too.

#include <c10/core/TensorOptions.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <memory>
#include <utility>

#include <torchtap/model/extend/interposed_calls.hpp>

namespace std {  // LibTorch's call is qualified

template <class Impl>
shared_ptr<Impl> torchtap_make_clone(const Impl& original) {
  // By the cast, because Impl may have a second std::enable_shared_from_this or inherit in private.
  const auto owner = ((const torch::nn::Module&)original).weak_from_this().lock();
  if (get_deleter<torchtap::model::extend::MadeByHolder>(owner) != nullptr) {
    return shared_ptr<Impl>(::new Impl(original), torchtap::model::extend::MadeByHolder{true});
  }
  return make_shared<Impl>(original);
}

}  // namespace std

#define make_shared torchtap_make_clone
#include_next <torch/nn/cloneable.h>
#undef make_shared

#include <torchtap/transparent/detail/holder.hpp>
