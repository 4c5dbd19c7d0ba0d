// Packs small samples one behind the other.
#include <ATen/Functions.h>
#include <c10/core/DispatchKeySet.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/reused_memory.hpp>
#include <torchtap/base/strided.hpp>
#include <torchtap/recorders/detail/sample_list.hpp>

namespace torchtap::recorders::detail {
namespace {

constexpr std::int64_t kPackedBytes = 64 << 10;  // larger samples get separate allocations
constexpr std::int64_t kBlockBytes = 1 << 20;
// A new block has room for 1/48 of the samples, which may stay unused.
constexpr std::int64_t kGrowth = 48;
// While there are few samples, it has room for as many more, up to these bytes: a tensor object takes more
// memory than the unused part.
constexpr std::int64_t kFirstBytes = 4 << 10;
constexpr std::int64_t kUnused = 64;  // a block of which 1/64 stays unused is cut
constexpr std::size_t kManyBlocks = 16;
constexpr std::int64_t kCoalesced = 512 << 10;  // in larger blocks, a tensor object takes little
constexpr std::int64_t kTensorBytes = 256;      // of a tensor object besides its elements, about
constexpr std::size_t kMostForms = std::numeric_limits<std::uint16_t>::max();
constexpr std::uint16_t kLongestStretch = std::numeric_limits<std::uint16_t>::max();

/// Where a sample begins behind `used` bytes.
std::int64_t aligned(std::int64_t used, c10::ScalarType dtype) {
  if (dtype == c10::ScalarType::Undefined) return used;
  const auto size = static_cast<std::int64_t>(c10::elementSize(dtype));
  return (used + size - 1) / size * size;
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_quantized() && !tensor.is_conj() &&
         !tensor.is_neg() && !tensor._is_zerotensor() &&
         !tensor.key_set().has(c10::DispatchKey::NestedTensor);
}

}  // namespace

at::IntArrayRef SampleList::Block::sizes_of(const Form& form) const {
  return {sizes.data() + form.sizes, form.dimensions};
}

std::int64_t SampleList::Block::bytes_of(const Form& form) const {
  if (form.dtype == c10::ScalarType::Undefined) return 0;
  auto bytes = static_cast<std::int64_t>(c10::elementSize(form.dtype));
  for (const std::int64_t size : sizes_of(form)) bytes *= size;
  return bytes;
}

/// What it takes of memory.
std::int64_t SampleList::Block::bytes() const {
  auto bytes =
      static_cast<std::int64_t>(sizeof(Block) + forms.size() * sizeof(Form) +
                                sizes.size() * sizeof(std::int64_t) + stretches.size() * sizeof(Stretch));
  if (tensor.defined() || memory.defined()) bytes += kTensorBytes;
  const bool counts = tensor.defined() && !shared && tensor.layout() == c10::kStrided;
  return bytes + capacity + (counts ? static_cast<std::int64_t>(tensor.nbytes()) : 0);
}

/// A packed sample.
at::Tensor SampleList::Block::view(const Form& form, std::int64_t offset) const {
  if (form.dtype == c10::ScalarType::Undefined) return {};
  at::Tensor sample = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(memory.storage()), memory.key_set(), c10::scalarTypeToTypeMeta(form.dtype));
  sample.unsafeGetTensorImpl()->set_sizes_contiguous(sizes_of(form));
  sample.unsafeGetTensorImpl()->set_storage_offset(offset /
                                                   static_cast<std::int64_t>(c10::elementSize(form.dtype)));
  return sample;
}

/// Calls `each` with the form, the number and the first offset of each stretch. Returns where the last ends.
template <class Each>
std::int64_t SampleList::Block::each_stretch(const Each& each) const {
  std::int64_t end = 0;
  for (const Stretch& stretch : stretches) {
    const Form& form = forms[stretch.form];
    const std::int64_t offset = aligned(end, form.dtype);
    each(form, std::int64_t{stretch.count}, offset);
    end = offset + stretch.count * bytes_of(form);
  }
  return end;
}

/// An empty block where tensors such as `like` are, with `capacity` bytes.
SampleList::Block SampleList::block(const at::Tensor& like, std::int64_t capacity) {
  Block made;
  made.capacity = capacity;
  made.plain = base::is_usual_on_cpu(like);
  if (made.plain) {  // as at::empty does, from other memory
    made.memory = at::detail::make_tensor<c10::TensorImpl>(
        base::reused_storage(static_cast<std::size_t>(capacity)), c10::DispatchKeySet(c10::DispatchKey::CPU),
        caffe2::TypeMeta::Make<std::uint8_t>());
    made.memory.unsafeGetTensorImpl()->set_sizes_contiguous({capacity});
  } else {
    made.memory = at::empty({capacity}, like.options().dtype(at::kByte).requires_grad(false));
  }
  return made;
}

/// Appends bytes of one block to those of another, which has room.
void SampleList::move(const Block& from, std::int64_t offset, std::int64_t bytes, Block& to) {
  if (bytes > 0 && from.plain && to.plain) {
    std::memcpy(static_cast<char*>(to.memory.data_ptr()) + to.used, base::bytes_in(from.memory) + offset,
                static_cast<std::size_t>(bytes));
  } else if (bytes > 0) {
    to.memory.narrow(0, to.used, bytes).copy_(from.memory.narrow(0, offset, bytes));
  }
  to.used += bytes;
}

bool SampleList::append_alike(const at::Tensor& sample) {
  if (alike_ < 0 || !sample.defined()) return false;
  Block& last = blocks_.back();
  Stretch& stretch = last.stretches.back();
  if (last.used + alike_ > last.capacity || stretch.count == kLongestStretch ||
      !base::is_plain_on_cpu(sample))
    return false;
  const Form& form = last.forms[stretch.form];
  if (form.dtype != sample.scalar_type() || last.sizes_of(form) != sample.sizes()) return false;
  if (alike_ > 0) {
    std::memcpy(static_cast<char*>(last.memory.data_ptr()) + last.used, base::bytes_in(sample),
                static_cast<std::size_t>(alike_));
  }
  last.used += alike_;
  ++stretch.count;
  ++size_;
  return true;
}

void SampleList::append_copy(const at::Tensor& sample) {
  if (append_alike(sample)) return;
  if (!sample.defined()) return append(sample, /*shared=*/false);
  const base::RecordingMode quiet;
  if (!is_plain(sample) || !sample.has_storage()) return append(sample.clone(), /*shared=*/false);
  if (!takes(sample)) {
    close();
    coalesce();
    const auto bytes = std::max<std::int64_t>(static_cast<std::int64_t>(sample.nbytes()), 1);
    const std::int64_t room = std::max(closed_bytes_ / kGrowth, std::min(closed_bytes_, kFirstBytes));
    const std::int64_t most = bytes > kPackedBytes ? bytes : kBlockBytes;
    push(block(sample, std::clamp(room, bytes, most) / bytes * bytes));
  }
  pack(sample);
}

/// Whether the last block has room for a sample.
bool SampleList::takes(const at::Tensor& sample) const {
  if (blocks_.empty()) return false;
  const Block& last = blocks_.back();
  return last.memory.defined() && last.forms.size() < kMostForms && last.memory.device() == sample.device() &&
         aligned(last.used, sample.scalar_type()) + static_cast<std::int64_t>(sample.nbytes()) <=
             last.capacity;
}

/// Copies a sample to the last block, which has room.
void SampleList::pack(const at::Tensor& sample) {
  Block& last = blocks_.back();
  const auto dtype = sample.scalar_type();
  const auto bytes = static_cast<std::int64_t>(sample.nbytes());
  const std::int64_t offset = aligned(last.used, dtype);
  lengthen(dtype, sample.sizes(), 1);
  ++size_;
  last.used = offset + bytes;
  try {
    if (last.plain && base::is_plain_on_cpu(sample)) {
      if (bytes > 0) {
        std::memcpy(static_cast<char*>(last.memory.data_ptr()) + offset, base::bytes_in(sample),
                    static_cast<std::size_t>(bytes));
      }
    } else {
      last.view(last.forms[last.stretches.back().form], offset).copy_(sample);
    }
  } catch (...) {
    drop_last();
    throw;
  }
  alike_ = last.plain ? bytes : -1;
}

/// The number of a form in the last block.
std::uint16_t SampleList::form(c10::ScalarType dtype, at::IntArrayRef sizes) {
  Block& last = blocks_.back();
  const auto before = [&](std::uint16_t known, c10::ScalarType) {
    const Form& form = last.forms[known];
    if (form.dtype != dtype) return form.dtype < dtype;
    const at::IntArrayRef other = last.sizes_of(form);
    return std::lexicographical_compare(other.begin(), other.end(), sizes.begin(), sizes.end());
  };
  const auto place = std::lower_bound(order_.begin(), order_.end(), dtype, before);
  if (place != order_.end() && last.forms[*place].dtype == dtype &&
      last.sizes_of(last.forms[*place]) == sizes)
    return *place;
  const auto number = static_cast<std::uint16_t>(last.forms.size());
  const Form made{dtype, static_cast<std::uint16_t>(sizes.size()),
                  static_cast<std::uint32_t>(last.sizes.size())};
  last.sizes.insert(last.sizes.end(), sizes.begin(), sizes.end());
  last.forms.push_back(made);
  order_.insert(place, number);
  return number;
}

/// Notes further samples in the last block.
void SampleList::lengthen(c10::ScalarType dtype, at::IntArrayRef sizes, std::int64_t count) {
  const std::int64_t before = blocks_.back().bytes();
  auto& stretches = blocks_.back().stretches;
  const std::uint16_t number = form(dtype, sizes);
  while (count > 0) {
    if (stretches.empty() || stretches.back().form != number || stretches.back().count == kLongestStretch)
      stretches.push_back({number, 0});
    const auto more = std::min<std::int64_t>(count, kLongestStretch - stretches.back().count);
    stretches.back().count = static_cast<std::uint16_t>(stretches.back().count + more);
    count -= more;
  }
  bytes_ += blocks_.back().bytes() - before;
}

void SampleList::push(Block block) {
  const std::int64_t bytes = block.bytes();
  blocks_.push_back(std::move(block));
  order_.clear();
  alike_ = -1;
  bytes_ += bytes;
}

/// The last block gets no further samples: what it does not use is given back.
void SampleList::close() {
  if (blocks_.empty()) return;
  Block& last = blocks_.back();
  const std::int64_t before = last.bytes();
  if (last.capacity - last.used > last.capacity / kUnused) {
    Block cut = block(last.memory, std::max<std::int64_t>(last.used, 1));
    move(last, 0, last.used, cut);
    last.memory = std::move(cut.memory);
    last.capacity = cut.capacity;
  }
  last.forms.shrink_to_fit();
  last.sizes.shrink_to_fit();
  last.stretches.shrink_to_fit();
  bytes_ += last.bytes() - before;
  closed_bytes_ += last.used;
}

/// Joins small blocks. While there are few samples, a tensor takes more memory than the samples in it.
void SampleList::coalesce() {
  if (blocks_.size() < kManyBlocks || closed_bytes_ > kCoalesced) return;
  const Block* like = nullptr;
  std::int64_t bytes = 0;
  std::size_t forms = 0;
  for (const Block& each : blocks_) {
    if (each.tensor.defined()) return;
    if (!each.memory.defined()) continue;
    if (like != nullptr && like->memory.device() != each.memory.device()) return;
    if (like == nullptr) like = &each;
    bytes += each.used + 16;  // the largest element begins at its multiple
    forms += each.forms.size();
  }
  if (like == nullptr || forms + blocks_.size() > kMostForms) return;
  SampleList whole;
  whole.push(block(like->memory, bytes));
  for (const Block& each : blocks_) {
    each.each_stretch([&](const Form& form, std::int64_t count, std::int64_t offset) {
      Block& to = whole.blocks_.back();
      to.used = aligned(to.used, form.dtype);
      move(each, offset, count * each.bytes_of(form), to);
      whole.lengthen(form.dtype, each.sizes_of(form), count);
    });
  }
  whole.size_ = size_;
  whole.close();
  *this = std::move(whole);
}

void SampleList::append(const at::Tensor& sample, bool shared) {
  if (!sample.defined()) {
    if (blocks_.empty() || blocks_.back().tensor.defined() || blocks_.back().forms.size() == kMostForms) {
      close();
      push({});
    }
    lengthen(c10::ScalarType::Undefined, {}, 1);
    alike_ = -1;
  } else {
    close();
    Block one;
    one.tensor = sample;
    // Inference tensors have no version counter, so that changes cannot be detected.
    one.shared = shared && !sample.is_inference();
    if (one.shared) one.version = static_cast<std::int64_t>(sample._version());
    push(std::move(one));
  }
  ++size_;
}

void SampleList::append(const SampleList& other) {
  close();
  for (Block block : other.blocks_) {
    block.capacity = block.used;  // the other list fills the rest
    closed_bytes_ += block.used;
    push(std::move(block));
  }
  size_ += other.size_;
}

void SampleList::drop_last() noexcept {
  --size_;
  // A block in which the first sample failed has none.
  while (!blocks_.back().tensor.defined() && blocks_.back().stretches.empty()) {
    bytes_ -= blocks_.back().bytes();
    blocks_.pop_back();
  }
  Block& last = blocks_.back();
  alike_ = -1;
  bytes_ -= last.bytes();
  if (!last.tensor.defined()) {
    if (--last.stretches.back().count == 0) last.stretches.pop_back();
    last.used = last.each_stretch([](const Form&, std::int64_t, std::int64_t) {});
  }
  if (last.stretches.empty()) {
    blocks_.pop_back();
    order_.clear();
  } else {
    bytes_ += last.bytes();
  }
}

std::vector<at::Tensor> SampleList::tensors(const std::string& what) const {
  const base::RecordingMode quiet;
  std::vector<at::Tensor> samples;
  samples.reserve(static_cast<std::size_t>(size_));
  for (const Block& block : blocks_) {
    if (!block.tensor.defined()) {
      block.each_stretch([&](const Form& form, std::int64_t count, std::int64_t offset) {
        for (std::int64_t i = 0; i < count; ++i)
          samples.push_back(block.view(form, offset + i * block.bytes_of(form)));
      });
      continue;
    }
    TORCH_CHECK_VALUE(!block.shared || static_cast<std::int64_t>(block.tensor._version()) == block.version,
                      what, ": sample ", samples.size(),
                      " was captured as an alias and has been changed in place since; capture copies "
                      "(the default), or read aliases before the model changes them.");
    samples.push_back(block.tensor);
  }
  return samples;
}

}  // namespace torchtap::recorders::detail
