// Writes, parses and checks documents.
#include <c10/util/Exception.h>

#include <torchtap/json/json.hpp>

namespace torchtap::json {
namespace {

/// The limit of nesting: writing and reading a document is recursive.
constexpr std::size_t kDeepest = 2000;
constexpr auto kReplace = Json::error_handler_t::replace;

void write_lines(const Json& value, std::size_t depth, std::string& to) {
  if (value.is_object() && !value.empty()) {
    const char* before = "{\n";
    for (const auto& [name, member] : value.items()) {
      to += before + std::string(depth + 1, ' ') + text(name) + ": ";
      write_lines(member, depth + 1, to);
      before = ",\n";
    }
    to += "\n" + std::string(depth, ' ') + "}";
  } else if (value.is_array() && !value.empty()) {
    const char* before = "[";
    for (const Json& element : value) {
      to += before;
      write_lines(element, depth, to);
      before = ", ";
    }
    to += "]";
  } else {
    to += text(value);
  }
}

/// Makes a document of the parser's events. nlohmann's own looks for each member among those before it, and
/// nests as deeply as a document says.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Json document;
  std::size_t bad_at = std::string::npos;
  bool too_deep = false;

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(std::int64_t value) override { return put(value); }
  bool number_unsigned(std::uint64_t value) override {
    return value > INT64_MAX ? put(static_cast<double>(value)) : put(static_cast<std::int64_t>(value));
  }
  bool number_float(double value, const std::string& /*text*/) override { return put(value); }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(Json::binary_t& /*value*/) override { return false; }
  bool key(std::string& value) override {
    name_ = std::move(value);
    return true;
  }
  bool start_object(std::size_t /*size*/) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*size*/) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t at, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    bad_at = at - 1;  // it counts the byte
    return false;
  }

 private:
  bool put(Json value) {
    place(std::move(value));
    return true;
  }
  Json* place(Json value) {
    if (open_.empty()) return &(document = std::move(value));
    if (open_.back()->is_array())
      return &open_.back()->get_ref<Json::array_t&>().emplace_back(std::move(value));
    return &open_.back()->get_ref<Json::object_t&>().emplace_back(std::move(name_), std::move(value)).second;
  }
  bool open(Json value) {
    too_deep = open_.size() == kDeepest;
    if (!too_deep) open_.push_back(place(std::move(value)));
    return !too_deep;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::vector<Json*> open_;  // none grows but the last, so that the others stay where they are
  std::string name_;
};

}  // namespace

std::string text(const Json& document) {
  return document.dump(-1, ' ', false, kReplace);
}

std::string lines(const Json& document) {
  std::string lines;
  write_lines(document, 0, lines);
  return lines + "\n";
}

Json parse(const std::string& text, const std::string& where) {
  Builder builder;
  const std::size_t zero = text.find('\0');  // where nlohmann's parser takes the text to end
  const bool good = Json::sax_parse(text, &builder) && zero == std::string::npos;
  TORCH_CHECK_VALUE(!builder.too_deep, where, "it is JSON nested deeper than ", kDeepest, ".");
  TORCH_CHECK_VALUE(good, where, "it is not JSON, from byte ", std::min(builder.bad_at, zero), " on.");
  return std::move(builder.document);
}

Json parse_object(const std::string& text) {
  try {
    Json document = parse(text, "");
    if (document.is_object()) return document;
  } catch (const c10::ValueError&) {
  }
  return nullptr;
}

bool read(const Json& value, bool& to) {
  if (value.is_boolean()) to = value.get<bool>();
  return value.is_boolean();
}

bool read(const Json& value, std::int64_t& to) {
  if (value.is_number_integer()) to = value.get<std::int64_t>();
  return value.is_number_integer();
}

bool read(const Json& value, double& to) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (value.is_number()) {
    to = value.get<double>();
  } else if (value == "NaN") {
    to = std::nan("");
  } else if (value == "Infinity" || value == "-Infinity") {
    to = value == "Infinity" ? infinity : -infinity;
  } else {
    return false;
  }
  return true;
}

bool read(const Json& value, std::string& to) {
  if (value.is_string()) to = value.get_ref<const std::string&>();
  return value.is_string();
}

const Json* Reader::find(const std::string& name) const {
  const auto found = value_->find(name);
  return found == value_->end() ? nullptr : &*found;
}

Reader Reader::at(const std::string& name) const {
  check(value_->is_object(), "an object");
  const Json* const found = find(name);
  if (found == nullptr) bad("has no \"" + name + "\"");
  return Reader(*found, where_, place_of(name));
}

std::vector<std::pair<std::string, Reader>> Reader::members() const {
  check(value_->is_object(), "an object");
  std::vector<std::pair<std::string, Reader>> all;
  for (const auto& [name, member] : value_->items())
    all.emplace_back(name, Reader(member, where_, place_of(name)));
  return all;
}

std::vector<Reader> Reader::elements() const {
  check(value_->is_array(), "an array");
  std::vector<Reader> all;
  for (const Json& element : *value_)
    all.emplace_back(element, where_, c10::str(place_, "[", all.size(), "]"));
  return all;
}

std::vector<Reader> Reader::list(const std::string& name) const {
  const Json* const found = find(name);
  return found != nullptr && found->is_array() ? at(name).elements() : std::vector<Reader>();
}

void Reader::check(bool good, const std::string& wanted) const {
  if (good) return;
  const auto kind = [&]() -> std::string {
    if (value_->is_object()) return "an object";
    if (value_->is_array()) return "an array";
    const std::string value = text(*value_);
    return (value_->is_string() ? "the text " : "") + (value.size() > 80 ? value.substr(0, 80) + "…" : value);
  };
  bad("should be " + wanted + " and is " + kind());
}

void Reader::bad(const std::string& what) const {
  TORCH_CHECK_VALUE(false, where_, place_.empty() ? "it" : place_, " ", what, ".");
}

std::string Reader::place_of(const std::string& name) const {
  return place_.empty() ? name : place_ + "." + name;
}

}  // namespace torchtap::json
