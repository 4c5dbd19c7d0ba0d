#include "inputs.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>

#include <limits>
#include <regex>
#include <sstream>

#include <torchtap/core/value.hpp>
#include <torchtap/storage/file.hpp>

#include "files/dtypes.hpp"
#include "files/files.hpp"
#include "files/idx.hpp"
#include "files/npy.hpp"
#include "files/safetensors.hpp"
#include "options/option_checks.hpp"

namespace torchtap::tools {
namespace {

using Source = Inputs::Source;

constexpr std::int64_t kIdxBatch = 64;

std::int64_t divided(std::int64_t rows, std::int64_t batch) {
  return rows / batch + (rows % batch != 0);
}

Batch to_batch(const core::Value& value) {
  return value.is_list() ? value.list() : Batch{value};
}

/// The number of rows that all tensors of a batch share.
std::int64_t rows_of(const std::string& path, const Batch& batch) {
  std::int64_t rows = -1;
  for (const auto& input : batch) {
    if (input.is_none()) continue;
    TORCH_CHECK_VALUE(input.is_tensor(), "\"", path, "\" cannot be split by --batch: it holds ",
                      input.describe(), " where a tensor is expected.");
    const at::Tensor& tensor = input.tensor();
    TORCH_CHECK_VALUE(tensor.dim() > 0 && (rows == -1 || rows == tensor.size(0)), "\"", path,
                      "\" cannot be split by --batch: its tensors must have the same size in their first "
                      "dimension, but one has the shape ",
                      tensor.sizes(), ".");
    rows = tensor.size(0);
  }
  TORCH_CHECK_VALUE(rows >= 0, "\"", path, "\" holds no tensor for --batch to split.");
  return rows;
}

class PtSource final : public Source {
 public:
  PtSource(std::string path, const InputOptions& options)
      : path_(std::move(path)), batches_(options.batches), batch_(options.batch) {
    // Their number is known only after reading the file. The file is not kept in memory: there may be many.
    if (!batches_ && batch_ == 0) return;
    open();
    count_ = batches_ ? static_cast<std::int64_t>(items_.size())
                      : divided(rows_of(path_, to_batch(items_.front())), batch_);
    close();
  }

  std::int64_t count() const override { return count_; }
  Batch next() override {
    if (items_.empty()) open();
    const std::int64_t i = next_++;
    if (batches_) return to_batch(items_[static_cast<std::size_t>(i)]);
    Batch batch = to_batch(items_.front());
    if (batch_ == 0) return batch;
    const std::int64_t rows = rows_of(path_, batch);
    TORCH_CHECK_VALUE(i * batch_ < rows, "\"", path_, "\" changed while it was in use.");
    for (auto& input : batch) {
      if (input.is_tensor())
        input = input.tensor().narrow(0, i * batch_, std::min(batch_, rows - i * batch_));
    }
    return batch;
  }
  void close() override { items_.clear(); }

 private:
  void open() {
    core::Value value = is_safetensors(path_) ? read_safetensors(path_) : storage::load_value(path_);
    if (!batches_) {
      items_ = {value};
      return;
    }
    TORCH_CHECK_VALUE(value.is_list(), "\"", path_, "\" holds ", value.describe(),
                      "; with --batches, a file must hold a list of batches.");
    items_ = value.list();
    TORCH_CHECK_VALUE(count_ <= static_cast<std::int64_t>(items_.size()) || next_ == 0, "\"", path_,
                      "\" changed while it was in use.");
  }

  std::string path_;
  bool batches_;
  std::int64_t batch_;
  std::int64_t count_ = 1;
  std::int64_t next_ = 0;
  core::Value::List items_;
};

class NpySource final : public Source {
 public:
  NpySource(std::string path, const InputOptions& options) : path_(std::move(path)), batch_(options.batch) {
    const NpyReader reader(path_);
    if (batch_ == 0) return;
    TORCH_CHECK_VALUE(!reader.shape().empty(), "\"", path_, "\" holds a number, which --batch cannot split.");
    count_ = divided(reader.shape()[0], batch_);
  }

  std::int64_t count() const override { return count_; }
  Batch next() override {
    if (!reader_.has_value()) reader_.emplace(path_);
    if (batch_ == 0) return {reader_->read()};
    const std::int64_t first = batch_ * next_++;
    return {reader_->rows(first, std::min(batch_, reader_->shape()[0] - first))};
  }
  void close() override { reader_.reset(); }

 private:
  std::string path_;
  std::int64_t batch_;
  std::int64_t count_ = 1;
  std::int64_t next_ = 0;
  std::optional<NpyReader> reader_;
};

class IdxSource final : public Source {
 public:
  IdxSource(std::string path, const InputOptions& options)
      : path_(std::move(path)), batch_(options.batch == 0 ? kIdxBatch : options.batch) {
    count_ = divided(IdxReader(path_).shape()[0], batch_);
  }

  std::int64_t count() const override { return count_; }
  Batch next() override {
    if (!reader_.has_value()) reader_.emplace(path_);
    at::Tensor rows = reader_->next(batch_);
    if (rows.scalar_type() == at::kByte && rows.dim() >= 3) {
      rows = rows.to(at::kFloat).div_(255);
      if (rows.dim() == 3) rows = rows.unsqueeze(1);
    }
    return {rows};
  }
  void close() override { reader_.reset(); }

 private:
  std::string path_;
  std::int64_t batch_;
  std::int64_t count_ = 0;
  std::optional<IdxReader> reader_;
};

class RandomSource final : public Source {
 public:
  explicit RandomSource(const InputOptions& options)
      : count_(options.count), generator_(at::make_generator<at::CPUGeneratorImpl>(options.seed)) {
    for (const auto& text : options.random) inputs_.push_back(parse(text));
  }

  std::int64_t count() const override { return count_; }
  Batch next() override {
    Batch batch;
    for (const auto& input : inputs_) {
      const bool real = at::isFloatingType(input.dtype) || at::isComplexType(input.dtype);
      batch.push_back(real ? at::randn(input.shape, generator_, input.dtype)
                           : at::randint(input.high, input.shape, generator_, input.dtype));
    }
    return batch;
  }

 private:
  struct Input {
    std::vector<std::int64_t> shape;
    at::ScalarType dtype = at::kFloat;
    std::int64_t high = 2;
  };

  static Input parse(const std::string& text) {
    static const std::regex form("(\\d{1,9}(?:x\\d{1,9})*)(?::([a-z0-9]+)(?::(\\d{1,18}))?)?");
    std::smatch match;
    TORCH_CHECK_VALUE(std::regex_match(text, match, form), "--random ", text,
                      ": expected SHAPE[:DTYPE[:HIGH]], such as 8x3x224x224, 8x64:float16 or "
                      "8x128:int64:30522.");
    Input input;
    std::int64_t elements = 1;
    std::istringstream stream(match[1]);
    for (std::string size; std::getline(stream, size, 'x');) {
      constexpr std::int64_t kMost = std::int64_t{1} << 40;
      input.shape.push_back(std::stoll(size));
      TORCH_CHECK_VALUE(input.shape.back() == 0 || elements <= kMost / input.shape.back(), "--random ", text,
                        ": the shape is too large.");
      elements *= input.shape.back();
    }
    if (match[2].matched) input.dtype = parse_dtype(match[2]);
    if (match[3].matched) input.high = std::stoll(match[3]);
    TORCH_CHECK_VALUE(input.high > 0, "--random ", text, ": HIGH must be at least 1.");
    return input;
  }

  std::int64_t count_;
  at::Generator generator_;
  std::vector<Input> inputs_;
};

std::unique_ptr<Source> open(const std::string& path, const InputOptions& options) {
  auto stream = open_to_read(path);
  std::string head(6, '\0');
  stream.read(head.data(), 6);
  if (head == "\x93NUMPY") return std::make_unique<NpySource>(path, options);
  const bool gzipped = head[0] == '\x1f' && head[1] == '\x8b';
  const bool idx = head[0] == 0 && head[1] == 0 && head[2] >= 8 && head[3] >= 1 && stream.gcount() >= 4;
  if (gzipped || idx) return std::make_unique<IdxSource>(path, options);
  TORCH_CHECK_VALUE(
      head.substr(0, 2) == "PK" || head[0] == '\x80' || is_safetensors(path), "cannot read \"", path,
      "\": it is not a .pt file of torch.save, a .npy, .safetensors or idx file (plain or gzipped).");
  return std::make_unique<PtSource>(path, options);
}

}  // namespace

Inputs::Inputs(InputOptions options) {
  TORCH_CHECK_VALUE(options.files.empty() != options.random.empty(),
                    options.files.empty() ? "There are no inputs: give files with --input, "
                                            "or a shape with --random."
                                          : "--input and --random are mutually exclusive.");
  for (const auto& path : options.files) sources_.push_back(open(path, options));
  if (!options.random.empty()) sources_.push_back(std::make_unique<RandomSource>(options));
  for (const auto& source : sources_) count_ += source->count();
}

Inputs::~Inputs() = default;
Inputs::Inputs(Inputs&&) noexcept = default;
Inputs& Inputs::operator=(Inputs&&) noexcept = default;

std::optional<Batch> Inputs::next() {
  while (current_ < sources_.size()) {
    Source& source = *sources_[current_];
    if (taken_ < source.count()) {
      ++taken_;
      return source.next();
    }
    source.close();
    ++current_;
    taken_ = 0;
  }
  return std::nullopt;
}

void add_input_options(CLI::App& command, InputOptions& options, bool one_call) {
  auto* input = command.add_option("--input,--idx3", options.files,
                                   "Input files: .pt, .npy, .safetensors, or MNIST's idx, plain or gzipped");
  input->check(CLI::ExistingFile);
  auto* random =
      command.add_option("--random", options.random,
                         "Random inputs, SHAPE[:DTYPE[:HIGH]]: 8x3x224x224 or 8x128:int64:30522; repeat "
                         "for further positional inputs of the same call");
  random->excludes(input);
  auto* batch = command
                    .add_option("--batch", options.batch,
                                "Split inputs along their first dimension into calls of this many rows; "
                                "64 by default for idx files")
                    ->transform(whole_number(1))
                    ->excludes(random);
  command.add_flag("--batches", options.batches, "The list in a .pt file is a list of batches, one per call")
      ->excludes(batch)
      ->excludes(random);
  if (!one_call) {
    command.add_option("--count", options.count, "Number of random batches")
        ->transform(whole_number(1))
        ->capture_default_str()
        ->excludes(input);
  }
  command.add_option("--seed", options.seed, "Seed of the random inputs")
      ->transform(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str()
      ->excludes(input);
}

const char* describe_inputs() {
  return R"(Inputs: a .pt file holds a tensor, or a list whose entries (tensors, lists, dicts, None) are the positional inputs
of one call; with --batches, a list of such lists. A .npy file holds one positional input, a .safetensors file a dict. An idx file of bytes with
three or more dimensions holds images: float32 in [0, 1], and [N, 1, H, W] for three dimensions; other idx files keep
values and dtype. Random inputs are normal for floats and in [0, HIGH) for integers (HIGH is 2 by default); the same
--seed gives the same inputs.)";
}

}  // namespace torchtap::tools
