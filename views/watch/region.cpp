// Overlaps of strided memory, found without looking at single bytes.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include <torchtap/views/watch/region.hpp>

namespace torchtap::views::watch {
namespace {

constexpr std::size_t most = 4096;  // steps for an answer, and pieces that are told apart

std::int64_t floor_of(std::int64_t number, std::int64_t by) {
  return number >= 0 ? number / by : -((by - 1 - number) / by);
}

}  // namespace

/// A region, or one of its equal parts: `run` bytes, repeated by each of `steps`.
struct Region::Part {
  std::int64_t begin;
  std::int64_t run;
  const Step* steps;
  std::size_t count;

  bool is_run() const { return count == 0; }
  std::int64_t stride() const { return steps[0].stride; }
  std::int64_t size() const { return steps[0].size; }
  Part inner(std::int64_t index) const { return {begin + index * stride(), run, steps + 1, count - 1}; }
  std::int64_t end() const {
    std::int64_t last = begin + run;
    for (std::size_t i = 0; i < count; ++i) last += (steps[i].size - 1) * steps[i].stride;
    return last;
  }
  /// The first of the parts inside whose end is after `at`.
  std::int64_t first_after(std::int64_t at) const {
    return std::max<std::int64_t>(0, floor_of(at - inner(0).end(), stride()) + 1);
  }
};

/// Answers the questions in a limited number of steps.
class Region::Steps {
 public:
  bool overlap(Part a, Part b) {
    if (a.begin >= b.end() || b.begin >= a.end()) return false;
    if (a.is_run() && b.is_run()) return true;
    if (left_ == 0) return true;
    --left_;
    if (a.is_run() || (!b.is_run() && b.stride() > a.stride())) std::swap(a, b);  // `a` has the wider step
    if (!b.is_run() && a.stride() == b.stride()) {
      // Only how far two parts are apart matters.
      const Part first = a.inner(0);
      const std::int64_t to = std::min(b.size() - 1, floor_of(first.end() - 1 - b.begin, b.stride()));
      for (std::int64_t i = std::max(1 - a.size(), floor_of(first.begin - b.inner(0).end(), b.stride()) + 1);
           i <= to; ++i) {
        if (overlap(first, b.inner(i))) return true;
      }
      return false;
    }
    for (std::int64_t i = a.first_after(b.begin); i < a.size() && a.inner(i).begin < b.end(); ++i) {
      if (overlap(a.inner(i), b)) return true;
    }
    return false;
  }

  bool cover(const Part& a, const Part& b) {
    if (b.begin < a.begin || b.end() > a.end()) return false;
    if (a.is_run()) return true;
    if (left_ == 0) return false;
    --left_;
    const std::int64_t first = std::min((b.begin - a.begin) / a.stride(), a.size() - 1);
    if (b.is_run() || b.stride() < a.stride()) return cover(a.inner(first), b);
    if (b.stride() == a.stride()) return first + b.size() <= a.size() && cover(a.inner(first), b.inner(0));
    for (std::int64_t i = 0; i < b.size(); ++i) {
      if (!cover(a, b.inner(i))) return false;
    }
    return true;
  }

  /// Calls `visit(begin, end)` for the runs of a part between two bytes, in order, until it returns false.
  template <class Visit>
  static bool visit_runs(const Part& part, std::int64_t begin, std::int64_t end, Visit&& visit) {
    if (part.is_run()) return visit(part.begin, part.begin + part.run);
    for (std::int64_t i = part.first_after(begin); i < part.size() && part.inner(i).begin < end; ++i) {
      if (!visit_runs(part.inner(i), begin, end, visit)) return false;
    }
    return true;
  }

 private:
  std::size_t left_ = most;
};

Region::Region(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  memory_ = tensor.storage().unsafeGetStorageImpl();
  if (tensor.is_nested()) {  // whose sizes throw
    run_ = end_ = static_cast<std::int64_t>(tensor.storage().nbytes());
    return;
  }
  const auto item = static_cast<std::int64_t>(tensor.element_size());
  begin_ = end_ = tensor.storage_offset() * item;
  if (tensor.numel() == 0) return;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) > 1 && tensor.stride(i) != 0) {
      steps_.push_back({tensor.stride(i) * item, tensor.size(i)});
    }
  }
  std::sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) { return a.stride > b.stride; });
  run_ = item;
  std::int64_t extent = item;
  std::size_t kept = steps_.size();  // the steps from here on are inside
  for (std::size_t i = steps_.size(); i-- > 0;) {
    const Step step = steps_[i];
    loose_ = loose_ || (step.stride < extent && extent > run_);
    extent += (step.size - 1) * step.stride;
    if (kept == steps_.size() && step.stride <= run_) {
      run_ = extent;
    } else if (kept < steps_.size() && step.stride == steps_[kept].stride * steps_[kept].size) {
      steps_[kept].size *= step.size;
    } else {
      steps_[--kept] = step;
    }
  }
  end_ = begin_ + extent;
  if (loose_) {
    run_ = extent;
    kept = steps_.size();
  }
  steps_.erase(steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(kept));
}

Region::Part Region::part() const {
  return {begin_, run_, steps_.data(), steps_.size()};
}

bool Region::overlaps(const Region& other) const {
  if (memory_ != other.memory_ || empty() || other.empty()) return false;
  return Steps().overlap(part(), other.part());
}

bool Region::covers(const Region& other) const {
  if (other.empty()) return true;
  if (memory_ != other.memory_ || empty() || loose_) return false;
  return Steps().cover(part(), other.part());
}

bool Remainder::take(const Region& taken) {
  if (empty_ || !taken.overlaps(region_)) return false;
  if (taken.covers(region_)) {
    runs_.clear();
    empty_ = true;
    return true;
  }
  if (taken.loose_) return true;
  if (runs_.empty()) {
    const bool all = Region::Steps::visit_runs(region_.part(), region_.begin_, region_.end_,
                                               [&](std::int64_t begin, std::int64_t end) {
                                                 runs_.push_back({begin, end});
                                                 return runs_.size() <= most;
                                               });
    if (!all) {
      runs_.clear();
      return true;
    }
  }
  std::vector<Run> left;
  bool any = false;
  for (const Run& run : runs_) {
    std::int64_t at = run.begin;
    Region::Steps::visit_runs(taken.part(), run.begin, run.end, [&](std::int64_t begin, std::int64_t end) {
      if (end <= run.begin || begin >= run.end) return true;
      any = true;
      if (begin > at) left.push_back({at, begin});
      at = std::min(end, run.end);
      return left.size() <= most;
    });
    if (at < run.end) left.push_back({at, run.end});
    if (left.size() > most) return true;
  }
  runs_ = std::move(left);
  empty_ = runs_.empty();
  return any;
}

}  // namespace torchtap::views::watch
