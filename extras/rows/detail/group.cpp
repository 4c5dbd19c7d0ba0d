// Finds the rows of a mask, and the values beside them.
#include <ATen/Functions.h>

#include <algorithm>
#include <utility>

#include <torchtap/core/context.hpp>
#include <torchtap/rows/detail/group.hpp>
#include <torchtap/rows/texts.hpp>
#include <torchtap/storage/file.hpp>

namespace torchtap::rows::detail {
namespace {

std::int64_t version_of(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.is_inference() ? -1 : static_cast<std::int64_t>(tensor._version());
}

std::string missing(const char* option, const std::string& name) {
  return c10::str(option, "(\"", name, "\"): the Context has no \"", name,
                  "\" in this forward; name it around the forward: core::Context named(\"", name, "\", …).");
}

/// Whether `sizes` are those of the first dimensions of rows.
bool begins(at::IntArrayRef rows, at::IntArrayRef sizes) {
  return sizes.size() <= rows.size() && rows.slice(0, sizes.size()) == sizes;
}

/// `tensor`, whose first `shared` dimensions are the first ones of rows and whose others are a value, as one
/// value a row, [rows, …].
at::Tensor spread(const at::Tensor& tensor, at::IntArrayRef rows, std::size_t shared) {
  const at::IntArrayRef value = tensor.sizes().slice(shared);
  std::vector<std::int64_t> thin = rows.slice(0, shared).vec(), full = rows.vec(), flat{-1};
  thin.resize(rows.size(), 1);
  for (auto* sizes : {&thin, &full, &flat}) sizes->insert(sizes->end(), value.begin(), value.end());
  flat[0] = c10::multiply_integers(rows);
  return tensor.reshape(thin).expand(full).reshape(flat);
}

/// How many dimensions of `tensor` it shares with rows, the others being a value; -1 if it does not fit.
std::int64_t shared_with(const at::Tensor& tensor, at::IntArrayRef rows) {
  const at::IntArrayRef sizes = tensor.sizes();
  if (sizes.size() >= rows.size() && begins(rows, sizes.slice(0, rows.size())))
    return static_cast<std::int64_t>(rows.size());
  if (is_texts(tensor) && begins(rows, sizes.slice(0, sizes.size() - 1))) return tensor.dim() - 1;
  return begins(rows, sizes) ? tensor.dim() : -1;
}

}  // namespace

Named::Named(const Asked& asked) {
  if (!asked.mask.empty()) mask = core::Context::find(asked.mask);
  versions_.push_back(version_of(mask));
  for (const auto& name : asked.beside) {
    beside.push_back(core::Context::find(name));
    versions_.push_back(version_of(beside.back()));
  }
}

bool Named::operator==(const Named& other) const noexcept {
  return mask.is_same(other.mask) && versions_ == other.versions_ &&
         std::equal(beside.begin(), beside.end(), other.beside.begin(),
                    [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
}

Group::Group(const Asked& asked, Named named, std::vector<std::int64_t> sizes, std::int64_t forward)
    : named_(std::move(named)),
      sizes_(std::move(sizes)),
      forward_(forward),
      rows_(c10::multiply_integers(sizes_)) {
  try {
    if (!asked.mask.empty()) choose(asked);
    for (std::size_t i = 0; why_not.empty() && i < asked.beside.size(); ++i)
      add_beside(asked.beside[i], named_.beside[i]);
  } catch (const c10::Error& error) {  // of tensors that LibTorch cannot convert
    why_not = error.what_without_backtrace();
  }
}

void Group::choose(const Asked& asked) {
  const at::Tensor& mask = named_.mask;
  if (!mask.defined()) {
    why_not = missing("where", asked.mask);
  } else if (!begins(sizes_, mask.sizes()) || mask.dim() == 0) {
    why_not = c10::str("where(\"", asked.mask, "\"): the mask has the shape ", mask.sizes(),
                       ", and the row dimensions have ", at::IntArrayRef(sizes_),
                       "; it needs those sizes, or the first of them.");
  } else {
    const at::Tensor flat =
        spread(mask.detach().to(at::kCPU).ne(0), sizes_, static_cast<std::size_t>(mask.dim()));
    chosen_ = flat.nonzero().select(1, 0).contiguous();
    rows_ = chosen_.size(0);
  }
}

void Group::add_beside(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    why_not = missing("beside", name);
    return;
  }
  if (tensor.is_quantized() || !storage::can_hold(tensor)) {
    why_not = c10::str("beside(\"", name, "\"): files cannot hold this tensor, ", tensor.toString(),
                       "; name a plain one of numbers.");
    return;
  }
  at::Tensor values = tensor.detach().to(at::kCPU);
  std::int64_t shared = shared_with(values, sizes_);
  if (shared < 0 && values.numel() == 1) {
    values = values.reshape({});
    shared = 0;
  }
  if (shared < 0) {
    why_not = c10::str("beside(\"", name, "\"): the tensor has the shape ", tensor.sizes(),
                       ", and the row dimensions have ", at::IntArrayRef(sizes_),
                       "; it needs a value for each row, for each of the first dimensions, or one for all.");
    return;
  }
  values = spread(values, sizes_, static_cast<std::size_t>(shared));
  // Of its own memory, because the program may change the tensor before it is written.
  beside_.push_back(chosen_.defined() ? values.index_select(0, chosen_) : values.contiguous());
}

}  // namespace torchtap::rows::detail
