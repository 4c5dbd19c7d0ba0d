// Collects the requests of reductions about a sample, reads it once with the kernels, and answers them.

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include <torchtap/base/capture.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/strided.hpp>
#include <torchtap/core/unfit.hpp>
#include <torchtap/reductions/detail/kernel_pass.hpp>
#include <torchtap/reductions/detail/ledger.hpp>
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

KernelPass::KernelPass(const at::Tensor& sample) : source_(sample) {
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

/// Makes a contiguous tensor of another sample. Accepts channels-last and any other dense order.
void KernelPass::put_in_order() {
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

KernelPass::KernelPass(const KernelPass& whole, c10::ArrayRef<std::int64_t> rows) : source_(whole.source_) {
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

KernelPass::KernelPass(const at::Tensor& like, const Ledger& ledger)
    : source_(like), numel_(like.numel()), type_(like.scalar_type()), plain_(true) {
  seldom().ledger = &ledger;
}

const at::Tensor& KernelPass::gathered() const {
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

void KernelPass::read(Read& read) const {
  const Scattered* const scattered = this->scattered();
  if (scattered != nullptr && reads_scattered(read.layout, chosen()->sizes[0]))
    return detail::read({type_, nullptr, numel_, *scattered}, read);
  if (memory_.data == nullptr) memory_.data = static_cast<const char*>(contiguous().data_ptr());
  detail::read({type_, memory_.data, numel_, {}}, read);
}

std::optional<Layout> KernelPass::layout(const Folding& folding) const {
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

Read& KernelPass::request(const Layout& layout) {
  if (Read* const found = find(layout)) return *found;
  auto& reads = seldom().reads;
  reads.emplace_back().layout = layout;
  return reads.back();
}

Read* KernelPass::find(const std::optional<Layout>& layout) const {
  if (no_reads()) return nullptr;
  auto& reads = seldom_->reads;
  const auto found = std::find_if(reads.begin(), reads.end(),
                                  [&](const Read& read) { return layout && read.layout == *layout; });
  return found == reads.end() ? nullptr : &*found;
}

/// Whether the folding is of all elements of a small sample.
bool KernelPass::is_whole(const Folding& folding) const noexcept {
  return small_ && folding.over_all && numel_ != 1;
}

void KernelPass::ask(const Folding& folding, Needs needs) {
  if (folding.over.empty() && !folding.over_all) return;
  if (is_whole(folding)) return ask_total(needs);
  if (!plain_) return;
  const auto layout = this->layout(folding);
  if (!layout) return;
  Read& read = request(*layout);
  read.summarize = true;
  read.needs = read.needs | needs;
}

void KernelPass::ask_total(Needs needs) {
  if (small_) {
    whole_needs_ = whole_needs_ | needs;
    whole_asked_ = true;
  } else {
    total_ = total_.value_or(Needs()) | needs;
  }
}

void KernelPass::ask_bins(const Folding& folding, const Edges& edges) {
  const auto layout = this->layout(folding);
  if (!plain_ || !layout || !has_bins(*layout)) return;
  auto& countings = request(*layout).countings;
  const bool asked = std::any_of(countings.begin(), countings.end(),
                                 [&](const Read::Counting& one) { return one.edges == edges; });
  if (!asked) countings.push_back({edges, {}});
}

void KernelPass::ask_bits(const Folding& folding, BitBins bins) {
  const auto layout = this->layout(folding);
  if (!layout || !has_bit_counts(*layout)) return;
  auto& countings = request(*layout).bit_countings;
  const bool asked = std::any_of(countings.begin(), countings.end(), [&](const Read::BitCounting& one) {
    return one.bins.mantissa_bits == bins.mantissa_bits;
  });
  if (!asked) countings.push_back({bins, {}});
}

const std::vector<SlotCounts>* KernelPass::count_bits(const Folding& folding, BitBins bins) const {
  if (ledger() != nullptr) return &ledger()->bits(folding, bins);
  Read* const read = no_reads() ? nullptr : find(layout(folding));
  if (read == nullptr) return nullptr;
  for (const auto& counting : read->bit_countings) {
    if (counting.bins.mantissa_bits != bins.mantissa_bits) continue;
    (void)done(*read);
    return &counting.kept;
  }
  return nullptr;
}

/// Whether the total of a small sample comes from other reads, which suffice unless moments are needed.
bool KernelPass::total_of_reads() const noexcept {
  return plain_ && whole_asked_ && !whole_needs_.moments && !no_reads();
}

const Summary& KernelPass::whole() const {
  if (!whole_) whole_ = summarize(*memory(), whole_needs_);
  return *whole_;
}

const Read& KernelPass::done(Read& read) const {
  if (!read.done) {
    if (plain_ && &read == &seldom_->reads.front() && (total_ || total_of_reads())) {
      read.summarize = true;
      read.needs = read.needs | (total_ ? *total_ : whole_needs_);
    }
    this->read(read);
  }
  return read;
}

c10::ArrayRef<Summary> KernelPass::answer(const Folding& folding) const {
  if (ledger() != nullptr) return ledger()->summaries(folding);
  if (is_whole(folding)) return whole_asked_ ? c10::ArrayRef<Summary>(whole()) : c10::ArrayRef<Summary>();
  Read* const read = no_reads() ? nullptr : find(layout(folding));
  if (read == nullptr || !read->summarize) return {};
  return done(*read).kept;
}

std::optional<Summary> KernelPass::answer_total() const {
  if (small_ && !total_of_reads()) return whole_asked_ ? std::optional<Summary>(whole()) : std::nullopt;
  if (!plain_ || !(total_ || small_)) return std::nullopt;
  auto& reads = seldom().reads;
  if (reads.empty()) reads.emplace_back().layout = Layout{1, 1, numel_, 1};
  Summary total;
  for (const auto& one : done(reads.front()).kept) total.merge(one);
  return total;
}

Summary KernelPass::total() const {
  if (const auto answer = answer_total()) return *answer;
  if (source_.defined() && !base::is_strided(source_)) {
    core::unfit<c10::TypeError>(c10::str("reductions::Pass::total: expected a strided tensor, got ",
                                         base::instead_of_strided(source_), "."));
  }
  TORCH_CHECK_TYPE(
      source_.defined() && !source_.is_quantized() && !source_.is_complex(),
      "reductions::Pass::total: expected a strided tensor of real numbers, got ",
      source_.defined() ? c10::str(source_.toString(), " of shape ", sizes()) : "an undefined one",
      "; convert it first.");
  const base::RecordingMode quiet;
  at::Tensor x = sample().detach().to(at::kCPU, at::kDouble).contiguous();
  if (x.is_neg() || x._is_zerotensor()) x = at::empty(x.sizes(), x.options()).copy_(x);
  return summarize({at::kDouble, static_cast<const char*>(x.data_ptr()), x.numel()}, {true, true});
}

/// The sample with its elements in the order in memory of the states, which all have the same. If samples are
/// channels-last, the states become so, too, once, instead of every sample being copied into their order.
at::Tensor KernelPass::beside(std::initializer_list<at::Tensor*> states) const {
  const base::RecordingMode quiet;
  at::Tensor sample = this->sample().detach();
  const at::Tensor& first = **states.begin();
  if (!first.is_contiguous()) return sample.strides() == first.strides() ? sample : copy_like(first, sample);
  const c10::ArrayRef<std::int64_t> order = order_of_dims();
  if (std::is_sorted(order.begin(), order.end())) return contiguous();
  if (numel_ <= kSmall) return sample.contiguous();  // loops over small samples take contiguous states
  for (at::Tensor* const state : states) *state = copy_like(sample, *state);
  return sample;
}

bool KernelPass::fold_moments(double count, at::Tensor& mean, at::Tensor& m2, at::Tensor& m3,
                              at::Tensor& m4) const {
  if (!plain_) return false;
  const at::Tensor sample = beside({&mean, &m2, &m3, &m4});
  const auto type = sample.scalar_type();
  const char* x = static_cast<const char*>(sample.data_ptr());
  const auto item = static_cast<std::int64_t>(sample.element_size());
  double* const to[] = {mean.data_ptr<double>(), m2.data_ptr<double>(), m3.data_ptr<double>(),
                        m4.data_ptr<double>()};
  at::parallel_for(0, sample.numel(), kSmall, [&](std::int64_t begin, std::int64_t end) {
    kernels()->fold_moments(type, x + begin * item, static_cast<std::size_t>(end - begin), count,
                            to[0] + begin, to[1] + begin, to[2] + begin, to[3] + begin);
  });
  return true;
}

bool KernelPass::fold_variance(double count, at::Tensor& mean, at::Tensor& m2) const {
  if (!plain_) return false;
  const at::Tensor sample = beside({&mean, &m2});
  const auto* const x = static_cast<const char*>(sample.data_ptr());
  const auto item = static_cast<std::int64_t>(sample.element_size());
  double* const to[] = {mean.data_ptr<double>(), m2.data_ptr<double>()};
  at::parallel_for(0, sample.numel(), kSmall, [&](std::int64_t begin, std::int64_t end) {
    detail::fold_variance({sample.scalar_type(), x + begin * item, end - begin}, count, to[0] + begin,
                          to[1] + begin);
  });
  return true;
}

bool KernelPass::count_bins(const Folding& folding, const Edges& edges, std::int64_t* slots) const {
  if (ledger() != nullptr) {
    const auto counts = ledger()->bins(folding, edges->edges());
    std::transform(counts.begin(), counts.end(), slots, slots, std::plus<>());
    return true;
  }
  const auto layout = this->layout(folding);
  if (!plain_ || !layout || !has_bins(*layout)) return false;
  const auto add = [&](const Read& read) {
    for (const auto& counting : read.countings) {
      if (counting.edges != edges) continue;
      std::transform(counting.slots.begin(), counting.slots.end(), slots, slots, std::plus<>());
      return true;
    }
    return false;
  };
  Read* const read = find(layout);
  if (read != nullptr && add(done(*read))) return true;
  Read own;
  own.layout = *layout;
  own.countings.push_back({edges, {}});
  this->read(own);
  return add(own);
}

at::Tensor empty(at::IntArrayRef sizes, c10::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions().dtype(dtype));
}

}  // namespace torchtap::reductions::detail
