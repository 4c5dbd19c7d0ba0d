#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torchtap/base/disk.hpp>
#include <torchtap/storage/entry.hpp>

#include "area.hpp"
#include "config.hpp"
#include "process_report.hpp"

namespace torchtap::tools::preload {

struct Kept;

/// The launcher's side of the area: opens it, and reads what processes have published.
class ProgramArea {
 public:
  /// The files that the waiter loads.
  struct Libraries {
    std::string agent, interposer, torch;
  };
  /// Throws `std::runtime_error` if there can be none.
  ProgramArea(const Config& config, const Libraries& libraries);
  ~ProgramArea();
  ProgramArea(const ProgramArea&) = delete;
  ProgramArea& operator=(const ProgramArea&) = delete;

  /// The value of `kVariable`.
  std::string variable() const;
  /// Nothing is read any more.
  void close() const;
  /// Called in the process that becomes the program.
  void starts_here() const;
  /// The reports of all processes that entered, in this order. Processes may run.
  std::vector<Report> reports() const;
  /// What a process published as its result; empty if nothing.
  std::string result_of(std::uint32_t number) const;
  /// The parts of its result, in order; those that were not published are empty.
  std::vector<std::string> parts_of(std::uint32_t number) const;
  /// Adds the samples that a process kept to the entries that it published.
  void add_kept(std::uint32_t number, std::vector<storage::Entry>& entries) const;
  /// Calls `take` for what a process handed over for files since the last call: a new file with its name, or
  /// bytes that belong behind the others. `gone`: nothing more comes.
  using Take = std::function<void(std::uint32_t file, bool is_name, std::string_view bytes)>;
  void receive(std::uint32_t number, bool gone, const Take& take);
  /// Calls `take` for all else that a process handed over since the last call, until it returns false.
  /// Returns false then.
  using TakeKept = std::function<bool(const Kept& kept, char* data)>;
  bool receive_kept(std::uint32_t number, bool gone, const TakeKept& take);
  /// Memory that a process shares, and gave this place of. It stays.
  char* shared(std::uint64_t place, std::uint64_t bytes) const { return at(place, bytes); }
  /// The page of a process.
  Page& page(std::uint32_t number) const;
  /// Memory that nobody needs any more, in no thread. Its pages are zeros then. False if the system refuses.
  bool give_back(std::uint64_t place, std::uint64_t bytes) const;

 private:
  /// As far as the chunks of a process were read.
  struct Position {
    std::uint64_t chunk = 0, next = 0;
  };
  template <class Function, class Read>
  bool each_kept(std::uint32_t number, Position& from, bool gone, Function&& function, Read&& read) const;
  char* at(std::uint64_t place, std::uint64_t bytes) const;
  std::string read(const Published::Half* half) const;
  std::string report_of(const Page& page) const;
  template <class Read>
  auto of_one_generation(std::uint32_t number, Read&& read) const;

  base::Descriptor file_;
  Header* header_ = nullptr;
  std::map<std::uint32_t, Position> received_;  // by process
  using Memory = std::pair<char*, std::uint64_t>;
  mutable std::map<std::uint64_t, Memory> mapped_;  // by place
  mutable std::vector<Memory> smaller_;             // the same places, mapped before
};

}  // namespace torchtap::tools::preload
