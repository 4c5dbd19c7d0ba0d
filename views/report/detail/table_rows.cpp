#include <algorithm>

#include <torchtap/views/report/detail/table_rows.hpp>

namespace torchtap::views::report::detail {
namespace {

std::int64_t size_of(const ModuleRow& row) {
  std::int64_t size = 0;
  each_module(row, [&](const ModuleRow&) { ++size; });
  return size;
}

struct Glyphs {
  const char *branch, *last, *pass, *blank;
};
constexpr Glyphs kLines{"├─ ", "└─ ", "│  ", "   "};
constexpr Glyphs kAscii{"|- ", "`- ", "|  ", "   "};

void add(const ModuleRow& row, const std::string& before, const char* own, const std::string& below,
         std::int64_t depth, const Glyphs& glyphs, std::vector<Line>& lines) {
  Line& line = lines.emplace_back();
  line.module = &row;
  line.lines = before + own;
  if (depth == 0) {
    line.left_out = size_of(row) - 1;
    return;
  }
  for (const ModuleRow& child : row.children) {
    const bool last = &child == &row.children.back();
    add(child, below, last ? glyphs.last : glyphs.branch, below + (last ? glyphs.blank : glyphs.pass),
        depth - 1, glyphs, lines);
  }
}

void count(const ModuleRow& row, std::size_t depth, std::vector<std::int64_t>& at) {
  if (at.size() <= depth) at.resize(depth + 1);
  ++at[depth];
  for (const ModuleRow& child : row.children) count(child, depth + 1, at);
}

}  // namespace

std::vector<Line> lines_of(const ModuleRow& root, std::int64_t depth, bool ascii) {
  std::vector<Line> lines;
  add(root, "", "", "", depth, ascii ? kAscii : kLines, lines);
  return lines;
}

std::int64_t depth_for(const ModuleRow& root, std::int64_t most) {
  std::vector<std::int64_t> at;
  count(root, 0, at);
  std::int64_t sum = 0;
  for (std::size_t depth = 0; depth < at.size(); ++depth) {
    sum += at[depth];
    if (sum > most) return std::max<std::int64_t>(static_cast<std::int64_t>(depth) - 1, 1);
  }
  return kWholeTree;
}

double seconds_of(const ModuleRow& row) {
  if (has_times(row, row.forward.inclusive)) {
    return row.forward.inclusive.median + row.backward.inclusive.median;
  }
  double sum = row.forward.self.median + row.backward.self.median;
  for (const ModuleRow& child : row.children) sum += seconds_of(child);
  return sum;
}

std::int64_t peak_of(const ModuleRow& row) {
  return std::max(row.forward.memory.peak, row.backward.memory.peak);
}

}  // namespace torchtap::views::report::detail
