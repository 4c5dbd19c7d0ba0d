// Columns as the page gets them, and two runs compared.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include <torchtap/views/explorer/detail/column_bytes.hpp>
#include <torchtap/views/explorer/detail/page_answers.hpp>

namespace torchtap::views::explorer::detail {
namespace {

constexpr std::uint32_t magic = 0x434C5054, version = 1, replaces_all = 0x80000000U;

void put_head(std::string& to, std::int32_t id, std::uint64_t sequence, std::uint32_t columns) {
  put_number(to, static_cast<std::uint32_t>(id));
  put_number(to, sequence);
  put_number(to, columns);
}

/// Neighbours merged, so that there are at most this many.
std::vector<watch::Column> fewer(std::vector<watch::Column> columns, std::size_t most) {
  if (most == 0 || columns.size() <= most) return columns;
  const std::size_t each = (columns.size() + most - 1) / most;
  std::vector<watch::Column> result;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (i % each == 0) {
      result.push_back(std::move(columns[i]));
    } else {
      result.back().merge(columns[i]);
    }
  }
  return result;
}

/// Values in ascending order with their share of all finite ones.
std::map<double, double> shares(const watch::Column& column) {
  std::map<double, double> result;
  const auto all = static_cast<double>(column.finite());
  if (column.zeros != 0) result[0.0] = static_cast<double>(column.zeros) / all;
  for (const auto& [bin, count] : watch::unpack(column.bins, column.n_bins))
    result[watch::middle_of(bin)] += static_cast<double>(count) / all;
  return result;
}

struct Distance {
  double wasserstein, kl;
};

/// The 1-Wasserstein distance in units of the mean of both standard deviations, and the Kullback-Leibler
/// divergence of `b` from `a`, smoothed by half a count a bin.
Distance distance(const watch::Column& a, const watch::Column& b) {
  if (a.finite() == 0 || b.finite() == 0) {
    const double different = a.finite() == b.finite() ? 0.0 : std::numeric_limits<double>::infinity();
    return {different, different};
  }
  const auto in_a = shares(a), in_b = shares(b);
  std::map<double, std::pair<double, double>> both;
  for (const auto& [value, share] : in_a) both[value].first = share;
  for (const auto& [value, share] : in_b) both[value].second = share;
  const double bins = static_cast<double>(both.size());
  const double count_a = static_cast<double>(a.finite()), count_b = static_cast<double>(b.finite());
  double area = 0, ahead = 0, before = 0, kl = 0;
  bool first = true;
  for (const auto& [value, share] : both) {
    if (!first) area += std::abs(ahead) * (value - before);
    first = false;
    ahead += share.first - share.second;
    before = value;
    const double p = (share.first * count_a + 0.5) / (count_a + 0.5 * bins);
    const double q = (share.second * count_b + 0.5) / (count_b + 0.5 * bins);
    kl += p * std::log(p / q);
  }
  const double scale = (a.deviation() + b.deviation()) / 2;
  return {area == 0   ? 0.0
          : scale > 0 ? area / scale
                      : std::numeric_limits<double>::infinity(),
          std::max(kl, 0.0)};
}

/// The name of a series in any run.
using Name = std::tuple<std::string, std::int64_t, What, std::int32_t, std::string, std::int32_t>;

struct Of {
  std::int32_t number;
  std::vector<watch::Column> columns;
};

std::map<Name, Of> by_name(Run& run) {
  const auto names = run.call_names();
  std::map<Name, Of> result;
  std::int32_t number = 0;
  run.each_series([&](const Series& series) {
    const SeriesKey& key = series.key();
    const auto call = names.find(key.call);
    if (call != names.end()) {
      result[{call->second.path, call->second.call, key.what, key.index, series.name(), key.mode}] = {
          number, {series.columns().begin(), series.columns().end()}};
    }
    ++number;
  });
  return result;
}

/// The column of a step, or the last one before it.
const watch::Column* at_step(const std::vector<watch::Column>& columns, std::int64_t step) {
  const watch::Column* found = nullptr;
  for (const watch::Column& column : columns) {
    if (column.first_step <= step) found = &column;
  }
  return found;
}

bool same(const watch::Column& a, const watch::Column& b) {
  return a.count == b.count && a.nan == b.nan && a.posinf == b.posinf && a.neginf == b.neginf &&
         a.zeros == b.zeros && a.bins == b.bins;
}

/// The first step of the first pair of columns that cover the same steps and differ; -1 if no pair does.
std::int64_t first_difference(const std::vector<watch::Column>& a, const std::vector<watch::Column>& b) {
  for (std::size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    if (a[i].first_step < b[k].first_step) {
      ++i;
    } else if (b[k].first_step < a[i].first_step) {
      ++k;
    } else {
      if (a[i].last_step == b[k].last_step && !same(a[i], b[k])) return a[i].first_step;
      ++i;
      ++k;
    }
  }
  return -1;
}

}  // namespace

std::string columns_bytes(Run& run, const ColumnsAsked& asked) {
  std::string bytes;
  put_number(bytes, magic);
  put_number(bytes, version);
  put_number(bytes, static_cast<std::uint32_t>(watch::mantissa_bits));
  const std::uint64_t sequence =
      run.sequence();  // what comes meanwhile may be sent twice, and never not at all
  std::string body;
  std::uint32_t sent = 0;
  if (asked.zoom) {
    for (const std::int32_t id : asked.ids) {
      const auto columns = fewer(run.zoom(id, asked.from, asked.to), asked.columns);
      put_head(body, id, sequence, static_cast<std::uint32_t>(columns.size()) | replaces_all);
      for (const watch::Column& column : columns) put_column(body, column);
      ++sent;
    }
  } else {
    std::int32_t id = -1;
    run.each_series([&](const Series& series) {
      ++id;
      if (!asked.ids.empty() && std::find(asked.ids.begin(), asked.ids.end(), id) == asked.ids.end()) return;
      const bool whole = series.whole_since() > asked.since || asked.since == 0;
      std::vector<watch::Column> columns;
      for (const auto& column : series.columns()) {
        if (whole || column.changed > asked.since) columns.push_back(column);
      }
      if (whole) columns = fewer(std::move(columns), asked.columns);
      if (columns.empty() && !whole) return;
      put_head(body, id, sequence, static_cast<std::uint32_t>(columns.size()) | (whole ? replaces_all : 0U));
      for (const watch::Column& column : columns) put_column(body, column);
      ++sent;
    });
  }
  put_number(bytes, sent);
  return bytes + body;
}

json::Json compare_json(Run& a, Run& b, std::int64_t step) {
  struct Pair {
    std::int32_t a, b;
    Name name;
    std::int32_t call;
    Distance distance;
    std::int64_t first;
  };
  std::vector<Pair> pairs;
  const auto in_a = by_name(a), in_b = by_name(b);
  std::vector<SeriesKey> keys;
  a.each_series([&](const Series& series) { keys.push_back(series.key()); });
  for (const auto& [name, one] : in_a) {
    const auto other = in_b.find(name);
    if (other == in_b.end()) continue;
    const watch::Column* const column = at_step(one.columns, step);
    const watch::Column* const its = at_step(other->second.columns, step);
    if (column == nullptr || its == nullptr) continue;
    pairs.push_back({one.number, other->second.number, name, keys[static_cast<std::size_t>(one.number)].call,
                     distance(*column, *its), first_difference(one.columns, other->second.columns)});
  }
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& x, const Pair& y) {
    return x.distance.wasserstein > y.distance.wasserstein;
  });
  json::Json list = json::Json::array();
  for (const Pair& pair : pairs) {
    list.push_back({{"a", pair.a},
                    {"b", pair.b},
                    {"call", pair.call},
                    {"what", name_of(std::get<2>(pair.name))},
                    {"index", std::get<3>(pair.name)},
                    {"wasserstein", pair.distance.wasserstein},
                    {"kl", pair.distance.kl},
                    {"first_step", pair.first < 0 ? std::nullopt : std::optional(pair.first)}});
  }
  return list;
}

}  // namespace torchtap::views::explorer::detail
