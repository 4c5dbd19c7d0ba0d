#include "recordings.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <regex>

#include <torchtap/base/error.hpp>

#include "files/npy.hpp"
#include "files/safetensors.hpp"
#include "terminal/message_text.hpp"

namespace torchtap::tools {
namespace {

namespace fs = std::filesystem;

void add(Layers& layers, const std::string& path, const storage::RecordedEntry& entry) {
  layers.all.push_back({static_cast<std::int64_t>(layers.all.size()), path, entry});
}

storage::RecordedEntry entry_of(const std::string& path, core::Value value) {
  storage::Entry entry;
  entry.path = path;
  entry.samples = value.is_list() ? static_cast<std::int64_t>(value.list().size()) : 1;
  entry.value = std::move(value);
  return storage::in_memory({entry}).at(0);
}

storage::RecordedEntry read_file(const fs::path& file) {
  TORCH_CHECK_VALUE(file.extension() != ".json" || file.stem().extension() != ".index", "cannot read \"",
                    file.string(), "\": it says which tensors are in which file; give the folder around it.");
  if (is_safetensors(file)) return entry_of(file.stem(), read_safetensors(file));
  if (is_npy(file)) return entry_of(file.stem(), NpyReader(file).read(/*map=*/true));
  return storage::load(file, storage::LoadOptions().foreign(true)).at(0);
}

/// The files of a folder by name; none if it has no file of tensors.
Layers open_folder(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(folder)) {
    const std::string suffix = file.path().extension();
    if (suffix == ".pt" || suffix == ".npy" || suffix == ".safetensors") files.push_back(file.path());
  }
  std::sort(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) {
    return ::strverscmp(a.stem().c_str(), b.stem().c_str()) < 0;  // 9 before 10
  });
  static const std::regex part("(.*)-[0-9]+-of-[0-9]+");
  Layers layers;
  for (const fs::path& file : files) {
    storage::RecordedEntry entry = read_file(file);
    std::string name = file.stem();
    std::smatch match;
    if (is_safetensors(file) && std::regex_match(name, match, part)) {
      name = std::string(match[1]);
      core::Value::Dict tensors;
      if (!layers.all.empty() && layers.all.back().path == name) {
        tensors = layers.all.back().entry.value().dict();
        layers.all.pop_back();
      }
      for (auto& item : entry.value().dict()) tensors.push_back(std::move(item));
      entry = entry_of(name, std::move(tensors));
    }
    add(layers, name == "root" ? "" : name, entry);  // as `torchtap convert` calls the root's
  }
  return layers;
}

bool is_plain_list(const core::Value& value) {
  return value.is_list() && std::all_of(value.list().begin(), value.list().end(),
                                        [](const auto& item) { return item.is_tensor() || item.is_none(); });
}

std::string behind(const std::string& name, const std::string& key) {
  return name.empty() ? key : name + "." + key;
}
std::string behind(const std::string& name, std::size_t place) {
  return name + "[" + std::to_string(place) + "]";
}

/// Whether it is what storage calls an object that it does not know: `LoadOptions::foreign`.
bool is_foreign(const std::string& text) {
  return text.size() > 2 && text.front() == '<' && text.back() == '>';
}

void collect(const core::Value& value, const std::string& name, std::vector<OtherValue>& others) {
  if (value.is_tensor()) return;
  if (is_plain_list(value) && !value.list().empty()) return;
  if (value.is_list() && !value.list().empty()) {
    for (std::size_t i = 0; i < value.list().size(); ++i) collect(value.list()[i], behind(name, i), others);
  } else if (value.is_dict() && !value.dict().empty()) {
    for (const auto& [key, item] : value.dict()) {
      const std::string inner = behind(name, key);
      if (is_foreign(key)) others.push_back({inner, core::Value(key), true});
      collect(item, inner, others);
    }
  } else {
    others.push_back({name, value, value.is_text() && is_foreign(value.text())});
  }
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
      collect(value.list()[i], behind(name, i), results);
    }
  }
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict()) collect(item, behind(name, key), results);
  }
}

}  // namespace

Layers open_layers(const std::string& path) {
  const fs::path place = path;
  Layers layers;
  if (fs::is_regular_file(place)) {
    const auto entry = read_file(place);
    add(layers, entry.path(), entry);
    return layers;
  }
  if (fs::is_directory(place) && !fs::exists(place / "manifest.json") &&
      !fs::exists(place / "journal.jsonl")) {
    layers = open_folder(place);
  }
  if (!layers.all.empty()) return layers;
  const auto recording = storage::load(path, storage::LoadOptions().foreign(true));
  layers = {{}, {}, recording.library(), recording.created(), true};
  for (const auto& entry : recording) {
    if (storage::is_beside(entry.kind())) {
      layers.beside.push_back(entry);
    } else {
      add(layers, entry.path(), entry);
    }
  }
  return layers;
}

Layers by_name(Layers layers, bool with_others) {
  if (!layers.is_file() || layers.all.front().entry.keys().empty()) return layers;
  Layers named;
  named.named = true;
  for (const Result& result : results_of(layers.all.front().entry.value())) {
    core::Value tensors = result.list ? core::Value(result.tensors) : result.tensors.front();
    add(named, result.name, entry_of(result.name, std::move(tensors)));
  }
  for (const OtherValue& other :
       with_others ? others_of(layers.all.front().entry.value()) : std::vector<OtherValue>())
    add(named, other.name, entry_of(other.name, other.value));
  return named.all.empty() ? layers : named;
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

std::vector<OtherValue> others_of(const core::Value& value) {
  std::vector<OtherValue> others;
  collect(value, "", others);
  return others;
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
