// Finds rows, their calls and what is beside them in the files of a dump.
#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/rows/detail/calls.hpp>
#include <torchtap/rows/detail/table.hpp>
#include <torchtap/rows/rows.hpp>

namespace torchtap::rows {

using detail::CallOfRows;
using detail::Calls;
using detail::Table;

namespace {

at::Tensor empty_of(std::int64_t rows, const Table& table) {
  std::vector<std::int64_t> sizes{rows};
  sizes.insert(sizes.end(), table.sizes().begin(), table.sizes().end());
  return at::empty(sizes, at::TensorOptions(table.dtype()));
}

const storage::RecordedEntry* find(const storage::Recording& recording, const std::string& path,
                                   const std::string& kind) {
  for (const auto& entry : recording) {
    if (entry.path() == path && entry.kind() == kind) return &entry;
  }
  return nullptr;
}

}  // namespace

struct Rows::Impl {
  /// The values beside rows under one name.
  struct Column {
    std::string path;
    Table values;
    Calls calls;

    /// The place of the values of a call's rows, and of how many of them there are.
    std::pair<std::int64_t, std::int64_t> of(const CallOfRows& call) const {
      const CallOfRows* const found = calls.of_group(call.run, call.group);
      return found == nullptr ? std::make_pair(std::int64_t{0}, std::int64_t{0})
                              : std::make_pair(found->first, std::min(found->rows, call.rows));
    }
  };

  std::string path;
  Table rows;
  Calls calls;
  std::map<std::string, Column> beside;
  Column place;  // without calls if there is no mask

  std::int64_t checked(const char* call, std::int64_t index) const {
    const std::int64_t from_begin = index < 0 ? index + calls.size() : index;
    TORCH_CHECK_INDEX(from_begin >= 0 && from_begin < calls.size(), "rows::Rows::", call, ": \"", path,
                      "\" has ", calls.size(), " rows; there is no row ", index, ".");
    return from_begin;
  }
  /// The row as it lies in the files.
  std::int64_t in_files(std::int64_t row) const {
    if (calls.whole()) return row;
    const CallOfRows& call = calls.of(row);
    return call.first + (row - call.number);
  }
  void copy(std::int64_t begin, std::int64_t end, char* to) const;
  template <class Copy>
  void each(const char* call, const at::Tensor& indices, const Copy& copy) const;
  const Column& column(const std::string& name) const;
  [[noreturn]] void no_value(const std::string& name, const Column& column) const;
};

Rows::Rows() : impl_(std::make_shared<const Impl>()) {}

Rows::Rows(const storage::RecordedEntry& entry) {
  TORCH_CHECK_VALUE(!storage::is_beside(entry.kind()), "rows::Rows: \"", entry.path(), "\" of the kind ",
                    entry.kind(), " is beside rows; ask for the rows of a module, and then beside(\"",
                    entry.path(), "\").");
  TORCH_CHECK_VALUE(entry.reduction().empty(), "rows::Rows: \"", entry.path(), "\" holds ", entry.reduction(),
                    " and no samples, so there are no rows.");
  const base::RecordingMode quiet;
  auto impl = std::make_shared<Impl>();
  impl->path = entry.path();
  if (entry.directory().empty() || entry.shards().empty()) {  // it was not spooled
    impl->rows = Table(entry, /*first_dimension=*/true);
    impl->calls = Calls(impl->rows.of_samples());
    impl_ = std::move(impl);
    return;
  }
  const storage::Recording recording = storage::load(entry.directory(), storage::LoadOptions().mmap(true));
  const storage::RecordedEntry* const rows = find(recording, entry.path(), entry.kind());
  TORCH_CHECK_VALUE(rows != nullptr, "rows::Rows: \"", entry.directory(),
                    "\" has been replaced, and has no \"", entry.path(), "\" any more.");
  const storage::RecordedEntry* const calls = find(recording, entry.path(), entry.kind() + ".calls");
  impl->rows = Table(*rows, calls == nullptr);
  impl->calls = calls == nullptr ? Calls(impl->rows.of_samples()) : Calls(*calls, impl->rows.size());
  for (const auto& one : recording) {
    if (calls == nullptr || (one.kind() != "Beside" && one.kind() != "Place")) continue;
    const auto* const index = find(recording, one.path(), one.kind() + ".calls");
    if (index == nullptr) continue;
    Impl::Column column{one.path(), Table(one, false), {}};
    column.calls = Calls(*index, column.values.size());
    (one.kind() == "Place" ? impl->place : impl->beside[one.path()]) = std::move(column);
  }
  impl_ = std::move(impl);
}

std::int64_t Rows::size() const noexcept {
  return impl_->calls.size();
}
at::ScalarType Rows::dtype() const noexcept {
  return impl_->rows.dtype();
}
std::vector<std::int64_t> Rows::shape() const {
  return impl_->rows.sizes().vec();
}

at::Tensor Rows::row(std::int64_t index) const {
  const std::int64_t row = impl_->in_files(impl_->checked("row", index));
  return impl_->rows.view(row, row + 1).select(0, 0);
}

void Rows::Impl::copy(std::int64_t begin, std::int64_t end, char* to) const {
  if (calls.whole()) return rows.copy(begin, end, to);
  while (begin < end) {
    const CallOfRows& call = calls.of(begin);
    const std::int64_t until = std::min(end, call.number + call.rows), first = call.first - call.number;
    rows.copy(begin + first, until + first, to);
    to += static_cast<std::size_t>(until - begin) * rows.bytes();
    begin = until;
  }
}

at::Tensor Rows::slice(std::int64_t begin, std::int64_t end) const {
  const std::int64_t all = size(), from = begin < 0 ? begin + all : begin, to = end < 0 ? end + all : end;
  TORCH_CHECK_INDEX(from >= 0 && from <= to && to <= all, "rows::Rows::slice: \"", impl_->path, "\" has ",
                    all, " rows; there are none from ", begin, " to ", end, ".");
  if (impl_->calls.whole()) {
    if (at::Tensor view = impl_->rows.view(from, to); view.defined()) return view;
  }
  at::Tensor out = empty_of(to - from, impl_->rows);
  impl_->copy(from, to, static_cast<char*>(out.data_ptr()));
  return out;
}

/// Calls `copy(i, row)` for each of `indices`.
template <class Copy>
void Rows::Impl::each(const char* call, const at::Tensor& indices, const Copy& copy) const {
  TORCH_CHECK_VALUE(indices.defined() && indices.scalar_type() == at::kLong && indices.dim() == 1,
                    "rows::Rows::", call, ": expected numbers of rows, int64 [n], got ",
                    indices.defined() ? c10::str(indices.scalar_type(), " ", indices.sizes()) : "nothing",
                    ".");
  const at::Tensor here = indices.to(at::kCPU).contiguous();
  const auto* const numbers = here.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < here.size(0); ++i) copy(i, checked(call, numbers[i]));
}

at::Tensor& Rows::gather(const at::Tensor& indices, at::Tensor& out) const {
  const Table& rows = impl_->rows;
  std::vector<std::int64_t> sizes{indices.defined() && indices.dim() == 1 ? indices.size(0) : 0};
  sizes.insert(sizes.end(), rows.sizes().begin(), rows.sizes().end());
  TORCH_CHECK_VALUE(
      out.defined() && out.device().is_cpu() && out.scalar_type() == rows.dtype() &&
          out.sizes() == at::IntArrayRef(sizes) && out.is_contiguous(),
      "rows::Rows::gather: expected a contiguous tensor on the CPU of dtype ", rows.dtype(),
      " and the shape ", at::IntArrayRef(sizes), ", got ",
      out.defined() ? c10::str(out.scalar_type(), " ", out.sizes(), " on ", out.device()) : "nothing", ".");
  auto* const to = static_cast<char*>(out.data_ptr());
  const std::size_t bytes = rows.bytes();
  // First all places, so that the processor can fetch several rows at a time.
  std::vector<const char*> places(static_cast<std::size_t>(sizes[0]));
  impl_->each("gather", indices, [&](std::int64_t i, std::int64_t row) {
    places[static_cast<std::size_t>(i)] = rows.at(impl_->in_files(row));
  });
  constexpr std::size_t kAhead = 8;
  for (std::size_t i = 0; bytes != 0 && i < places.size(); ++i) {
    if (i + kAhead < places.size()) __builtin_prefetch(places[i + kAhead]);
    std::memcpy(to + i * bytes, places[i], bytes);
  }
  return out;
}

at::Tensor Rows::gather(const at::Tensor& indices) const {
  const base::RecordingMode quiet;
  at::Tensor out = empty_of(indices.defined() && indices.dim() == 1 ? indices.size(0) : 0, impl_->rows);
  return gather(indices, out);
}

std::vector<std::string> Rows::names() const {
  std::vector<std::string> names;
  for (const auto& column : impl_->beside) names.push_back(column.first);
  return names;
}

const Rows::Impl::Column& Rows::Impl::column(const std::string& name) const {
  const auto found = beside.find(name);
  std::vector<std::string> names;
  for (const auto& one : beside) names.push_back(one.first);
  TORCH_CHECK_INDEX(found != beside.end(), "rows::Rows::beside: nothing called \"", name,
                    "\" is beside the rows of \"", path, "\"; there is ",
                    names.empty() ? "nothing" : base::quoted(names), ".");
  return found->second;
}

void Rows::Impl::no_value(const std::string& name, const Column& column) const {
  std::int64_t lacking = 0;
  for (const CallOfRows& call : calls.all()) lacking += call.rows - column.of(call).second;
  TORCH_CHECK_VALUE(false, "rows::Rows::beside: ", lacking, " of ", calls.size(), " rows of \"", path,
                    "\" have no \"", name, "\"; having(\"", name, "\") has the numbers of those that do.");
}

at::Tensor Rows::beside(const std::string& name) const {
  const base::RecordingMode quiet;
  const Impl::Column& column = impl_->column(name);
  at::Tensor out = empty_of(size(), column.values);
  auto* const to = static_cast<char*>(out.data_ptr());
  for (const CallOfRows& call : impl_->calls.all()) {
    const auto [first, rows] = column.of(call);
    if (rows < call.rows) impl_->no_value(name, column);
    column.values.copy(first, first + rows,
                       to + static_cast<std::size_t>(call.number) * column.values.bytes());
  }
  return out;
}

at::Tensor Rows::beside(const std::string& name, const at::Tensor& indices) const {
  const base::RecordingMode quiet;
  const Impl::Column& column = impl_->column(name);
  at::Tensor out = empty_of(indices.defined() && indices.dim() == 1 ? indices.size(0) : 0, column.values);
  auto* const to = static_cast<char*>(out.data_ptr());
  const std::size_t bytes = column.values.bytes();
  impl_->each("beside", indices, [&](std::int64_t i, std::int64_t row) {
    const CallOfRows& call = impl_->calls.of(row);
    const auto [first, rows] = column.of(call);
    const std::int64_t place = row - call.number;
    if (place >= rows) impl_->no_value(name, column);
    if (bytes != 0)
      std::memcpy(to + static_cast<std::size_t>(i) * bytes, column.values.at(first + place), bytes);
  });
  return out;
}

at::Tensor Rows::having(const std::string& name) const {
  const base::RecordingMode quiet;
  const Impl::Column& column = impl_->column(name);
  std::vector<at::Tensor> parts{at::empty({0}, at::kLong)};
  for (const CallOfRows& call : impl_->calls.all()) {
    if (const std::int64_t rows = column.of(call).second; rows > 0)
      parts.push_back(at::arange(call.number, call.number + rows, at::TensorOptions(at::kLong)));
  }
  return at::cat(parts);
}

Where Rows::where(std::int64_t index) const {
  const std::int64_t row = impl_->checked("where", index);
  const CallOfRows& call = impl_->calls.of(row);
  Where where{call.run, call.forward, call.call, row - call.number};
  const Impl::Column& place = impl_->place;
  if (place.path.empty()) return where;  // without a mask
  if (const auto [first, rows] = place.of(call); where.place < rows) {
    std::memcpy(&where.place, place.values.at(first + where.place), sizeof where.place);
  } else {
    where.place = -1;
  }
  return where;
}

bool is_dump(const storage::Recording& recording) {
  return std::any_of(recording.begin(), recording.end(),
                     [](const auto& entry) { return storage::is_calls(entry.kind()); });
}

}  // namespace torchtap::rows
