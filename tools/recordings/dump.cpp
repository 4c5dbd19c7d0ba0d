#include "dump.hpp"

#include <ATen/Functions.h>
#include <ATen/core/Formatting.h>
#include <c10/util/Exception.h>

#include <array>
#include <iostream>
#include <utility>

#include <torchtap/rows/rows.hpp>

#include "files/dtypes.hpp"
#include "files/json.hpp"
#include "terminal/message_text.hpp"
#include "terminal/terminal.hpp"

namespace torchtap::tools {
namespace {

using rows::Rows;

constexpr std::array<const char*, 4> kWhere{"run", "forward", "call", "place"};

/// Where the rows are from, int64 [4, n].
at::Tensor where_of(const Rows& rows, std::int64_t begin, std::int64_t end) {
  const at::Tensor where = at::empty({4, end - begin}, at::kLong);
  auto* const to = where.data_ptr<std::int64_t>();
  const std::int64_t n = end - begin;
  for (std::int64_t i = 0; i < n; ++i) {
    const rows::Where one = rows.where(begin + i);
    to[i] = one.run;
    to[n + i] = one.forward;
    to[2 * n + i] = one.call;
    to[3 * n + i] = one.place;
  }
  return where;
}

/// A value beside a row as JSON; a text as such.
Json value_of(const at::Tensor& value) {
  return rows::is_texts(value) ? Json(rows::strings(value).front()) : to_json(value);
}

/// The values of a name for some rows; undefined where one has none.
at::Tensor beside_of(const Rows& rows, const std::string& name, std::int64_t begin, std::int64_t end) {
  try {
    return rows.beside(name, at::arange(begin, end, at::TensorOptions(at::kLong)));
  } catch (const c10::ValueError&) {
    return {};
  }
}

}  // namespace

RowRange row_range(const std::string& text, std::int64_t size) {
  const auto colon = text.find(':');
  const auto number = [&](const std::string& part, std::int64_t if_none) -> std::int64_t {
    if (part.empty()) return if_none;
    const bool good =
        part.size() < 19 &&
        part.find_first_not_of("0123456789", part[0] == '-' && part.size() > 1 ? 1 : 0) == std::string::npos;
    TORCH_CHECK_VALUE(good, "--rows ", text, ": expected BEGIN:END, such as 0:5, or one number.");
    return std::stoll(part);
  };
  RowRange range;
  range.begin = number(text.substr(0, colon), colon == std::string::npos ? -1 : 0);
  TORCH_CHECK_VALUE(!text.empty(), "--rows: expected BEGIN:END, such as 0:5, or one number.");
  if (range.begin < 0) range.begin += size;
  range.end = colon == std::string::npos ? range.begin + 1 : number(text.substr(colon + 1), size);
  if (range.end < 0) range.end += size;
  TORCH_CHECK_INDEX(range.begin >= 0 && range.begin <= range.end && range.end <= size, "--rows ", text,
                    ": there are ", size, " rows.");
  return range;
}

void print_rows(const Layer& layer, const std::string& range, bool beside, bool as_json) {
  const Rows rows(layer.entry);
  const auto [begin, end] = row_range(range, rows.size());
  const at::Tensor values = rows.slice(begin, end), where = where_of(rows, begin, end);
  std::vector<std::pair<std::string, at::Tensor>> columns;
  for (const auto& name : beside ? rows.names() : std::vector<std::string>())
    columns.emplace_back(name, beside_of(rows, name, begin, end));
  Json list = Json::array();
  for (std::int64_t i = 0; i < end - begin; ++i) {
    Json one{{"row", begin + i}};
    for (std::size_t k = beside ? 0 : kWhere.size(); k < kWhere.size(); ++k)
      one[kWhere[k]] = where[static_cast<std::int64_t>(k)][i].item<std::int64_t>();
    for (const auto& [name, column] : columns) {
      if (beside) one["beside"][name] = column.defined() ? value_of(column[i]) : Json(nullptr);
    }
    if (as_json) {
      one["value"] = to_json(values[i]);
      list.push_back(std::move(one));
      continue;
    }
    std::cout << shown_path(layer.path) << " row " << begin + i;
    for (const char* const name : kWhere) {
      if (one.contains(name) && std::string(name) != "run")
        std::cout << ' ' << name << ' ' << one[name].dump();
    }
    for (const auto& [name, column] : columns)
      std::cout << ' ' << printable(name) << '=' << one["beside"][name].dump();
    std::cout << ' ' << dtype_text(values.scalar_type()) << ' ' << shape_to_text(values[i].sizes().vec())
              << '\n'
              << values[i] << '\n';
  }
  if (as_json)
    print(Json{{"path", layer.path},
               {"rows", rows.size()},
               {"dtype", dtype_text(values.scalar_type())},
               {"values", std::move(list)}});
}

void print_beside(const Layers& layers) {
  std::string names;
  for (const auto& entry : layers.beside) {
    if (entry.kind() != "Beside") continue;
    names += (names.empty() ? "" : ", ") + printable(entry.path()) + " (" + entry.dtype() + " " +
             shape_to_text(entry.shape()) + ")";
  }
  if (!layers.beside.empty())
    std::cout << "samples are rows; beside them: " << (names.empty() ? "" : names + ", ")
              << "forward, call, place; see --rows\n";
}

void each_beside(
    const std::vector<const Layer*>& layers,
    const std::function<void(const Layer* layer, const std::string& name, const at::Tensor&)>& visit) {
  std::vector<at::Tensor> all;
  bool alike = true;
  for (const Layer* layer : layers) {
    const Rows rows(layer->entry);
    all.push_back(where_of(rows, 0, rows.size()));
    alike = alike && all.back().equal(all.front());
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Rows rows(layers[i]->entry);
    const Layer* const layer = alike ? nullptr : layers[i];
    for (std::size_t k = 0; k < kWhere.size(); ++k)
      visit(layer, kWhere[k], all[i][static_cast<std::int64_t>(k)]);
    for (const auto& name : rows.names()) {
      const at::Tensor column = beside_of(rows, name, 0, rows.size());
      if (column.defined()) {
        visit(layer, name, column);
      } else {
        std::cerr << "torchtap: left out \"" << printable(name) << "\" beside " << shown_path(layers[i]->path)
                  << ": some rows have no value.\n";
      }
    }
    if (alike) return;
  }
}

}  // namespace torchtap::tools
