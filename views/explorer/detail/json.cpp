// JSON, by the library that comes with cereal.
#include <cmath>

#include <torchtap/base/rapidjson.hpp>
#include <torchtap/views/explorer/detail/json.hpp>
#include <torchtap/views/text/characters.hpp>

namespace torchtap::views::explorer::detail {

namespace rapid = base::rapid;

struct Json::Writer {
  rapid::StringBuffer buffer;
  rapid::Writer<rapid::StringBuffer> json{buffer};
};

Json::Json() : writer_(std::make_unique<Writer>()) {}
Json::~Json() = default;

void Json::begin() {
  writer_->json.StartObject();
}
void Json::object(const char* name) {
  key(name);
  begin();
}
void Json::object(const std::string& name) {
  object(name.c_str());
}
void Json::end() {
  writer_->json.EndObject();
}
void Json::begin_list() {
  writer_->json.StartArray();
}
void Json::list(const char* name) {
  key(name);
  begin_list();
}
void Json::list(const std::string& name) {
  list(name.c_str());
}
void Json::end_list() {
  writer_->json.EndArray();
}

void Json::null(const char* name) {
  key(name);
  writer_->json.Null();
}

void Json::shape(const char* name, const std::vector<std::int64_t>& shape) {
  list(name);
  for (const auto size : shape) {
    if (size < 0) {
      writer_->json.Null();
    } else {
      put(size);
    }
  }
  end_list();
}

void Json::raw(const std::string& name, const std::string& json) {
  key(name);
  writer_->json.RawValue(json.data(), json.size(), rapid::kObjectType);
}

void Json::item(double value) {
  if (std::isfinite(value)) {
    writer_->json.Double(value);
  } else {
    item(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
  }
}

void Json::item(const std::string& value) {
  const std::string text = text::utf8_text(value);
  writer_->json.String(text.data(), static_cast<rapid::SizeType>(text.size()));
}

void Json::key(const std::string& name) {
  const std::string text = text::utf8_text(name);
  writer_->json.Key(text.data(), static_cast<rapid::SizeType>(text.size()));
}
void Json::put(bool value) {
  writer_->json.Bool(value);
}
void Json::put(std::int64_t value) {
  writer_->json.Int64(value);
}

std::string Json::text() const {
  return {writer_->buffer.GetString(), writer_->buffer.GetSize()};
}

}  // namespace torchtap::views::explorer::detail
