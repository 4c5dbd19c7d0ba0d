#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// Shows progress: a live line on a terminal, occasional lines otherwise.
class Progress {
 public:
  Progress();
  /// Shows `text` for step `index` of `count`; the last step ends the line.
  void show(std::int64_t index, std::int64_t count, const std::string& text);

 private:
  bool terminal_;
  double shown_ = -1;  // seconds
  std::int64_t tenth_ = -1;
};

/// A table with columns as wide as their widest cell and right-aligned numbers.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// "0.318", "-12.4", "4.20", "0".
std::string short_number(double value);
