#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <cstddef>
#include <deque>
#include <torchtap/hooks/values.hpp>
#include <vector>

namespace torchtap::hooks::detail {

/// The tensors inside the arguments or the result of a TorchScript call: in tuples, lists, the values of
/// dicts, optionals and the attributes of script objects, however nested. Modules that are passed around are
/// left alone.
///
/// Lists, dicts and tuples may be shared with others: one of which a hook has replaced a tensor is made anew,
/// never changed.
class ScriptValues {
 public:
  /// `type` is the declared one: an absent optional keeps the places of the tensors that it might hold.
  void add(c10::IValue& value, const c10::Type& type);
  Tensors& tensors() noexcept { return tensors_; }
  /// Once the hooks have run: puts what they replaced into the values that were added.
  void put_back();

 private:
  void collect(const c10::IValue& value, const c10::Type& type, int depth);
  c10::IValue rebuilt(const c10::IValue& value, std::size_t& next, int depth) const;

  Tensors tensors_;
  std::vector<c10::IValue*> containers_;
  std::deque<at::Tensor> inside_;   // the tensors in containers_, in order, as hooks leave them
  std::vector<at::Tensor> before_;  // as they were
};

}  // namespace torchtap::hooks::detail
