#include "recordings.hpp"

#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

#include <torchtap/base/error.hpp>

#include "files.hpp"
#include "message_text.hpp"

namespace torchtap::tools {
namespace {

namespace fs = std::filesystem;

template <class T>
std::vector<T> read_list(const fs::path& file, const char* what) {
  try {
    auto stream = open_to_read(file.string());
    return nlohmann::json::parse(stream).get<std::vector<T>>();
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK_VALUE(false, "cannot read \"", file.string(), "\": expected a JSON list of ", what, "; ",
                      error.what());
  }
}

Layers open_python_folder(const fs::path& folder) {
  Layers layers;
  const auto how = storage::LoadOptions().foreign(true);
  for (const auto& name : read_list<std::string>(folder / "names.json", "the paths of modules")) {
    const auto i = static_cast<std::int64_t>(layers.all.size());
    const auto recording = storage::load((folder / (std::to_string(i) + ".pt")).string(), how);
    layers.all.push_back({i, name, recording.at(0)});
  }
  if (fs::exists(folder / "calls.json")) {
    layers.calls = read_list<std::int64_t>(folder / "calls.json", "indices of modules");
  }
  return layers;
}

bool is_plain_list(const core::Value& value) {
  return value.is_list() && std::all_of(value.list().begin(), value.list().end(),
                                        [](const auto& item) { return item.is_tensor() || item.is_none(); });
}

void collect(const core::Value& value, const std::string& name, std::vector<Result>& results) {
  const auto tensor = [](const core::Value& item) { return item.is_none() ? at::Tensor() : item.tensor(); };
  if (value.is_tensor()) results.push_back({name, false, {value.tensor()}});
  if (is_plain_list(value) && !value.list().empty()) {
    Result result{name, true, {}};
    for (const auto& item : value.list()) result.tensors.push_back(tensor(item));
    results.push_back(std::move(result));
  } else if (value.is_list()) {
    for (std::size_t i = 0; i < value.list().size(); ++i) {
      collect(value.list()[i], name + "[" + std::to_string(i) + "]", results);
    }
  }
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict())
      collect(item, name.empty() ? key : name + "." + key, results);
  }
}

}  // namespace

Layers open_layers(const std::string& path) {
  const fs::path folder = path;
  if (fs::exists(folder / "names.json") && !fs::exists(folder / "manifest.json")) {
    return open_python_folder(folder);
  }
  const auto recording = storage::load(path, storage::LoadOptions().foreign(true));
  Layers layers{{}, recording.library(), recording.created(), {}};
  for (const auto& entry : recording) layers.all.push_back({entry.index(), entry.path(), entry});
  return layers;
}

const Layer& Layers::at(const std::string& name) const {
  for (const auto& layer : all) {
    const auto& aliases = layer.entry.aliases();
    if (layer.path == name || shown_path(layer.path) == name ||
        std::find(aliases.begin(), aliases.end(), name) != aliases.end())
      return layer;
  }
  const std::string digits = name.substr(name.rfind('#', 0) == 0 ? 1 : 0);
  if (!digits.empty() && digits.size() < 10 && digits.find_first_not_of("0123456789") == std::string::npos) {
    const auto index = static_cast<std::size_t>(std::stoul(digits));
    TORCH_CHECK_INDEX(index < all.size(), "There is no entry ", index, "; there are ", all.size(), ".");
    return all[index];
  }
  std::vector<std::string> names;
  for (const auto& layer : all) names.push_back(shown_path(layer.path));
  TORCH_CHECK_INDEX(false, "No entry is called \"", name, "\"; the nearest are ",
                    base::quoted(base::nearest(name, names)), ".");
}

std::vector<const Layer*> Layers::chosen(const std::string& name) const {
  if (!name.empty()) return {&at(name)};
  std::vector<const Layer*> layers;
  layers.reserve(all.size());
  for (const auto& layer : all) layers.push_back(&layer);
  return layers;
}

std::vector<Result> results_of(const core::Value& value) {
  std::vector<Result> results;
  collect(value, "", results);
  return results;
}

const Result& find_result(const std::vector<Result>& results, const std::string& name,
                          const std::string& path) {
  std::vector<std::string> names;
  for (const auto& result : results) {
    if (result.name == name) return result;
    names.push_back(result.name);
  }
  TORCH_CHECK_INDEX(!results.empty(), shown_path(path), " recorded no samples.");
  if (name.empty() && results.size() == 1) return results.front();
  TORCH_CHECK_INDEX(names != std::vector<std::string>{""}, shown_path(path),
                    " has one result without a name; omit --result.");
  TORCH_CHECK_INDEX(false, shown_path(path), name.empty() ? " has several results" : " has no such result",
                    "; name one of them with --result: ", base::quoted(names), ".");
}

std::string shown_path(const std::string& path, std::int64_t slot) {
  return (path.empty() ? "(root)" : printable(path)) + (slot < 0 ? "" : "[" + std::to_string(slot) + "]");
}

}  // namespace torchtap::tools
