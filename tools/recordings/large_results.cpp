#include "large_results.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <optional>

namespace torchtap::tools {
namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 22;  // elements
constexpr std::size_t kTogether = 4096;                 // tensors

/// Parts of `tensor` with at most `kBlock` elements, halved in the longest dimension.
void each_part(const at::Tensor& tensor, const std::function<void(const at::Tensor&)>& visit) {
  if (tensor.numel() <= kBlock) return visit(tensor);
  const auto longest = std::max_element(tensor.sizes().begin(), tensor.sizes().end());
  const std::int64_t dim = longest - tensor.sizes().begin(), half = *longest / 2;
  each_part(tensor.narrow(dim, 0, half), visit);
  each_part(tensor.narrow(dim, half, *longest - half), visit);
}

/// Collects small tensors of one dtype.
class Collector {
 public:
  explicit Collector(const std::function<void(const at::Tensor&)>& visit) : visit_(visit) {}

  void add(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.numel() == 0) return;
    if (!parts_.empty() && (parts_.size() == kTogether || elements_ + tensor.numel() > kBlock ||
                            parts_.front().scalar_type() != tensor.scalar_type()))
      flush();
    if (tensor.numel() > kBlock / 4) return each_part(tensor, visit_);
    elements_ += tensor.numel();
    parts_.push_back(tensor.reshape(-1));
  }
  void flush() {
    if (parts_.empty()) return;
    visit_(parts_.size() == 1 ? parts_.front() : at::cat(parts_));
    parts_.clear();
    elements_ = 0;
  }

 private:
  const std::function<void(const at::Tensor&)>& visit_;
  std::vector<at::Tensor> parts_;
  std::int64_t elements_ = 0;
};

}  // namespace

std::vector<Result> results_on_disk(const storage::RecordedEntry& entry) {
  if (entry.shards().empty()) return results_of(entry.value());
  std::vector<Result> results;
  const auto add = [&](const std::string& name, std::optional<std::int64_t> slot) {
    results.push_back({name, true, {}, entry.each_tensor(slot)});
  };
  if (entry.keys().empty()) add("", std::nullopt);
  for (const auto& key : entry.keys()) add(key, std::stoll(key));
  return results;
}

void each_block(const Result& result, const std::function<void(const at::Tensor&)>& visit) {
  Collector collector(visit);
  if (result.spooled.has_value()) {
    result.spooled->each_block([&](const at::Tensor& block) { collector.add(block); });
  } else {
    for (const auto& tensor : result.tensors) collector.add(tensor);
  }
  collector.flush();
}

TensorReader::TensorReader(const Result& result) : result_(result) {}

const at::Tensor* TensorReader::next() {
  if (!result_.spooled.has_value()) {
    return position_ == result_.tensors.size() ? nullptr : &result_.tensors[position_++];
  }
  if (begun_) {
    ++at_;
  } else {
    at_ = result_.spooled->begin();
    begun_ = true;
  }
  return at_ == result_.spooled->end() ? nullptr : &*at_;
}

}  // namespace torchtap::tools
