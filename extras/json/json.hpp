#pragma once

// JSON as all parts write and read it (docs/format.md): keys keep their order, NaN and infinities are texts,
// bytes that are not UTF-8 are escapes, whole numbers are exact.

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/base/utf8.hpp>

namespace torchtap::json {

/// Converts values to JSON.
template <class T, class = void>
struct Serializer : nlohmann::adl_serializer<T> {};

/// "NaN", "Infinity" and "-Infinity", which Python's `float` and JavaScript's `Number` read.
template <class T>
struct Serializer<T, std::enable_if_t<std::is_floating_point_v<T>>> : nlohmann::adl_serializer<T> {
  template <class Document>
  static void to_json(Document& json, T value) {
    if (std::isfinite(value)) {
      nlohmann::to_json(json, static_cast<double>(value));
    } else {
      nlohmann::to_json(json, std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
    }
  }
};

template <class T>
struct Serializer<T, std::enable_if_t<std::is_convertible_v<const T&, std::string_view>>>
    : nlohmann::adl_serializer<T> {
  template <class Document>
  static void to_json(Document& json, std::string_view value) {
    nlohmann::to_json(json, base::utf8_text(std::string(value)));
  }
};

/// An empty optional is null.
template <class T>
struct Serializer<std::optional<T>> {
  template <class Document>
  static void to_json(Document& json, const std::optional<T>& value) {
    json = value ? Document(*value) : Document(nullptr);
  }
};

/// A document.
using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, std::int64_t,
                                  std::uint64_t, double, std::allocator, Serializer>;

/// Adds a member to an object that has none of this name, which is not looked for.
inline void add(Json& object, const std::string& name, Json value) {
  if (object.is_null()) object = Json::object();
  object.get_ref<Json::object_t&>().emplace_back(base::utf8_text(name), std::move(value));
}

/// The document on one line.
TORCHTAP_API std::string text(const Json& document);
/// For people: each member of an object on a line of its own, indented by a blank for each object around it.
/// Ends with a line break.
TORCHTAP_API std::string lines(const Json& document);

/// Throws `c10::ValueError`, whose message begins with `where`, if the text is not JSON, or nested so deeply
/// that recursion over it could take all of the stack. It keeps all members with one name, and readers see
/// the first.
TORCHTAP_API Json parse(const std::string& text, const std::string& where = "");
/// Parses an object; null if the text is no object.
TORCHTAP_API Json parse_object(const std::string& text);

/// Sets `to` and returns true if the value has its type. A double may also be "NaN", "Infinity" or
/// "-Infinity".
TORCHTAP_API bool read(const Json& value, bool& to);
TORCHTAP_API bool read(const Json& value, std::int64_t& to);
TORCHTAP_API bool read(const Json& value, double& to);
TORCHTAP_API bool read(const Json& value, std::string& to);
template <class T>
bool read(const Json& value, std::vector<T>& to) {
  if (!value.is_array()) return false;
  to.clear();
  for (const Json& element : value) {
    T one{};
    if (!read(element, one)) return false;
    to.push_back(std::move(one));
  }
  return true;
}

/// A value of a document that is not trusted: each is checked before it is read. The document has to live
/// longer.
class TORCHTAP_API Reader {
 public:
  /// `where` begins the messages of errors, which are `c10::ValueError`, and `place` names the value in the
  /// document.
  explicit Reader(const Json& value, std::string where = "", std::string place = "")
      : value_(&value), where_(std::move(where)), place_(std::move(place)) {}

  const Json& value() const { return *value_; }
  const std::string& place() const { return place_; }
  /// The member of this name; null if the value has none or is no object.
  const Json* find(const std::string& name) const;
  /// Throws if there is none.
  Reader at(const std::string& name) const;
  /// The members of an object; throws if the value is no object.
  std::vector<std::pair<std::string, Reader>> members() const;
  /// The elements of an array; throws if the value is no array.
  std::vector<Reader> elements() const;
  /// The elements of the member of this name; empty if there is no such array.
  std::vector<Reader> list(const std::string& name) const;

  template <class T>
  T get() const {
    T result{};
    if constexpr (is_vector<T>::value) {
      for (const Reader& element : elements()) result.push_back(element.get<typename T::value_type>());
    } else {
      check(read(*value_, result), wanted(result));
    }
    return result;
  }
  template <class T>
  T get(const std::string& name) const {
    return at(name).get<T>();
  }
  /// `otherwise` if there is no member of this name and type.
  template <class T>
  T get(const std::string& name, T otherwise) const {
    const Json* const found = find(name);
    T result{};
    return found != nullptr && read(*found, result) ? result : otherwise;
  }
  /// Throws that the value should be `wanted` if it is not `good`.
  void check(bool good, const std::string& wanted) const;
  /// Throws an error that says what is wrong with the value.
  [[noreturn]] void bad(const std::string& what) const;

 private:
  std::string place_of(const std::string& name) const;
  static const char* wanted(bool /*value*/) { return "true or false"; }
  static const char* wanted(std::int64_t /*value*/) { return "a whole number"; }
  static const char* wanted(double /*value*/) { return "a number"; }
  static const char* wanted(const std::string& /*value*/) { return "a text"; }
  template <class T>
  struct is_vector : std::false_type {};
  template <class T>
  struct is_vector<std::vector<T>> : std::true_type {};

  const Json* value_;
  std::string where_, place_;
};

}  // namespace torchtap::json
