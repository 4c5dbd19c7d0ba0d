// Takes blocks of a file in.
#include <c10/util/Exception.h>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/format.hpp>
#include <torchtap/json/json.hpp>
#include <torchtap/views/explorer/detail/column_bytes.hpp>
#include <torchtap/views/explorer/detail/file_run.hpp>

namespace torchtap::views::explorer::detail {
FileRun::FileRun(const std::string& directory, std::size_t columns, std::int64_t memory, std::int64_t number)
    : Run({}, columns, memory), reader_(directory, number) {
  refresh();
}

void FileRun::refresh() {
  const std::lock_guard lock(reading_);
  if (ended_) return;
  bool written = reader_.has_writer();
  const auto read = [this] {
    reader_.read([this](BlockKind kind, const std::string& body) { take(kind, body); });
  };
  if (reader_.replaced()) {
    reader_.reopen();
    written = reader_.has_writer();
    numbers_.clear();
    restart();
    read();
    renew();
  } else {
    read();
  }
  set_state(ended_ ? "finished" : written ? "running" : "crashed");
}

void FileRun::take(BlockKind kind, const std::string& body) {
  Bytes bytes(body);
  switch (kind) {
    case BlockKind::info:
      return take_info(body);
    case BlockKind::series:
      return take_series(body);
    case BlockKind::column: {
      const std::int32_t series = take_number(bytes);
      return add(series, get_column(bytes));
    }
    case BlockKind::update: {
      const std::int32_t series = take_number(bytes);
      const auto step = bytes.get<std::int64_t>();
      return add_update(series, step, bytes.get<double>());
    }
    case BlockKind::scalar: {
      const auto step = bytes.get<std::int64_t>();
      const auto value = bytes.get<double>();
      return add_scalar(bytes.text(), step, value);
    }
    case BlockKind::graph: {
      const auto mode = bytes.get<std::uint8_t>();
      TORCH_CHECK_VALUE(mode < modes, "views::explorer: ", reader_.path(), " has a graph of mode ", int{mode},
                        ", which this version of torchtap does not know.");
      const auto version = bytes.get<std::int64_t>();
      std::string json = bytes.rest();
      TORCH_CHECK_VALUE(json::parse_object(json).is_object(), "views::explorer: ", reader_.path(),
                        " has a graph that is no JSON object; it was damaged before it was written.");
      const std::lock_guard lock(graph_mutex_);
      GraphText& graph = graphs_[mode];
      graph.version = version;
      graph.json = std::move(json);
      graph.tag = std::to_string(base::crc32(0, graph.json.data(), graph.json.size()));
      return;
    }
    case BlockKind::step:
      return reach(bytes.get<std::int64_t>());
    case BlockKind::end:
      ended_ = true;
      return;
  }
  // A block of a newer version, which may be passed over: with any other block the format number is another.
}

/// A series that was defined before, by its number here.
std::int32_t FileRun::take_number(Bytes& bytes) const {
  const auto series = bytes.get<std::int32_t>();
  TORCH_CHECK_VALUE(series >= 0 && static_cast<std::size_t>(series) < numbers_.size(),
                    "views::explorer: ", reader_.path(), " has values of series ", series,
                    ", which it does not define.");
  return numbers_[static_cast<std::size_t>(series)];
}

void FileRun::take_series(const std::string& body) {
  Bytes bytes(body);
  const auto number = bytes.get<std::int32_t>();
  SeriesKey key;
  key.call = bytes.get<std::int32_t>();
  const auto what = bytes.get<std::uint8_t>();
  key.what = static_cast<What>(what);
  key.index = bytes.get<std::int32_t>();
  key.mode = bytes.get<std::int32_t>();
  const std::string name = bytes.text();
  TORCH_CHECK_VALUE(bytes.good() && what < whats && number == static_cast<std::int32_t>(numbers_.size()),
                    "views::explorer: ", reader_.path(), " defines series ", number,
                    " in a way that this version of torchtap does not know.");
  numbers_.push_back(series(key, name));
}

void FileRun::take_info(const std::string& body) {
  const json::Json document = json::parse_object(body);
  const std::string where = "views::explorer: cannot read \"" + reader_.path() + "\": ";
  TORCH_CHECK_VALUE(document.is_object(), where, "its first block is no JSON object; it is damaged.");
  const json::Reader info(document);
  const std::string unreadable =
      base::unreadable_format(info.get("format", std::int64_t{-1}), run_file_format);
  TORCH_CHECK_VALUE(unreadable.empty(), where, unreadable, ".");
  TORCH_CHECK_VALUE(info.get("mantissa_bits", std::int64_t{-1}) == watch::mantissa_bits, where,
                    "its bins are of another size; it is damaged.");
  const std::lock_guard lock(mutex_);
  info_.name = info.get<std::string>("name", "");
  info_.program = info.get<std::string>("program", "");
  info_.started = info.get("started", info_.started);
  info_.identity = info.get<std::string>("identity", "");
  // A file from before there were identities.
  if (info_.identity.empty())
    info_.identity = "t" + std::to_string(static_cast<std::int64_t>(info_.started * 1e6));
}

bool FileRun::has(Mode mode) {
  const std::lock_guard lock(graph_mutex_);
  return !graphs_[static_cast<std::size_t>(mode)].json.empty();
}

std::int64_t FileRun::graph_version() {
  const std::lock_guard lock(graph_mutex_);
  return graphs_[0].version + graphs_[1].version;
}

Run::GraphText FileRun::graph(Mode mode) {
  const std::lock_guard lock(graph_mutex_);
  return graphs_[static_cast<std::size_t>(mode)];
}

std::map<std::int32_t, Run::CallName> FileRun::call_names() {
  std::map<std::int32_t, CallName> names;
  for (const Mode mode : {Mode::train, Mode::eval}) {
    const GraphText text = graph(mode);
    if (text.json.empty()) continue;
    const json::Json document = json::parse_object(text.json);
    const auto number = [](const json::Reader& of, const char* name) {
      return of.get(name, std::int64_t{-1});
    };
    for (const json::Reader& call : json::Reader(document).list("calls")) {
      CallName& name = names[static_cast<std::int32_t>(number(call, "id"))];
      name = {call.get<std::string>("path", ""),
              call.get<std::string>("type", ""),
              number(call, "call"),
              static_cast<std::int32_t>(number(call, "parent")),
              {}};
      for (const json::Reader& parameter : call.list("parameters"))
        name.dimensions.push_back(static_cast<std::int64_t>(parameter.list("shape").size()));
    }
  }
  return names;
}

std::vector<watch::Column> FileRun::zoom(std::int32_t series, std::int64_t from, std::int64_t to) {
  const std::lock_guard lock(reading_);
  std::vector<watch::Column> found;
  reader_.scan(BlockKind::column, [&](BlockKind, const std::string& body) {
    Bytes bytes(body);
    const auto number = static_cast<std::size_t>(bytes.get<std::int32_t>());
    if (number >= numbers_.size() || numbers_[number] != series) return;
    const auto step = bytes.get<std::int64_t>();
    if (step < from || step > to) return;
    Bytes again(std::string_view(body).substr(sizeof(std::int32_t)));
    watch::Column column = get_column(again);
    if (!found.empty() && found.back().last_step == column.first_step) {
      found.back().merge(column);
    } else {
      found.push_back(std::move(column));
    }
  });
  return found;
}

}  // namespace torchtap::views::explorer::detail
