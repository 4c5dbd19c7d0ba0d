// Prints values: `operator<<` of Value and Results.

#include <ATen/Functions.h>
#include <c10/core/DeviceType.h>
#include <c10/core/Layout.h>
#include <c10/core/ScalarType.h>
#include <c10/util/complex.h>

#include <algorithm>
#include <cstdio>
#include <ostream>

#include <torchtap/base/dtypes.hpp>
#include <torchtap/base/numbers.hpp>
#include <torchtap/base/recording_mode.hpp>
#include <torchtap/core/value.hpp>

namespace torchtap::core {
namespace {

constexpr std::int64_t kMostElements = 10;
constexpr std::size_t kMostEntries = 8;
constexpr std::size_t kMostLetters = 80;

std::string number(double value) {
  return base::number_text(value, 6);
}

std::string number(c10::complex<double> value) {
  const std::string imaginary = number(value.imag());
  return number(value.real()) + (imaginary[0] == '-' ? "" : "+") + imaginary + "j";
}

template <class T, class Print>
std::vector<std::string> printed(const at::Tensor& tensor, Print&& print) {
  const at::Tensor same = tensor.to(c10::CppTypeToScalarType<T>::value).contiguous();
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < same.numel(); ++i) texts.push_back(print(same.data_ptr<T>()[i]));
  return texts;
}

/// The elements, each as text; nothing if they are no numbers that this LibTorch converts.
std::vector<std::string> elements(const at::Tensor& tensor) {
  if (tensor.numel() > kMostElements || tensor.layout() != c10::kStrided || tensor.is_quantized() ||
      tensor.device().type() == c10::DeviceType::Meta) {
    return {};
  }
  const base::RecordingMode mode;
  try {
    const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg().to(at::kCPU);
    const auto type = plain.scalar_type();
    if (type == at::kBool) return printed<bool>(plain, [](bool value) { return value ? "True" : "False"; });
    if (plain.is_complex()) {
      return printed<c10::complex<double>>(plain, [](c10::complex<double> value) { return number(value); });
    }
    if (plain.is_floating_point()) return printed<double>(plain, [](double value) { return number(value); });
    const bool is_unsigned = base::dtype_text(type) == "uint64";
    return printed<std::int64_t>(plain, [&](std::int64_t value) {
      return is_unsigned ? std::to_string(static_cast<std::uint64_t>(value)) : std::to_string(value);
    });
  } catch (const c10::Error&) {
    return {};
  }
}

/// `[[1, 2], [3, 4]]`, from the next of the elements on.
void print_nested(std::ostream& out, c10::IntArrayRef sizes, const std::vector<std::string>& texts,
                  std::size_t& next) {
  if (sizes.empty()) {
    out << texts[next++];
    return;
  }
  out << '[';
  for (std::int64_t i = 0; i < sizes[0]; ++i) {
    if (i != 0) out << ", ";
    print_nested(out, sizes.slice(1), texts, next);
  }
  out << ']';
}

void print_tensor(std::ostream& out, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    out << "None";
    return;
  }
  out << "tensor(";
  const std::vector<std::string> texts = elements(tensor);
  if (texts.empty()) {
    out << "shape=" << tensor.sizes();
  } else {
    std::size_t next = 0;
    print_nested(out, tensor.sizes(), texts, next);
  }
  out << ", " << base::dtype_text(tensor.scalar_type());
  if (tensor.layout() != c10::kStrided) out << ", layout=" << tensor.layout();
  if (tensor.device().type() != c10::DeviceType::CPU) out << ", device=" << tensor.device().str();
  out << ')';
}

void print_text(std::ostream& out, const std::string& text) {
  out << '\'';
  for (std::size_t i = 0; i < std::min(text.size(), kMostLetters); ++i) {
    const char letter = text[i];
    if (letter == '\n') {
      out << "\\n";
    } else if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\x%02x", static_cast<unsigned>(letter));
      out << code;
    } else {
      if (letter == '\'' || letter == '\\') out << '\\';
      out << letter;
    }
  }
  out << '\'';
  if (text.size() > kMostLetters) out << "... (" << text.size() << " bytes)";
}

/// The first entries between brackets, and how many there are beside them.
template <class Entries, class Print>
void print_entries(std::ostream& out, char open, char close, const Entries& entries, Print&& print) {
  out << open;
  std::size_t count = 0;
  for (const auto& entry : entries) {
    if (count == kMostEntries) break;
    if (count++ != 0) out << ", ";
    print(entry);
  }
  if (entries.size() > kMostEntries) out << ", ... (" << entries.size() - kMostEntries << " more)";
  out << close;
}

}  // namespace

std::ostream& Results::print(std::ostream& out) const {
  print_entries(out, '{', '}', *this, [&](const Entry& entry) {
    print_text(out, entry.first);
    out << ": ";
    print_tensor(out, entry.second);
  });
  return out;
}

std::ostream& Value::print(std::ostream& out) const {
  switch (kind_) {
    case Kind::none:
      out << "None";
      break;
    case Kind::tensor:
      print_tensor(out, tensor_);
      break;
    case Kind::text:
      print_text(out, text());
      break;
    case Kind::list:
      print_entries(out, '[', ']', list_, [&](const Value& entry) { out << entry; });
      break;
    case Kind::dict:
      print_entries(out, '{', '}', dict_, [&](const Dict::value_type& entry) {
        print_text(out, entry.first);
        out << ": " << entry.second;
      });
      break;
  }
  return out;
}

}  // namespace torchtap::core
