// Merges columns of a file.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>

#include <torchtap/base/error.hpp>
#include <torchtap/base/staging.hpp>
#include <torchtap/views/explorer/detail/column_bytes.hpp>
#include <torchtap/views/explorer/detail/run_file.hpp>
#include <torchtap/views/explorer/detail/run_file_thin.hpp>

namespace torchtap::views::explorer::detail {
namespace {

/// Steps whose numbers agree except for these last bits are merged: 0 merges none, 62 all.
constexpr int widths = 63;

std::int64_t group_of(std::int64_t step, int width) {
  return step >> width;
}

/// How many bytes would be left, by width.
class Estimate {
 public:
  void add(std::optional<std::int64_t>& before, std::int64_t step, std::size_t size) {
    for (int width = 0; width < widths; ++width) {
      if (before && group_of(*before, width) == group_of(step, width)) break;  // nor differ wider ones
      bytes_[static_cast<std::size_t>(width)] += size;
    }
    before = step;
  }
  /// The least that leaves at most this many.
  int width(std::int64_t bytes) const {
    int width = 0;
    while (width + 1 < widths && bytes_[static_cast<std::size_t>(width)] > static_cast<std::uint64_t>(bytes))
      ++width;
    return width;
  }

 private:
  std::array<std::uint64_t, widths> bytes_{};
};

struct Widths {
  int columns, scalars;
};

Widths plan(const std::string& path, std::int64_t bytes) {
  constexpr std::size_t head = 9;
  Estimate columns, scalars;
  std::map<std::int32_t, std::optional<std::int64_t>> of_series;
  std::map<std::string, std::optional<std::int64_t>> of_scalar;
  RunFileReader(path, RunFileReader::OfFile{}).read([&](BlockKind kind, const std::string& body) {
    Bytes from(body);
    if (kind == BlockKind::column) {
      const auto series = from.get<std::int32_t>();
      columns.add(of_series[series], from.get<std::int64_t>(), head + body.size());
    } else if (kind == BlockKind::scalar) {
      const auto step = from.get<std::int64_t>();
      (void)from.get<double>();
      scalars.add(of_scalar[from.text()], step, head + body.size());
    }
  });
  // Merged columns have more bins than any one of them.
  return {columns.width(bytes * 3 / 8), scalars.width(bytes / 16)};
}

/// Writes the blocks that it is given, thinned.
class Thinned {
 public:
  Thinned(int file, const std::string& path, Widths widths) : file_(file), path_(path), widths_(widths) {
    waiting_ = run_file_head();
  }

  void take(BlockKind kind, const std::string& body) {
    switch (kind) {
      case BlockKind::column:
        return take_column(body);
      case BlockKind::scalar:
        return take_scalar(body);
      case BlockKind::update:
        return take_update(body);
      case BlockKind::graph:
        graphs_[body.empty() ? '\0' : body.front()] = body;
        return;
      case BlockKind::step:
        if (last_step_.empty()) put_block(BlockKind::step, body);
        last_step_ = body;
        return;
      case BlockKind::info:
      case BlockKind::series:
      case BlockKind::end:
        return put_block(kind, body);
    }
    put_block(kind, body);
  }

  /// The rest, after all steps were given. Returns the size of the file.
  std::uint64_t finish() {
    for (const auto& [series, one] : series_) put_column(series, one.column);
    for (const auto& [name, one] : scalars_) {
      if (!one.written) put_block(BlockKind::scalar, one.body);
    }
    for (const auto& [series, one] : updates_) {
      std::map<std::int64_t, std::string> left = one.last;
      for (const auto& [rule, bodies] : one.since) left.insert(bodies.begin(), bodies.end());
      for (const auto& [step, body] : left) put_block(BlockKind::update, body);
    }
    for (const auto& [mode, body] : graphs_) put_block(BlockKind::graph, body);
    if (!last_step_.empty()) put_block(BlockKind::step, last_step_);
    write_out();
    TORCH_CHECK(::fsync(file_) == 0 || errno == EINVAL, "views::explorer: writing ", path_,
                " failed: ", std::strerror(errno), ".");
    return size_;
  }

 private:
  struct Open {
    watch::Column column;
    bool any = false, nan = false, inf = false;
  };
  struct Point {
    std::string body;
    std::int64_t step = 0;
    bool written = false;
  };
  /// The last steps, and the steps at which a finding that still holds first appeared.
  struct Update {
    UpdateHistory all;
    std::map<std::int64_t, std::string> last;  // by step
    std::map<std::string, std::map<std::int64_t, std::string>> since;
  };

  void take_column(const std::string& body) {
    Bytes from(body);
    const auto series = from.get<std::int32_t>();
    watch::Column column = get_column(from);
    Open& open = series_[series];
    const bool inf = column.posinf + column.neginf != 0;
    const bool first_of_its_kind = (column.nan != 0 && !open.nan) || (inf && !open.inf);
    open.nan = open.nan || column.nan != 0;
    open.inf = open.inf || inf;
    if (open.any && !first_of_its_kind &&
        group_of(open.column.first_step, widths_.columns) == group_of(column.first_step, widths_.columns)) {
      open.column.merge(column);
      return;
    }
    if (open.any) put_column(series, open.column);
    open.any = true;
    open.column = std::move(column);
  }

  void put_column(std::int32_t series, const watch::Column& column) {
    std::string body;
    put_number(body, series);
    detail::put_column(body, column);
    put_block(BlockKind::column, body);
  }

  void take_scalar(const std::string& body) {
    Bytes from(body);
    const auto step = from.get<std::int64_t>();
    (void)from.get<double>();
    Point& last = scalars_[from.text()];
    const bool is_new =
        last.body.empty() || group_of(last.step, widths_.scalars) != group_of(step, widths_.scalars);
    last = {body, step, is_new};
    if (is_new) put_block(BlockKind::scalar, body);
  }

  void take_update(const std::string& body) {
    Bytes from(body);
    Update& update = updates_[from.get<std::int32_t>()];
    const auto step = from.get<std::int64_t>();
    update.all.add(step, from.get<double>());
    update.last[step] = body;
    if (update.last.size() > UpdateHistory::most) update.last.erase(update.last.begin());
    for (auto known = update.since.begin(); known != update.since.end();)
      known = update.all.since().count(known->first) > 0 ? std::next(known) : update.since.erase(known);
    for (const auto& [rule, since] : update.all.since()) update.since.emplace(rule, update.last);
  }

  void put_block(BlockKind kind, const std::string& body) {
    detail::put_block(waiting_, kind, body);
    if (waiting_.size() >= std::size_t{1} << 20) write_out();
  }

  void write_out() {
    write_all(file_, waiting_, path_);
    size_ += waiting_.size();
    waiting_.clear();
  }

  int file_;
  std::string path_;
  Widths widths_;
  std::string waiting_;
  std::uint64_t size_ = 0;
  std::map<std::int32_t, Open> series_;
  std::map<std::string, Point> scalars_;
  std::map<std::int32_t, Update> updates_;
  std::map<char, std::string> graphs_;
  std::string last_step_;
};

}  // namespace

int thin(const std::string& path, std::int64_t bytes, std::uint64_t& size) {
  const Widths widths = plan(path, bytes);
  const base::Target target = base::resolve("explorer", path, /*mkdir=*/false);
  base::sweep(target);
  base::Staging staging("explorer", target);
  base::Descriptor file = staging.duplicate();  // locked, as the staged file is
  TORCH_CHECK(::fcntl(file.get(), F_SETFL, O_APPEND) == 0, "views::explorer: cannot write ", staging.path(),
              ": ", std::strerror(errno), ".");
  Thinned thinned(file.get(), staging.path(), widths);
  RunFileReader(path, RunFileReader::OfFile{}).read([&](BlockKind kind, const std::string& body) {
    thinned.take(kind, body);
  });
  size = thinned.finish();
  staging.put(/*overwrite=*/true, /*sync=*/false);
  return file.release();
}

}  // namespace torchtap::views::explorer::detail
