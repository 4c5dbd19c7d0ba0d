#pragma once

// JSON as the page reads it.

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace torchtap::views::explorer::detail {

/// Writes one value, mostly an object. Numbers that are not finite become "nan", "inf" and "-inf"; bytes that
/// are not UTF-8 become an escape.
class Json {
 public:
  Json();
  ~Json();
  Json(const Json&) = delete;
  Json& operator=(const Json&) = delete;

  void begin();
  void object(const char* name);
  void object(const std::string& name);
  void end();
  void begin_list();
  void list(const char* name);
  void list(const std::string& name);
  void end_list();

  template <class T>
  void field(const char* name, const T& value) {
    key(name);
    item(value);
  }
  void null(const char* name);
  /// -1 becomes null.
  void shape(const char* name, const std::vector<std::int64_t>& shape);
  /// A value that is JSON already.
  void raw(const std::string& name, const std::string& json);

  template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
  void item(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      put(value);
    } else {
      put(static_cast<std::int64_t>(value));
    }
  }
  void item(double value);
  void item(const char* value) { item(std::string(value)); }
  void item(const std::string& value);

  std::string text() const;

 private:
  void key(const std::string& name);
  void put(bool value);
  void put(std::int64_t value);

  struct Writer;
  std::unique_ptr<Writer> writer_;
};

}  // namespace torchtap::views::explorer::detail
