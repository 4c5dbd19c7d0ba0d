#include <ATen/Functions.h>
#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>

#include <torchtap/base/little_endian.hpp>
#include <torchtap/base/staging.hpp>
#include <torchtap/base/write_file.hpp>
#include <torchtap/rows/rows.hpp>
#include <torchtap/views/text/units.hpp>

#include "commands.hpp"
#include "files/checkpoint_texts.hpp"
#include "files/dtypes.hpp"
#include "files/json.hpp"
#include "files/npy.hpp"
#include "files/tensorboard.hpp"
#include "options/option_checks.hpp"
#include "recordings/dump.hpp"
#include "recordings/recordings.hpp"
#include "recordings/statistics.hpp"
#include "terminal/message_text.hpp"
#include "terminal/progress.hpp"

namespace torchtap::tools {
namespace {

namespace fs = std::filesystem;
using base::write_file;

constexpr char kEventFile[] = "events.out.tfevents.";
constexpr char kValues[] = "values";  // the CSV file of all kept samples of one element

constexpr char kConvertExamples[] = R"(
Writes the tensors of a recording for programs that do not read .pt files, or its statistics for TensorBoard. A tensor is named by the path of its
module, a result of a reduction "path/result"; the root module is "root". A tensor of a state_dict keeps its name. Kept samples are stacked into one tensor if
their shapes agree, otherwise numbered, "path/0", "path/1".

  npy           a folder with one file per tensor, "layer1.0.conv1/variance.npy". bfloat16, which NumPy lacks, is
                written as float32 without loss, with a note on stderr.
  safetensors   one file, with the manifest in its metadata. Complex tensors, which the format lacks, are an error.
  csv           a folder with one file per tensor: one line per row, values separated by commas. With three or more
                dimensions, one line per value, preceded by its indices, under a header "dim0,dim1,dim2,value". Kept
                samples of one element each are together in values.csv, a line per sample under "step,path,value".
  tensorboard   a folder for TensorBoard with what reductions gave: histograms (of log_histogram and histogram:N, summed
                over their elements) under "path/histogram", and each single number under "path/result", at step 0;
                of blocks each block is a step, and of kept samples of one element, "path/value", each sample. With
                several kinds of tensors "path/kind/result".

  parquet       is written in Python, by pyarrow: rows.parquet(FILE), of what torchtap.load gives of a module.

Of a dump (record --rows) each module is one tensor [rows, ...], and what is beside them "beside/NAME", with run, forward,
call and place of each row; "beside/PATH/NAME" if the modules have different rows.

In folders, index.json gives the module, result and sample of each file. Characters that a file name cannot hold, and
control characters, are replaced by "_", and names of more than 200 bytes are cut. Texts beside the tensors, such as the name of
an architecture in a checkpoint, are written to index.json, or to the metadata of safetensors.

Examples:
  torchtap convert maps/ --to npy --save maps-npy/
  torchtap convert maps/ --to safetensors --save maps.safetensors
  torchtap convert maps/ --to csv --entry fc --save fc/
  torchtap convert stats/ --to tensorboard --save runs/stats; tensorboard --logdir runs
  torchtap convert dump/ --to npy --save rows/          # rows/layer2.npy, rows/beside/label.npy
  torchtap convert maps/ --to npy --save maps-npy/ --json | jq -r '.files[].file'

Exit status: 0, or 2 if something cannot be read, written or converted. The output appears whole or not
at all.)";

struct ConvertOptions {
  std::string path;
  std::string format;
  std::string entry;
  std::string save;
  bool overwrite = false;
  bool json = false;
};

/// A tensor to write, under a unique name that is safe as a path in a folder.
struct Item {
  const Layer* layer;
  std::string result;
  std::int64_t sample;  // -1: all of them, or the only one
  std::string name;
  at::Tensor tensor;
  bool numbers;  // of a result that is one number for each kept sample
};

/// A name from a file as part of a path: it leads nowhere else, prints as one line, and is short enough for a
/// file system.
std::string safe(std::string part) {
  constexpr std::size_t kLongest = 200;  // bytes; file systems take 255, and a number and a suffix may follow
  for (char& c : part) {
    if (c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '_';
  }
  if (!part.empty() && part[0] == '.') part[0] = '_';
  if (part.size() <= kLongest) return part;
  std::size_t end = kLongest;
  while ((static_cast<unsigned char>(part[end]) & 0xc0) == 0x80) --end;  // within a letter of UTF-8
  return part.substr(0, end) + "~";
}

class Names {
 public:
  /// `reserved` names no tensor.
  explicit Names(const char* reserved) : taken_{reserved} {}
  std::string unique(const std::string& name) {
    std::string result = name;
    for (int i = 2; !taken_.insert(result).second; ++i) result = name + "~" + std::to_string(i);
    return result;
  }

 private:
  std::set<std::string> taken_;
};

/// Calls `visit` with one tensor after another; only one module is in memory at a time.
template <class Visit>
void each_tensor(const Layers& layers, const ConvertOptions& options, const Visit& visit) {
  Names names(options.format == "csv" ? kValues : "__metadata__");  // the latter of safetensors
  for (const Layer* chosen : layers.chosen(options.entry)) {
    const Layer& layer = *chosen;
    if (!layers.beside.empty()) {
      const rows::Rows all(layer.entry);
      visit(Item{&layer, "", -1, names.unique(layer.path.empty() ? "root" : safe(layer.path)),
                 all.slice(0, all.size()), false});
      continue;
    }
    for (const auto& result : results_of(layer.entry.value())) {
      std::string name = layer.path.empty() ? "root" : safe(layer.path);
      if (!result.name.empty()) name = (layers.is_file() ? "" : name + "/") + safe(result.name);
      std::vector<at::Tensor> tensors;
      for (const auto& tensor : result.tensors) {
        if (tensor.defined()) tensors.push_back(tensor);
      }
      const bool numbers = result.list && !tensors.empty() &&
                           std::all_of(tensors.begin(), tensors.end(),
                                       [](const at::Tensor& tensor) { return tensor.numel() == 1; });
      const bool alike = std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
        return tensor.sizes() == tensors.front().sizes() &&
               tensor.scalar_type() == tensors.front().scalar_type();
      });
      if (alike && tensors.size() == result.tensors.size() && !tensors.empty()) {
        visit(Item{&layer, result.name, -1, names.unique(name),
                   result.list ? at::stack(tensors) : tensors.front(), numbers});
        continue;
      }
      for (std::size_t i = 0; i < result.tensors.size(); ++i) {
        if (!result.tensors[i].defined()) continue;
        visit(Item{&layer, result.name, static_cast<std::int64_t>(i),
                   names.unique(name + "/" + std::to_string(i)), result.tensors[i], numbers});
      }
    }
  }
}

/// The same with what is beside the rows of a dump, under "beside/NAME"; under "beside/PATH/NAME" if modules
/// have different rows.
template <class Visit>
void each_with_beside(const Layers& layers, const ConvertOptions& options, const Visit& visit) {
  each_tensor(layers, options, visit);
  const auto chosen = layers.chosen(options.entry);
  if (layers.beside.empty() || chosen.empty()) return;
  Names names("");
  each_beside(chosen, [&](const Layer* layer, const std::string& name, const at::Tensor& column) {
    const std::string of = layer == nullptr ? "" : (layer->path.empty() ? "root" : safe(layer->path)) + "/";
    visit(Item{layer == nullptr ? chosen.front() : layer, "beside " + name, -1,
               names.unique("beside/" + of + safe(name)), column, false});
  });
}

/// Formats a value as text that reads back as the same; complex numbers as in Python, "1+2j".
class Printer {
 public:
  explicit Printer(const at::Tensor& tensor) : dtype_(tensor.scalar_type()) {
    if (tensor.is_complex()) {
      values_ = at::view_as_real(tensor.resolve_conj().to(at::kComplexDouble)).contiguous();
    } else {
      const bool whole = at::isIntegralType(dtype_, /*includeBool=*/true);
      values_ = tensor.to(whole ? at::kLong : at::kDouble).contiguous();
    }
  }
  std::string operator()(std::int64_t i) const {
    char text[96];
    if (values_.scalar_type() == at::kLong) return std::to_string(values_.data_ptr<std::int64_t>()[i]);
    const double* data = values_.data_ptr<double>();
    if (at::isComplexType(dtype_)) {
      std::snprintf(text, sizeof text, "%.17g%+.17gj", data[2 * i], data[2 * i + 1]);
    } else {
      std::snprintf(text, sizeof text, dtype_ == at::kDouble ? "%.17g" : "%.9g", data[i]);
    }
    return text;
  }

 private:
  at::ScalarType dtype_;
  at::Tensor values_;
};

void write_csv(std::ostream& stream, const at::Tensor& tensor) {
  const Printer text(tensor);
  if (tensor.dim() <= 2) {
    const std::int64_t columns = tensor.dim() == 2 ? tensor.size(1) : 1;
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      stream << text(i) << ((i + 1) % columns == 0 ? '\n' : ',');
    }
  } else {
    for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) stream << "dim" << dim << ',';
    stream << "value\n";
    std::vector<std::int64_t> at(static_cast<std::size_t>(tensor.dim()));
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      for (const auto index : at) stream << index << ',';
      stream << text(i) << '\n';
      for (auto dim = at.size(); dim > 0 && ++at[dim - 1] == tensor.sizes()[dim - 1]; --dim) at[dim - 1] = 0;
    }
  }
}

/// Adds a line for each number: the number of its sample, its module, itself.
void add_numbers(const Item& item, bool with_kind, std::string& lines) {
  std::string path = item.layer->path.empty() ? "(root)" : item.layer->path;
  if (with_kind) path += "/" + item.layer->entry.kind();
  if (!item.result.empty()) path += is_slot(item.result) ? "[" + item.result + "]" : "/" + item.result;
  path = views::text::csv_text(path);
  const Printer text(item.tensor);
  for (std::int64_t i = 0; i < item.tensor.numel(); ++i)
    lines += std::to_string(std::max<std::int64_t>(item.sample, i)) + "," + path + "," + text(i) + "\n";
}

/// Whether everything in a folder is a file for TensorBoard.
bool has_event_files_alone(const fs::path& folder) {
  const fs::directory_iterator files(folder);
  return std::all_of(begin(files), end(files), [](const fs::directory_entry& file) {
    return file.path().filename().string().rfind(kEventFile, 0) == 0;
  });
}

/// Refuses to replace files without `--overwrite`, and folders that this command did not write.
void check_output(const ConvertOptions& options) {
  check_free(options.save, options.overwrite);
  const bool folder = fs::is_directory(options.save) && !fs::is_empty(options.save);
  TORCH_CHECK_VALUE(
      !folder || (options.format == "tensorboard" && has_event_files_alone(options.save)) ||
          (options.format != "safetensors" && fs::exists(fs::path(options.save) / "index.json")),
      "\"", options.save,
      "\" is a folder that this command did not write, so it is not replaced. Choose another name.");
}

/// Fills a folder beside its place, and puts it there.
void write_folder(const ConvertOptions& options, const std::function<void(const fs::path&)>& fill) {
  const auto all_of_them = [](const std::string&) { return true; };
  const base::Target target = base::resolve("convert", options.save, /*mkdir=*/true);
  base::sweep(target, all_of_them);
  base::Staging staging("convert", target, all_of_them);
  fill(staging.path());
  ::syncfs(staging.fd());  // thousands of files at once
  staging.put(options.overwrite, /*sync=*/true);
}

/// Whether there are tensors of several kinds, such as inputs and outputs.
bool has_kinds(const Layers& layers) {
  return std::any_of(layers.all.begin(), layers.all.end(), [&](const Layer& layer) {
    return layer.entry.kind() != layers.all.front().entry.kind();
  });
}

/// Returns the tags.
Json convert_to_tensorboard(const Layers& layers, const ConvertOptions& options) {
  const bool with_kinds = has_kinds(layers);
  Json tags = Json::array();
  write_folder(options, [&](const fs::path& folder) {
    views::tensorboard::EventFile file(folder.string());
    Names names("");
    for (const Layer* layer : layers.chosen(options.entry)) {
      std::string name = layer->path.empty() ? "root" : layer->path;
      if (with_kinds) name += "/" + layer->entry.kind();
      for (Json& one : write_to_tensorboard(file, names.unique(name), layer->entry)) {
        one["path"] = layer->path;
        tags.push_back(std::move(one));
      }
    }
    file.flush();
    TORCH_CHECK_VALUE(!tags.empty(), "\"", options.path,
                      "\" has no histogram and no single number for TensorBoard. Record them with --reduce "
                      "log_histogram,moments, or blocks; of kept samples those of one element are numbers.");
  });
  return tags;
}

/// Returns the contents of index.json.
Json convert_to_folder(const Layers& layers, const ConvertOptions& options) {
  Json index = Json::array();
  std::set<std::string> widened;
  const bool with_kinds = has_kinds(layers);
  std::string numbers;
  write_folder(options, [&](const fs::path& folder) {
    Progress progress("writing");
    each_with_beside(layers, options, [&](const Item& item) {
      const bool is_line = item.numbers && options.format == "csv";
      const std::string file = (is_line ? std::string(kValues) : item.name) + "." + options.format;
      const fs::path path = folder / file;
      fs::create_directories(path.parent_path());
      if (is_line) {
        add_numbers(item, with_kinds, numbers);
      } else if (options.format == "npy") {
        if (item.tensor.scalar_type() == at::kBFloat16) widened.insert(item.layer->path);
        write_npy(path.string(), item.tensor);
      } else {
        write_file(
            "convert", path.string(), [&](std::ostream& stream) { write_csv(stream, item.tensor); },
            /*sync=*/false);
      }
      index.push_back({{"file", file},
                       {"path", item.layer->path},
                       {"result", item.result},
                       {"sample", item.sample < 0 ? Json(nullptr) : Json(item.sample)},
                       {"dtype", dtype_text(item.tensor.scalar_type())},
                       {"shape", item.tensor.sizes().vec()}});
      progress.advance();
    });
    if (!numbers.empty()) {
      write_file(
          "convert", (folder / kValues).string() + ".csv",
          [&](std::ostream& stream) { stream << "step,path,value\n"
                                             << numbers; },
          /*sync=*/false);
    }
    for (const auto& layer : layers.all) {
      for (const auto& [name, text] : texts_of(layer.entry.value())) {
        index.push_back({{"file", nullptr}, {"path", layer.path}, {"result", name}, {"text", text}});
      }
    }
    write_file(
        "convert", (folder / "index.json").string(),
        [&](std::ostream& stream) { stream << json::lines(index); },
        /*sync=*/false);
  });
  if (!widened.empty()) {
    std::cerr << "torchtap: NumPy has no bfloat16; written as float32: " << widened.size()
              << (widened.size() == 1 ? " module, " : " modules, the first is ")
              << shown_path(*widened.begin()) << ".\n";
  }
  return index;
}

/// https://github.com/huggingface/safetensors#format: a length, a JSON header, the bytes. Returns the header.
Json convert_to_safetensors(const Layers& layers, const ConvertOptions& options) {
  Json entries = Json::array();
  for (const auto& layer : layers.all) {
    entries.push_back({{"path", layer.path},
                       {"type", layer.entry.type()},
                       {"kind", layer.entry.kind()},
                       {"samples", layer.entry.samples()},
                       {"reduction", layer.entry.reduction()}});
  }
  Json header;
  header["__metadata__"] = {{"format", "pt"},
                            {"torchtap", layers.library},
                            {"created", layers.created},
                            {"entries", json::text(entries)}};
  for (const auto& layer : layers.all) {
    for (const auto& [name, text] : texts_of(layer.entry.value())) {
      if (!header["__metadata__"].contains(name)) header["__metadata__"][name] = text;
    }
  }
  // Reads the recording twice: the header comes first, and the tensors may not fit in memory together.
  std::int64_t offset = 0;
  each_with_beside(layers, options, [&](const Item& item) {
    const base::Dtype* dtype = base::dtype_by_type(item.tensor.scalar_type());
    TORCH_CHECK_VALUE(dtype != nullptr && dtype->safetensors[0] != '\0', "\"", item.name, "\" is of dtype ",
                      dtype_text(item.tensor.scalar_type()),
                      ", which safetensors does not support. Use --to npy.");
    const auto bytes = static_cast<std::int64_t>(item.tensor.nbytes());
    json::add(header, item.name,
              {{"dtype", dtype->safetensors},
               {"shape", item.tensor.sizes().vec()},
               {"data_offsets", {offset, offset + bytes}}});
    offset += bytes;
  });
  std::string text = json::text(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  if (fs::path(options.save).has_parent_path()) fs::create_directories(fs::path(options.save).parent_path());
  write_file("convert", options.save, [&](std::ostream& stream) {
    std::string length;
    base::put_number(length, static_cast<std::uint64_t>(text.size()));
    stream << length << text;
    Progress progress("writing", static_cast<std::int64_t>(header.size()) - 1);
    each_with_beside(layers, options, [&](const Item& item) {
      const at::Tensor plain = item.tensor.contiguous();
      stream.write(static_cast<const char*>(plain.data_ptr()), static_cast<std::streamsize>(plain.nbytes()));
      progress.advance();
    });
  });
  return header;
}

}  // namespace

void add_convert(CLI::App& app) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* command =
      app.add_subcommand("convert", "Write a recording as npy, safetensors or csv, or for TensorBoard");
  command->footer(kConvertExamples);
  command->add_option("recording", options->path, "A recording, a .pt file, or a folder from Python")
      ->required()
      ->check(CLI::ExistingPath);
  command->add_option("--to", options->format, "Output format")
      ->required()
      ->check(CLI::IsMember({"npy", "safetensors", "csv", "tensorboard", "parquet"}));
  command->add_option("--entry", options->entry, "One module only, by its path or index");
  command->add_option("-o,--save", options->save, "Output folder, or output file for safetensors")
      ->required()
      ->check(place());
  add_overwrite(*command, options->overwrite);
  command->add_flag("--json", options->json, "Report the files written as JSON");
  command->callback([options] {
    TORCH_CHECK_VALUE(options->format != "parquet",
                      "--to parquet: Python's pyarrow writes parquet: torchtap.load(\"", options->path,
                      "\")[\"PATH\"].rows.parquet(\"PATH.parquet\").");
    check_output(*options);
    const Layers layers = open_layers(options->path);
    const bool one_file = options->format == "safetensors";
    const bool for_tensorboard = options->format == "tensorboard";
    Json written = one_file          ? convert_to_safetensors(layers, *options)
                   : for_tensorboard ? convert_to_tensorboard(layers, *options)
                                     : convert_to_folder(layers, *options);
    const auto modules = static_cast<std::int64_t>(layers.chosen(options->entry).size());
    if (!options->json) {
      const auto number = [&](const auto& is_one) {
        return static_cast<std::int64_t>(std::count_if(written.begin(), written.end(), is_one));
      };
      const auto of_kind = [&](const std::string& kind) {
        return counted(number([&](const Json& tag) { return tag.at("kind") == kind; }), kind);
      };
      std::cout << (one_file
                        ? counted(static_cast<std::int64_t>(written.size()) - 1, "tensor")  // the metadata
                    : for_tensorboard
                        ? of_kind("histogram") + " and " + of_kind("scalar")
                        : counted(number([](const Json& item) { return !item.at("file").is_null(); }),
                                  "tensor"))
                << " of " << counted(modules, "module") << " in " << printable(options->save) << '\n';
      return;
    }
    print({{"saved", options->save},
           {"format", options->format},
           {"modules", modules},
           {one_file          ? "header"
            : for_tensorboard ? "tags"
                              : "files",
            std::move(written)}});
  });
}

}  // namespace torchtap::tools
