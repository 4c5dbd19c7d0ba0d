#pragma once

// A run that is read from files, whether it is finished, killed, or still written by another process.

#include <array>

#include <torchtap/views/explorer/detail/bytes.hpp>
#include <torchtap/views/explorer/detail/run_file.hpp>

namespace torchtap::views::explorer::detail {

class FileRun final : public Run {
 public:
  /// Reads the complete blocks of the file. Throws as `RunFileReader` does, and `c10::ValueError` for a file
  /// that is damaged.
  explicit FileRun(const std::string& directory, std::size_t columns = 256,
                   std::int64_t memory = std::int64_t{256} << 20, std::int64_t number = 1);

  GraphText graph(Mode mode) override;
  bool has(Mode mode) override;
  std::int64_t graph_version() override;
  std::map<std::int32_t, CallName> call_names() override;
  /// Reads new blocks. Throws `c10::ValueError` for a file that is damaged.
  void refresh() override;
  std::vector<watch::Column> zoom(std::int32_t series, std::int64_t from, std::int64_t to) override;

 private:
  void take(BlockKind kind, const std::string& body);
  void take_series(const std::string& body);
  std::int32_t take_number(Bytes& bytes) const;
  void take_info(const std::string& body);

  std::mutex reading_;
  RunFileReader reader_;
  std::mutex graph_mutex_;
  std::array<GraphText, modes> graphs_;
  std::vector<std::int32_t> numbers_;  // of series, by the file's numbers
  bool ended_ = false;
};

}  // namespace torchtap::views::explorer::detail
