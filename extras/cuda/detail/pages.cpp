// Lays out pages on a device, has kernels add samples to them, and answers reductions from what they have.

#include <ATen/Functions.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>

#include <torchtap/base/capture.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/strided.hpp>
#include <torchtap/core/sink.hpp>
#include <torchtap/cuda/detail/pages.hpp>

namespace torchtap::cuda::detail {
namespace {

using reductions::NonFinite;

constexpr std::int64_t kMostNumbers = 1 << 24;  // of a page: 128 MB
constexpr std::int64_t kWord = sizeof(std::int64_t);
constexpr std::int64_t kSummary = sizeof(Summary) / kWord;

bool same_rows(const Folding& a, const Folding& b) {
  return a.over == b.over && a.over_all == b.over_all;
}

/// Without the policy for what is not finite: kernels count it for each kept element.
Intake without_policy(const Intake& intake) {
  Folding folding = intake.folding();
  folding.non_finite = NonFinite::propagate;
  return Intake(intake.name(), std::move(folding), reductions::extend::Accepts::real, intake.any_shape());
}

/// Memory that graphs write to until the process ends.
void keep_forever(const at::Tensor& memory) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<at::Tensor>;  // devices may be gone when the process ends
  const std::lock_guard lock(mutex);
  kept->push_back(memory);
}

/// Where the parts of a page begin. Returns how many numbers it has.
std::int64_t lay_out(PageHeader& head) {
  std::int64_t at = sizeof(PageHeader) / kWord;
  const auto take = [&at](std::int64_t numbers) { return std::exchange(at, at + numbers); };
  head.locks_at = take((head.kept + 1) / 2);  // of int32
  head.summaries_at = take(head.kept * kSummary);
  if (head.decay >= 0) head.decayed_at = take(head.kept);
  if (head.power >= 0) head.powers_at = take(head.kept);
  if (head.bins != 0) {
    head.edges_at = take(head.bins + 1);
    head.bins_at = take(head.kept * (head.bins + 3));
  }
  if (head.mantissa_bits >= 0)
    head.bits_at = take(head.kept * BitBins{static_cast<int>(head.mantissa_bits)}.slots());
  return at;
}

}  // namespace

Pages::Page::Page(const Intake& intake) : intake(without_policy(intake)), last{{}, 0, 0, 0} {}

bool Pages::Form::is_of(const at::Tensor& sample) const {
  return sample.sizes() == at::IntArrayRef(sizes) && sample.strides() == at::IntArrayRef(strides) &&
         sample.scalar_type() == dtype;
}

std::unique_ptr<Pages> Pages::of(core::Sink& sink) {
  const reductions::SharesPass* const reduction = reductions::extend::sharing(sink);
  if (page_kernels() == nullptr || reduction == nullptr) return nullptr;
  std::unique_ptr<Pages> pages(new Pages);
  return pages->asked_by(*reduction) && pages->finish() ? std::move(pages) : nullptr;
}

Pages::~Pages() {
  if (!captured_) return;
  for (const Page& page : pages_) keep_forever(page.memory);
}

template <class Free>
Pages::Page* Pages::ask_page(const Intake& intake, const Free& free) {
  const Folding& folding = intake.folding();
  if ((folding.over.empty() && !folding.over_all) || folding.non_finite == NonFinite::raise) return nullptr;
  for (Page& page : pages_) {
    if (same_rows(page.intake.folding(), folding) && free(page)) return &page;
  }
  return &pages_.emplace_back(intake);
}

Pages::Page* Pages::ask_page(const Intake& intake, Needs needs) {
  Page* const page = ask_page(intake, [](const Page&) { return true; });
  if (page != nullptr) page->parts.moments = page->parts.moments || needs.moments;
  return page;
}

bool Pages::ask_bins(const Intake& intake, const std::vector<double>& edges) {
  Page* const page =
      ask_page(intake, [&](const Page& one) { return one.edges.empty() || one.edges == edges; });
  if (page == nullptr) return false;
  page->edges = edges;
  page->parts.bins = static_cast<std::int64_t>(edges.size()) - 1;
  return true;
}

/// A part that is a number, below 0 where nobody has asked for it.
template <class T>
bool Pages::ask_part(const Intake& intake, T PageParts::*part, T value) {
  Page* const page =
      ask_page(intake, [&](const Page& one) { return one.parts.*part < 0 || one.parts.*part == value; });
  if (page == nullptr) return false;
  page->parts.*part = value;
  return true;
}

bool Pages::ask_bits(const Intake& intake, BitBins bins) {
  return ask_part<std::int64_t>(intake, &PageParts::mantissa_bits, bins.mantissa_bits);
}

bool Pages::ask_decay(const Intake& intake, double decay) {
  return mask_.empty() && ask_part(intake, &PageParts::decay, decay);  // weights follow all rows
}

bool Pages::ask_power(const Intake& intake, double power) {
  return ask_part(intake, &PageParts::power, power);
}

bool Pages::ask_all(const Intake& intake) {
  rows_asked_.push_back(without_policy(intake));
  return true;
}

bool Pages::choose(const std::string& mask, reductions::extend::MaskOf of) {
  if (shared_ || !mask_.empty()) return false;
  mask_ = mask;
  mask_of_ = of;
  return true;
}

/// Has some page for those who want only rows and a summary of all elements.
bool Pages::finish() {
  Folding all;
  all.over_all = true;
  for (const Intake& intake : rows_asked_) {
    const Folding& folding = intake.folding();
    if (pages_.empty()) pages_.emplace_back(Intake(intake.name(), all));
    const auto has_rows = [&](const Page& page) { return same_rows(page.intake.folding(), folding); };
    if (folding.over.empty() || std::any_of(pages_.begin(), pages_.end(), has_rows) ||
        counting(folding) != nullptr)
      continue;
    if (!mask_.empty()) return false;  // only pages know how many of their rows were chosen
    Page& page = pages_.back().counting ? pages_.emplace_back(Intake(intake.name(), all)) : pages_.back();
    page.counting = intake;
  }
  rows_asked_.clear();
  for (Page& page : pages_) page.parts.masked = !mask_.empty();
  return !pages_.empty();
}

const Pages::Page* Pages::counting(const Folding& folding) const {
  for (const Page& page : pages_) {
    if (page.counting && same_rows(page.counting->folding(), folding)) return &page;
  }
  return nullptr;
}

template <class Has>
const Pages::Page& Pages::page(const Folding& folding, const Has& has) const {
  const auto found = std::find_if(pages_.begin(), pages_.end(), [&](const Page& page) {
    return same_rows(page.intake.folding(), folding) && has(page);
  });
  TORCH_INTERNAL_ASSERT(found != pages_.end());
  return *found;
}

const Pages::Page& Pages::page(const Folding& folding) const {
  return page(folding, [](const Page&) { return true; });
}

bool Pages::accepts(const at::Tensor& sample, const core::Sink& sink, bool captures) {
  PageKernels* const installed = page_kernels();
  kernels_ = kernels_ == nullptr ? installed : kernels_;
  if (installed != kernels_ || kernels_ == nullptr) return false;
  Part part;
  if (!mask_.empty() && !find_rows(sample, captures, part)) return false;
  const at::Tensor& rows = mask_.empty() ? sample : part.rows;
  const bool known = form_ && form_->is_of(rows) && streams_.back().device() == rows.device();
  if (!known && !look(rows, sink)) return false;
  if (captures) {
    for (const Page& page : pages_) {
      TORCH_CHECK_NOT_IMPLEMENTED(
          page.memory.defined() && kernels_->is_compiled(sample, page.parts),
          "reductions::", page.intake.name(), "::update: no sample of dtype ", sample.scalar_type(),
          " came before ", sample.device(),
          " began to capture a graph, in which nothing can be compiled nor be given memory; run "
          "the model once before the capture.");
    }
  }
  part_ = std::move(part);
  return true;
}

/// The rows of a sample, and the mask that chooses among them. False if the pages do not fold these rows.
bool Pages::find_rows(const at::Tensor& sample, bool captures, Part& part) const {
  part.mask = mask_of_(mask_, sample);
  TORCH_CHECK_NOT_IMPLEMENTED(!captures || !part.mask.is_cpu(), "reductions::Where::update: a stream of ",
                              sample.device(), " captures a graph, whose replays do not read \"", mask_,
                              "\" on the CPU; name a mask on ", sample.device(),
                              ", into which each replay's mask is copied.");
  const bool whole = part.mask.dim() == 0;
  for (const Page& page : pages_) {
    const Folding& folding = page.intake.folding();
    const std::int64_t dim = sample.dim() - std::max<std::int64_t>(part.mask.dim() - 1, 0);
    const bool first = folding.over_all || std::any_of(folding.over.begin(), folding.over.end(),
                                                       [&](auto over) { return over == 0 || over == -dim; });
    if (!whole && !first) return false;
  }
  const base::RecordingMode quiet;
  part.rows = part.mask.dim() < 2 ? sample : sample.flatten(0, part.mask.dim() - 1);
  part.mask = part.mask.to(sample.device(), /*non_blocking=*/true).contiguous();
  return true;
}

/// Checks a sample that lies in another way than the last one.
bool Pages::look(const at::Tensor& sample, const core::Sink& sink) {
  const bool readable = base::is_strided(sample) && !sample.is_neg() && !sample._is_zerotensor() &&
                        c10::isFloatingType(sample.scalar_type()) && sample.numel() != 0 &&
                        kernels_->reads(sample);
  if (!readable) return false;
  const base::RecordingMode quiet;
  std::vector<Rows> opened;
  for (Page& page : pages_) {
    opened.push_back(page.intake.open(sample));
    PageHeader head = page.head;
    head.kept = c10::multiply_integers(opened.back().kept());
    head.bins = page.parts.bins;
    head.mantissa_bits = page.parts.mantissa_bits;
    head.decay = page.parts.decay;
    head.power = page.parts.power;
    if (lay_out(head) > kMostNumbers || head.kept == 0) return false;
    if (!page.memory.defined()) page.head = head;
  }
  Form form{sample.sizes().vec(), sample.strides().vec(), sample.scalar_type(), true};
  std::vector<DeviceRows> lie;
  for (const Rows& rows : opened) {
    lie.push_back(reductions::extend::device_rows(rows));
    form.plain = form.plain && lie.back().memory.data_ptr() == sample.data_ptr();
    lie.back().memory = at::Tensor();
  }
  const bool first = !form_;
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    Page& page = pages_[i];
    page.intake.commit(opened[i]);
    page.sizes = form.sizes;
    page.last = std::move(lie[i]);
    page.counted = page.counting ? page.counting->open(sample).count : 0;
  }
  form_ = std::move(form);
  if (streams_.empty())
    streams_.push_back(c10::impl::VirtualGuardImpl(sample.device().type()).getStream(sample.device()));
  if (first && (sink.count() != 0 || !mask_.empty())) {
    try {
      try_merge(sink);
    } catch (...) {
      form_.reset();
      for (Page& page : pages_) page.intake = page.intake.fresh();
      throw;
    }
  }
  return true;
}

/// Throws what merging samples of this shape with what `sink` has would throw.
void Pages::try_merge(const core::Sink& sink) {
  for (Page& page : pages_) {
    page.taken = at::zeros({lay_out(page.head)}, at::kLong);
    read(page);
    page.head.samples = 1;
    page.head.rows = page.counted;
    page.head.elements = page.last.rows() * page.head.kept;
  }
  const auto part = sink.fresh();
  fold_into(*reductions::extend::sharing(*part));
  sink.clone()->merge(*part);
}

/// Makes an empty page.
void Pages::open(Page& page, const at::Tensor& sample) {
  const std::int64_t numbers = lay_out(page.head);
  PageHeader head = page.head;
  head.samples = head.elements = head.rows = 0;
  const at::Tensor here = at::zeros({numbers}, at::kLong);
  auto* const words = here.data_ptr<std::int64_t>();
  std::memcpy(words, &head, sizeof head);
  const Summary none;
  for (std::int64_t k = 0; k < head.kept; ++k)
    std::memcpy(words + head.summaries_at + k * kSummary, &none, sizeof none);
  if (head.bins != 0) std::memcpy(words + head.edges_at, page.edges.data(), page.edges.size() * kWord);
  page.memory = here.to(sample.device(), /*non_blocking=*/true);
}

/// Has later work of stream `now` wait for what stream `before` has to do with the pages.
void Pages::follow(const c10::Stream& before, const c10::Stream& now) const {
  if (before == now) return;
  const c10::impl::VirtualGuardImpl guard(now.device_type());
  c10::Event event(now.device_type());
  event.record(before);
  event.block(now);
  for (const Page& page : pages_) {
    if (page.memory.defined()) guard.recordDataPtrOnStream(page.memory.storage().data_ptr(), now);
  }
}

void Pages::Batch::forget(std::size_t index) {
  const std::size_t from = begins_[index], to = index + 1 < size() ? begins_[index + 1] : entries_.size();
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(from),
                 entries_.begin() + static_cast<std::ptrdiff_t>(to));
  begins_.erase(begins_.begin() + static_cast<std::ptrdiff_t>(index));
  for (std::size_t i = index; i < size(); ++i) begins_[i] -= to - from;
}

void Pages::Batch::launch() {
  struct Clear {
    Batch& batch;
    ~Clear() {
      batch.begins_.clear();
      batch.entries_.clear();
    }
  } clear{*this};
  const base::RecordingMode quiet;
  if (!entries_.empty()) kernels_->add(entries_);
}

void Pages::put(const at::Tensor& sample, Batch& batch, bool captures) {
  const base::RecordingMode quiet;
  captured_ = captured_ || captures;
  const c10::Stream now = c10::impl::VirtualGuardImpl(sample.device().type()).getStream(sample.device());
  if (!captures && streams_.back() != now) {  // a capture cannot wait for what is outside of it
    follow(streams_.back(), now);
    streams_.erase(std::remove(streams_.begin(), streams_.end(), now), streams_.end());
    streams_.push_back(now);
  }
  batch.kernels_ = kernels_;
  batch.begins_.push_back(batch.entries_.size());
  const Part part = mask_.empty() ? Part{sample, {}} : std::exchange(part_, {});
  for (Page& page : pages_) {
    if (!page.memory.defined()) open(page, sample);
    DeviceRows rows = page.last;
    rows.memory =
        form_->plain ? part.rows : reductions::extend::device_rows(page.intake.open(part.rows)).memory;
    batch.entries_.push_back({std::move(rows), page.memory, page.parts, page.counted, part.mask});
  }
}

/// Reads what was taken of a page.
void Pages::read(Page& page) {
  if (page.parts.masked) {
    left_out_ = page.head.elements - page.head.rows;
    page.head.elements = 0;
    for (const Summary& one : summaries_of(page)) page.head.elements += one.taken + one.non_finite();
  }
  if (page.parts.mantissa_bits < 0) return;
  const std::int64_t width = BitBins{static_cast<int>(page.parts.mantissa_bits)}.slots();
  const auto* counts = page.taken.data_ptr<std::int64_t>() + page.head.bits_at;
  page.slots.assign(static_cast<std::size_t>(page.head.kept), {});
  for (auto& slots : page.slots) {
    for (std::int64_t slot = 0; slot < width; ++slot) {
      if (counts[slot] != 0) slots.emplace_back(static_cast<std::uint32_t>(slot), counts[slot]);
    }
    counts += width;
  }
}

std::int64_t Pages::settle(core::Sink* sink) {
  if (streams_.empty() || !pages_.front().memory.defined()) return 0;
  const at::Device device = streams_.back().device();
  TORCH_CHECK_NOT_IMPLEMENTED(!base::is_capturing(device), "reductions: a stream of ", device,
                              " captures a graph, in which results cannot be read; read them after it.");
  const base::RecordingMode quiet;
  const c10::Stream now = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  for (const c10::Stream& stream : streams_) follow(stream, now);
  streams_ = {now};
  std::vector<at::Tensor> taken;  // all memory first: when it is short, no page may be empty already
  for (Page& page : pages_) {
    taken.push_back(at::empty_like(page.memory));
    page.taken = at::empty(page.memory.sizes(), at::kLong);
  }
  for (std::size_t i = 0; i < pages_.size(); ++i) kernels_->take(pages_[i].memory, taken[i]);
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    Page& page = pages_[i];
    page.taken.copy_(taken[i]);
    const auto* const counts = page.taken.data_ptr<std::int64_t>();
    page.head.samples = counts[0];
    page.head.elements = counts[1];
    page.head.rows = counts[2];
  }
  const std::int64_t samples = pages_.front().head.samples;
  if (samples == 0 || sink == nullptr) return samples;
  for (Page& page : pages_) read(page);
  const auto part = sink->fresh();
  fold_into(*reductions::extend::sharing(*part));
  sink->merge(*part);
  for (Page& page : pages_) {
    page.taken = at::Tensor();
    page.slots.clear();
  }
  return samples;
}

at::Tensor Pages::as_one(const Folding& folding) const {
  const Page& page = this->page(folding);
  const at::Tensor element = at::empty({1}, at::TensorOptions().dtype(page.intake.dtype()));
  std::int64_t rows = page.head.elements / page.head.kept;
  if (folding.over_all) return element.expand({rows});
  std::vector<std::int64_t> sizes = page.sizes;
  const auto dim = static_cast<std::int64_t>(sizes.size());
  for (const std::int64_t over : folding.over)
    sizes[static_cast<std::size_t>(over < 0 ? over + dim : over)] = std::exchange(rows, 1);
  return element.expand(sizes);
}

at::Tensor Pages::last() const {
  const Page& page = pages_.front();
  return at::empty({1}, at::TensorOptions().dtype(page.intake.dtype())).expand(page.sizes);
}

Summary Pages::total() const {
  Summary total;
  for (const Summary& one : summaries(pages_.front().intake.folding())) total.merge(one);
  return total;
}

std::int64_t Pages::rows(const Folding& folding) const {
  if (folding.over_all) return elements();
  if (folding.over.empty()) return pages_.front().head.samples;
  if (const Page* const counted = counting(folding)) return counted->head.rows;
  const PageHeader& head = page(folding).head;
  return head.elements / head.kept;
}

c10::ArrayRef<Summary> Pages::summaries(const Folding& folding) const {
  return summaries_of(page(folding));
}

c10::ArrayRef<Summary> Pages::summaries_of(const Page& page) {
  return {reinterpret_cast<const Summary*>(page.taken.data_ptr<std::int64_t>() + page.head.summaries_at),
          static_cast<std::size_t>(page.head.kept)};
}

c10::ArrayRef<std::int64_t> Pages::bins(const Folding& folding, const std::vector<double>& edges) const {
  const Page& page = this->page(folding, [&](const Page& one) { return one.edges == edges; });
  return {page.taken.data_ptr<std::int64_t>() + page.head.bins_at,
          static_cast<std::size_t>(page.head.kept * (page.head.bins + 3))};
}

const std::vector<SlotCounts>& Pages::bits(const Folding& folding, BitBins bins) const {
  return page(folding, [&](const Page& one) { return one.parts.mantissa_bits == bins.mantissa_bits; }).slots;
}

at::Tensor Pages::decayed(const Folding& folding, double decay) const {
  const Page& page = this->page(folding, [&](const Page& one) { return one.parts.decay == decay; });
  return numbers(page, page.head.decayed_at);
}

at::Tensor Pages::powers(const Folding& folding, double power) const {
  const Page& page = this->page(folding, [&](const Page& one) { return one.parts.power == power; });
  return numbers(page, page.head.powers_at);
}

at::Tensor Pages::numbers(const Page& page, std::int64_t at) {
  at::Tensor result = at::empty({page.head.kept}, at::kDouble);
  std::memcpy(result.data_ptr<double>(), page.taken.data_ptr<std::int64_t>() + at,
              static_cast<std::size_t>(page.head.kept * kWord));
  return result;
}

}  // namespace torchtap::cuda::detail
