// Finds the parameters of recorded tensors, keeps them in a file, and hands them to other programs.
#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include <cmath>
#include <iomanip>
#include <limits>
#include <locale>
#include <set>
#include <sstream>

#include <torchtap/base/disk.hpp>
#include <torchtap/base/error.hpp>
#include <torchtap/base/format.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/base/utf8.hpp>
#include <torchtap/base/write_file.hpp>
#include <torchtap/json/json.hpp>
#include <torchtap/quantization/calibration.hpp>
#include <torchtap/quantization/detail/no_value.hpp>
#include <torchtap/recorders/kind.hpp>
#include <torchtap/version.hpp>

namespace torchtap::quantization {
namespace {

constexpr std::int64_t kCalibrationFormat = 1;
constexpr std::uint64_t kLargestCalibration = std::uint64_t{1} << 30;

/// For messages: the output 0 of "conv1" (Conv2d).
std::string in_words(const QuantizedTensor& tensor) {
  return c10::str("the ", tensor.input ? "input " : "output ", tensor.slot, " of \"", tensor.path, "\" (",
                  tensor.type, ")");
}

/// A number, or an array with one for each channel, all of them from `least` to `largest`.
at::Tensor read_numbers(const json::Reader& value, at::ScalarType dtype, double least, double largest) {
  std::vector<double> all;
  const auto add = [&](const json::Reader& one) {
    const bool good = dtype == at::kFloat ? one.value().is_number() : one.value().is_number_integer();
    all.push_back(good ? one.value().get<double>() : std::nan(""));
    one.check(
        all.back() >= least && all.back() <= largest,
        c10::str(dtype == at::kFloat ? "a number" : "a whole number", " from ", least, " to ", largest));
  };
  if (value.value().is_array()) {
    for (const json::Reader& one : value.elements()) add(one);
    return at::tensor(all, dtype);
  }
  add(value);
  return at::scalar_tensor(all[0], dtype);
}

QuantizedTensor read_tensor(const json::Reader& fields) {
  QuantizedTensor tensor{fields.get<std::string>("path"),
                         fields.get<std::string>("type"),
                         false,
                         fields.get<std::int64_t>("slot"),
                         {},
                         {}};
  const json::Reader kind = fields.at("kind");
  tensor.input = kind.get<std::string>() == "input";
  kind.check(tensor.input || kind.value() == "output", R"("input" or "output")");
  fields.at("slot").check(tensor.slot >= 0, "0 or more");
  if (fields.find("weights") != nullptr) tensor.weights = dtype_of(fields.get<std::string>("weights"));
  Parameters& found = tensor.parameters;
  found.dtype = dtype_of(fields.get<std::string>("dtype"));
  if (fields.find("axis") != nullptr) found.axis = fields.get<std::int64_t>("axis");
  constexpr double largest = std::numeric_limits<float>::max();
  std::int64_t channels = -1;
  const auto read = [&](const char* name, at::ScalarType dtype, double from, double to) {
    at::Tensor numbers = read_numbers(fields.at(name), dtype, from, to);
    if (channels == -1) channels = numbers.numel();
    fields.at(name).check(numbers.dim() == (found.axis ? 1 : 0) && numbers.numel() == channels,
                          "a number or, with an axis, an array of as many as the scale");
    return numbers;
  };
  found.scale = read("scale", at::kFloat, std::numeric_limits<float>::denorm_min(), largest);
  found.zero_point = read("zero_point", at::kInt, static_cast<double>(found.quant_min()),
                          static_cast<double>(found.quant_max()));
  found.low = read("low", at::kFloat, -largest, largest);
  found.high = read("high", at::kFloat, -largest, largest);
  fields.at("low").check(found.low.le(found.high).all().item<bool>(), "at most high");
  return tensor;
}

/// Whether a value has a part for each tensor of a module (`recorders::RecorderOptions::all_tensors`).
bool has_slots(const core::Value& value) {
  if (!value.is_dict()) return false;
  std::int64_t next = 0;
  for (const auto& [name, part] : value.dict())
    if (name != std::to_string(next++)) return false;
  return true;
}

struct Calibrated {
  std::vector<QuantizedTensor> tensors;
  std::vector<std::string> left_out;

  Calibration finished(const QuantizationOptions& options) {
    TORCH_CHECK_VALUE(!tensors.empty() || left_out.empty(),
                      "quantization::calibrate: there is no finite value in ", left_out.front(),
                      left_out.size() > 1 ? ", nor in any other tensor" : "",
                      "; record other data or, if infinities or NaN hide the others from Min and Max, "
                      "LogHistogram.");
    return Calibration(std::move(tensors), std::string(name_of(options.method())), std::move(left_out));
  }
};

/// Adds the data of an entry; `read` returns its value.
template <class Read>
void add_entry(Calibrated& to, const storage::EntryId& id, std::int64_t samples, const std::string& reduction,
               const Read& read, const QuantizationOptions& options) {
  if (samples == 0) return;
  const auto* const kind = recorders::find_kind(id.kind);
  TORCH_CHECK_VALUE(kind != nullptr && !kind->gradients, "quantization::calibrate: \"", id.path, "\" (",
                    id.type, ") has data of the kind \"", id.kind,
                    "\"; expected inputs or outputs of modules.");
  TORCH_CHECK_VALUE(!reduction.empty(), "quantization::calibrate: \"", id.path, "\" (", id.type,
                    ") has samples that were kept; record their distribution instead, such as a "
                    "LogHistogram(LogHistogramOptions().over_all(true)).");
  const auto add = [&](std::int64_t slot, const core::Value& value) {
    QuantizedTensor tensor{id.path, id.type, !kind->outputs, slot, {}, {}};
    if (value.is_none() || (value.is_dict() && value.dict().empty())) {  // of tensors without elements
      to.left_out.push_back(in_words(tensor));
      return;
    }
    if (kind->outputs) tensor.weights = options.weights();
    try {
      core::Results results;
      if (value.is_tensor()) results.set("value", value.tensor());
      if (value.is_dict())
        for (const auto& [name, result] : value.dict()) results.set(name, result.tensor());
      tensor.parameters = parameters(results, options);
    } catch (const detail::NoValue&) {
      to.left_out.push_back(in_words(tensor));
      return;
    } catch (c10::Error& error) {
      error.add_context("while calibrating " + in_words(tensor));
      throw;
    }
    to.tensors.push_back(std::move(tensor));
  };
  const core::Value value = read();
  if (!has_slots(value)) return add(0, value);
  for (const auto& [slot, part] : value.dict()) add(std::stoll(slot), part);
}

}  // namespace

Calibration::Calibration(std::vector<QuantizedTensor> tensors, std::string method,
                         std::vector<std::string> left_out)
    : tensors_(std::move(tensors)), method_(std::move(method)), left_out_(std::move(left_out)) {
  std::set<std::tuple<std::string, bool, std::int64_t>> seen;
  for (const QuantizedTensor& tensor : tensors_) {
    TORCH_CHECK_VALUE(seen.emplace(tensor.path, tensor.input, tensor.slot).second,
                      "quantization::Calibration: ", in_words(tensor),
                      " comes twice; a tensor is quantized once, so leave one of them out.");
  }
}

const QuantizedTensor& Calibration::at(const std::string& path) const& {
  const QuantizedTensor* found = nullptr;
  std::vector<std::string> paths;
  for (const QuantizedTensor& tensor : tensors_) {
    paths.push_back(tensor.path);
    if (tensor.path == path && tensor.slot == 0 && (found == nullptr || found->input)) found = &tensor;
  }
  TORCH_CHECK_INDEX(found != nullptr, "quantization::Calibration::at: none of ", size(),
                    " tensors is the output 0 or input 0 of \"", path, "\"; the nearest paths are ",
                    base::quoted(base::nearest(path, paths)), ".");
  return *found;
}

std::string Calibration::json() const {
  const auto text = [](const char* name, const std::string& value) {
    TORCH_CHECK_VALUE(base::first_not_utf8(value) == std::string::npos, "quantization::Calibration: the ",
                      name, " \"", value, "\" is not UTF-8, which JSON has to be; rename it.");
    return value;
  };
  const auto numbers = [](const at::Tensor& tensor) {
    json::Json list = json::Json::array();
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      const at::Scalar value = tensor.reshape(-1)[i].item();
      list.push_back(value.isIntegral(false) ? json::Json(value.toLong()) : json::Json(value.toDouble()));
    }
    return tensor.dim() == 0 ? list[0] : list;
  };
  json::Json tensors = json::Json::array();
  for (const QuantizedTensor& tensor : tensors_) {
    const Parameters& found = tensor.parameters;
    json::Json& object = tensors.emplace_back(json::Json{{"path", text("path", tensor.path)},
                                                         {"type", text("type", tensor.type)},
                                                         {"kind", tensor.input ? "input" : "output"},
                                                         {"slot", tensor.slot}});
    if (tensor.weights) object["weights"] = name_of(*tensor.weights);
    object["dtype"] = name_of(found.dtype);
    if (found.axis) object["axis"] = *found.axis;
    object["scale"] = numbers(found.scale);
    object["zero_point"] = numbers(found.zero_point);
    object["low"] = numbers(found.low);
    object["high"] = numbers(found.high);
  }
  return json::lines({{"format", kCalibrationFormat},
                      {"library", TORCHTAP_VERSION},
                      {"method", text("method", method_)},
                      {"tensors", std::move(tensors)}});
}

void Calibration::save(const std::string& path) const {
  const std::string text = json();
  base::write_file("quantization::Calibration::save", path, [&](std::ostream& file) { file << text; });
}

Calibration Calibration::load(const std::string& path) {
  const base::RecordingMode quiet;
  const auto file = base::InputFile::open("quantization::Calibration::load", path);
  const std::string text = file.read_all(kLargestCalibration);
  try {
    const json::Json document = json::parse(text);
    const json::Reader whole(document);
    const std::string unreadable =
        base::unreadable_format(whole.get<std::int64_t>("format"), kCalibrationFormat);
    TORCH_CHECK_VALUE(unreadable.empty(), unreadable, ".");
    std::vector<QuantizedTensor> tensors;
    for (const json::Reader& one : whole.at("tensors").elements()) tensors.push_back(read_tensor(one));
    return Calibration(std::move(tensors), whole.get<std::string>("method"));
  } catch (const c10::ValueError& error) {
    file.bad(error.msg().substr(0, error.msg().find_last_not_of('.') + 1));
  }
}

std::string Calibration::tensorrt_cache(const std::string& header) const {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << header << '\n' << std::hex << std::setfill('0');
  for (const QuantizedTensor& tensor : tensors_) {
    const Parameters& found = tensor.parameters;
    TORCH_CHECK_VALUE(
        found.dtype == Dtype::int8 && !found.axis && found.zero_point.item<int>() == 0,
        "quantization::Calibration::tensorrt_cache: ", in_words(tensor), " is ", name_of(found.dtype),
        found.axis ? " with a scale for each channel" : " with one scale", " and the zero points ",
        found.zero_point.min().item<int>(), " to ", found.zero_point.max().item<int>(),
        "; TensorRT takes int8 with one scale and the zero point "
        "0. Calibrate with QuantizationOptions().symmetric(true), and all channels as one distribution.");
    std::string suffix;
    if (tensor.input || tensor.slot != 0 || tensor.path.empty()) suffix = tensor.input ? ".input" : ".output";
    if (tensor.slot != 0) suffix += "." + std::to_string(tensor.slot);
    text << (tensor.path.empty() ? suffix.substr(1) : tensor.path + suffix) << ": " << std::setw(8)
         << found.scale.view(at::kInt).item<int>() << '\n';
  }
  return text.str();
}

core::Value Calibration::observers() const {
  core::Value::Dict state;
  for (const QuantizedTensor& tensor : tensors_) {
    if (tensor.slot != 0 || (tensor.input && !tensor.path.empty())) continue;
    std::string prefix = tensor.input ? "quant." : tensor.path.empty() ? "" : tensor.path + ".";
    prefix += "activation_post_process.";
    // By the names in the plural, which others pass over, observers of channels make room for all of them.
    for (const char* plural : {"", "s"}) {
      if (*plural != 0 && !tensor.parameters.axis) continue;
      state.emplace_back(prefix + "min_val" + plural, tensor.parameters.low);
      state.emplace_back(prefix + "max_val" + plural, tensor.parameters.high);
    }
  }
  return state;
}

Calibration calibrate(const storage::Recording& recording, const QuantizationOptions& options) {
  Calibrated all;
  for (const storage::RecordedEntry& entry : recording)
    add_entry(
        all, entry.id(), entry.samples(), entry.reduction(), [&] { return entry.value(); }, options);
  return all.finished(options);
}

Calibration calibrate(const std::vector<storage::Entry>& entries, const QuantizationOptions& options) {
  Calibrated all;
  for (const storage::Entry& entry : entries)
    add_entry(
        all, entry, entry.samples, entry.reduction, [&] { return entry.value; }, options);
  return all.finished(options);
}

}  // namespace torchtap::quantization
