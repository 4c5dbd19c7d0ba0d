// Finds where the elements of a sample lie, and reads them with the kernels.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include <torchtap/base/capture.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/strided.hpp>
#include <torchtap/reductions/detail/readable.hpp>
#include <torchtap/reductions/fast/kernels.hpp>
#include <torchtap/reductions/fast/small.hpp>

namespace torchtap::reductions::detail {
namespace {

/// As `sample.has_storage()`, but compiled in.
bool has_storage(const at::Tensor& sample) {
  return static_cast<bool>(sample.unsafeGetTensorImpl()->unsafe_storage());
}

bool is_in_memory(const at::Tensor& sample) {
  return sample.defined() && sample.device().is_cpu() && base::is_strided(sample) && has_storage(sample) &&
         !sample.is_neg() && !sample._is_zerotensor() && sample.numel() != 0;
}

/// Whether the kernels can read it; otherwise use ATen.
bool is_plain(c10::ScalarType type) {
  return (type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16) &&
         kernels() != nullptr;
}

/// A copy whose elements have the order in memory of `like`, a dense tensor of the same shape.
at::Tensor copy_like(const at::Tensor& like, const at::Tensor& tensor) {
  return at::empty_strided(like.sizes(), like.strides(), tensor.options()).copy_(tensor);
}

}  // namespace

Readable::Readable(const at::Tensor& sample) : source_(sample) {
  if (!is_in_memory(sample)) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !sample.defined() || sample.is_cpu() || !base::is_capturing(sample.device()),
        "reductions: a stream of ", sample.device(),
        " captures a graph, whose replays would change a reduction without counting; record with a recorder "
        "and fused kernels (torchtap::cuda::enable_fused_kernels), or update it outside of the graph.");
    return;
  }
  type_ = sample.scalar_type();
  plain_ = is_plain(type_);
  has_bits_ = plain_ || has_bits(type_);
  numel_ = sample.numel();
  if (sample.is_contiguous()) {
    small_ = numel_ <= kSmall && (plain_ || is_small_type(type_));
    memory_ = {type_, static_cast<const char*>(sample.data_ptr()), numel_};
    return;
  }
  if (has_bits_) put_in_order();
}

Readable::Seldom::~Seldom() = default;

/// Makes a contiguous tensor of another sample. Accepts channels-last and any other dense order.
void Readable::put_in_order() {
  const at::Tensor& sample = source_;
  at::Tensor& ordered = seldom().ordered;
  auto& order = seldom().order;
  order.resize(static_cast<std::size_t>(sample.dim()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return sample.stride(a) > sample.stride(b); });
  const base::RecordingMode quiet;
  ordered = sample.detach().permute(order);
  if (ordered.is_contiguous()) return;
  if (plain_) {
    std::iota(order.begin(), order.end(), 0);
    ordered = sample.detach().contiguous();
  } else {
    order.clear();
    ordered = at::Tensor();
    has_bits_ = false;
  }
}

Readable::Readable(const Readable& whole, c10::ArrayRef<std::int64_t> rows) : source_(whole.source_) {
  const at::IntArrayRef sizes = whole.sizes();
  const auto count = static_cast<std::int64_t>(rows.size());
  Chosen& chosen = seldom().chosen.emplace(Chosen{{sizes.begin(), sizes.end()}, {nullptr, rows, 0}, {}});
  chosen.sizes[0] = count;
  if (whole.memory_.data == nullptr) return;
  type_ = whole.type_;
  plain_ = whole.plain_;
  has_bits_ = whole.has_bits_;
  const std::int64_t numel = whole.numel_ / sizes[0];  // of a row
  numel_ = count * numel;
  small_ = numel_ <= kSmall && is_small_type(type_);
  memory_ = {type_, nullptr, numel_};
  chosen.where.data = whole.memory_.data;
  chosen.where.bytes = numel * static_cast<std::int64_t>(c10::elementSize(type_));
  const bool neighbours = rows.back() - rows.front() == count - 1;
  if (neighbours) memory_.data = chosen.where.at(0);
}

const at::Tensor& Readable::gathered() const {
  Chosen& chosen = *this->chosen();
  at::Tensor& gathered = chosen.gathered;
  if (gathered.defined()) return gathered;
  const base::RecordingMode quiet;
  const Scattered& where = chosen.where;
  if (memory_.data != nullptr) {
    gathered = source_.narrow(0, where.rows.front(), chosen.sizes[0]);
    return gathered;
  }
  gathered = at::empty(chosen.sizes, source_.options());
  auto* const to = static_cast<char*>(gathered.data_ptr());
  for (std::int64_t row = 0; row < chosen.sizes[0] && where.bytes != 0; ++row)
    std::memcpy(to + row * where.bytes, where.at(row), static_cast<std::size_t>(where.bytes));
  memory_.data = to;
  return gathered;
}

void Readable::read(Read& read) const {
  const Scattered* const scattered = this->scattered();
  if (scattered != nullptr && reads_scattered(read.layout, chosen()->sizes[0]))
    return detail::read({type_, nullptr, numel_, *scattered}, read);
  if (memory_.data == nullptr) memory_.data = static_cast<const char*>(contiguous().data_ptr());
  detail::read({type_, memory_.data, numel_, {}}, read);
}

std::optional<Layout> Readable::layout(const Folding& folding) const {
  if (!has_bits_ || (folding.over.empty() && !folding.over_all)) return std::nullopt;
  const at::IntArrayRef sizes = this->sizes();
  const auto dim = static_cast<std::int64_t>(sizes.size());
  c10::SmallVector<char, 8> is_folded(static_cast<std::size_t>(dim), folding.over_all ? 1 : 0);
  for (const auto over : folding.over) {
    if (over < -dim || over >= dim) return std::nullopt;
    is_folded[static_cast<std::size_t>(over < 0 ? over + dim : over)] = 1;
  }
  Layout layout;
  std::int64_t* const extents[] = {&layout.outer, &layout.kept, &layout.inner, &layout.columns};
  std::size_t group = 0;
  std::int64_t last_kept = -1;
  const c10::ArrayRef<std::int64_t> order = order_of_dims();
  for (std::int64_t position = 0; position < dim; ++position) {
    const std::int64_t i = order.empty() ? position : order[static_cast<std::size_t>(position)];
    const std::int64_t size = sizes[static_cast<std::size_t>(i)];
    if (size == 1) continue;
    const bool kept = is_folded[static_cast<std::size_t>(i)] == 0;
    if (kept && i < last_kept) return std::nullopt;  // the results would be in a different order
    if (kept) last_kept = i;
    while (group < 4 && (group % 2 == 1) != kept) ++group;
    if (group == 4) return std::nullopt;
    *extents[group] *= size;
  }
  if (layout.outer * layout.inner == 1) return std::nullopt;  // a single row is elementwise
  if (layout.kept == 1 && layout.columns == 1) {              // a single run
    layout.inner *= layout.outer;
    layout.outer = 1;
  }
  return layout;
}

/// The sample with its elements in the order in memory of the states, which all have the same. If samples are
/// channels-last, the states become so, too, once, instead of every sample being copied into their order.
at::Tensor Readable::beside(std::initializer_list<at::Tensor*> states) const {
  const base::RecordingMode quiet;
  at::Tensor sample = tensor().detach();
  const at::Tensor& first = **states.begin();
  if (!first.is_contiguous()) return sample.strides() == first.strides() ? sample : copy_like(first, sample);
  const c10::ArrayRef<std::int64_t> order = order_of_dims();
  if (std::is_sorted(order.begin(), order.end())) return contiguous();
  if (numel_ <= kSmall) return sample.contiguous();  // loops over small samples take contiguous states
  for (at::Tensor* const state : states) *state = copy_like(sample, *state);
  return sample;
}

bool Readable::add_to_moments(double count, std::initializer_list<at::Tensor*> moments) const {
  if (!plain_) return false;
  const at::Tensor sample = beside(moments);
  const auto type = sample.scalar_type();
  const char* x = static_cast<const char*>(sample.data_ptr());
  const auto item = static_cast<std::int64_t>(sample.element_size());
  double* to[4] = {};
  std::transform(moments.begin(), moments.end(), to, [](at::Tensor* one) { return one->data_ptr<double>(); });
  at::parallel_for(0, sample.numel(), kSmall, [&](std::int64_t begin, std::int64_t end) {
    if (moments.size() == 2) {
      fold_variance({type, x + begin * item, end - begin}, count, to[0] + begin, to[1] + begin);
    } else {
      kernels()->fold_moments(type, x + begin * item, static_cast<std::size_t>(end - begin), count,
                              to[0] + begin, to[1] + begin, to[2] + begin, to[3] + begin);
    }
  });
  return true;
}

}  // namespace torchtap::reductions::detail
