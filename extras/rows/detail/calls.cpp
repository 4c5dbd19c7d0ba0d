// Reads the lines of an index.
#include <algorithm>

#include <torchtap/base/error.hpp>
#include <torchtap/rows/detail/asked.hpp>
#include <torchtap/rows/detail/calls.hpp>

namespace torchtap::rows::detail {

Calls::Calls(const storage::RecordedEntry& entry, std::int64_t rows) {
  const auto check = [&](bool good, const char* why) {
    TORCH_CHECK_VALUE(good, "rows::Rows: the calls of \"", entry.path(), "\" in \"", entry.directory(), "\" ",
                      why);
  };
  check(
      entry.type() == kFormat,
      ("are of the format \"" + entry.type() + "\", which this torchtap does not know; update it.").c_str());
  entry.each_tensor().each_block([&](const at::Tensor& block) {
    check(block.scalar_type() == at::kLong && block.dim() == 2 && block.size(1) == kNumbers,
          "are no lines of five numbers; the file is damaged.");
    const at::Tensor lines = block.contiguous();
    const auto* const first = lines.data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < lines.size(0); ++i) {
      const std::int64_t* const line = first + i * kNumbers;
      check(line[2] == -1 || (line[2] >= 0 && line[4] >= 0),
            "have a line that is impossible; it is damaged.");
      add(line);
    }
  });
  // While it is written, and where it was cut off, one of the two may be behind.
  if (in_files_ > rows) cut(in_files_ - rows);
  whole_ = whole_ && in_files_ == rows;
  number();
}

Calls::Calls(const std::vector<std::int64_t>& of_samples) {
  for (std::size_t i = 0; i < of_samples.size(); ++i) {
    const auto sample = static_cast<std::int64_t>(i);
    const std::int64_t line[]{0, sample, sample, 0, of_samples[i]};
    add(line);
  }
  number();
}

void Calls::add(const std::int64_t* line) {
  if (line[2] == -1 && line[4] < 0) return cut(-line[4]);
  whole_ = whole_ && line[2] != -1;
  all_.push_back({line[0], line[1], line[2], line[3], line[4], in_files_, 0});
  in_files_ += line[4];
}

/// Forgets rows at the end.
void Calls::cut(std::int64_t rows) {
  for (auto call = all_.rbegin(); rows > 0 && call != all_.rend(); ++call) {
    const std::int64_t gone = std::min(rows, call->rows);
    call->rows -= gone;
    in_files_ -= gone;
    rows -= gone;
  }
}

void Calls::number() {
  all_.erase(std::remove_if(all_.begin(), all_.end(), [](const CallOfRows& call) { return call.group < 0; }),
             all_.end());
  for (std::size_t i = 0; i < all_.size(); ++i) {
    all_[i].number = size_;
    size_ += all_[i].rows;
    groups_.try_emplace({all_[i].run, all_[i].group}, i);
  }
}

const CallOfRows& Calls::of(std::int64_t number) const {
  // The last call that begins there or before: those without rows come before it.
  return *std::prev(
      std::upper_bound(all_.begin(), all_.end(), number,
                       [](std::int64_t row, const CallOfRows& call) { return row < call.number; }));
}

const CallOfRows* Calls::of_group(std::int64_t run, std::int64_t group) const {
  const auto found = groups_.find({run, group});
  return found == groups_.end() ? nullptr : &all_[found->second];
}

}  // namespace torchtap::rows::detail
