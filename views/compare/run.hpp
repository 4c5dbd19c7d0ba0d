#pragma once

/// A run: the fingerprints of all tensors that passed through a model, as a prints file holds them.

#include <c10/util/SmallVector.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/views/compare/fingerprint.hpp>
#include <torchtap/views/frames/frame.hpp>

namespace torchtap::views::compare {

/// The index of a missing call, record or text.
inline constexpr std::uint32_t kNone = UINT32_MAX;

/// One tensor of a run. Its fingerprint stays in the file (`Run::print`).
struct Record {
  /// The form in which the file has a tensor.
  enum class Holds : std::uint8_t {
    nothing,      ///< a value without a fingerprint; `Run::reason` says why
    fingerprint,  ///< of a tensor or number
    tensor,       ///< all of it
    value,        ///< something else that was returned, such as None or a string: `text`
    exception,    ///< the call threw: `text`
  };

  std::uint64_t at = 0;  ///< position of the fingerprint, or of the frame if it holds none
  std::array<std::uint64_t, 2> digest = {};  ///< 0 without a fingerprint
  std::uint32_t path = 0, type = 0;          ///< of the module, or the name of a weight: indexes of texts
  std::uint32_t name = 0;    ///< a text: the keys, fields and places that lead to it in what was returned
  std::uint32_t text = 0;    ///< a text: of a value or an exception
  std::uint32_t sample = 0;  ///< which of the recorded calls of the module
  std::uint32_t call = 0;    ///< which call within one forward of the root
  std::uint32_t thread = 0, rank = 0;
  std::uint16_t slot = 0;
  frames::Kind kind = frames::Kind::other;
  Holds holds = Holds::nothing;  ///< what the file has of it
};

/// One call of a module: its records, and the call around it.
struct Call {
  std::uint32_t path = 0, type = 0;  ///< indexes of texts
  std::uint32_t ordinal = 0;         ///< how many calls of this path its sequence had before
  std::uint32_t parent = kNone;      ///< the call around it, of the same sequence
  std::uint32_t sequence = 0;        ///< which of `Run::sequences`
  bool leaf = true;                  ///< no call of another module lies within
  c10::SmallVector<std::uint32_t, 2> inputs, outputs;  ///< indexes of records, by slot
};

/// The run of one thread of one rank: records in the order of events, each with its call, and the calls in
/// the order in which they began.
struct Sequence {
  /// A record and its call.
  struct Event {
    std::uint32_t record, call;  ///< indexes of records and of calls
  };
  std::uint32_t rank = 0, thread = 0;
  std::vector<Event> events;         ///< in order
  std::vector<std::uint32_t> calls;  ///< indexes of calls
};

/// A prints file, read. Takes about 110 bytes of memory a record. Move-only.
class TORCHTAP_API Run {
 public:
  /// Reads a file, "-" (standard input) or a pipe, which is copied to a temporary file that has no name. A
  /// file that was cut off is read up to the cut. Throws `c10::ValueError` that names the file and the place
  /// if it is not made of whole frames, was written by a later version, or does not have the checksum that it
  /// names.
  static Run read(const std::string& file);
  Run(Run&&) noexcept;
  Run& operator=(Run&&) noexcept;
  ~Run();

  const std::string& file() const noexcept { return name_; }
  /// The facts of the first frame: "language", "command", "torch", …
  const std::map<std::string, std::string>& header() const noexcept { return header_; }
  /// Whether the file ends in the middle of a frame.
  bool cut_off() const noexcept { return cut_off_; }

  const std::deque<Record>& records() const noexcept { return records_; }
  /// Parameters and buffers: indexes of records.
  const std::vector<std::uint32_t>& weights() const noexcept { return weights_; }
  const std::deque<Call>& calls() const noexcept { return calls_; }
  /// Arguments and results of operations inside of calls, in order: indexes of records, whose `path` and
  /// `sample` name the call, whose `type` names the operation and whose `call` counts them.
  const std::vector<std::uint32_t>& operations() const noexcept { return operations_; }
  /// By rank, then in the order of the first events.
  const std::vector<Sequence>& sequences() const noexcept { return sequences_; }

  /// The text of a number.
  const std::string& text(std::uint32_t index) const { return texts_[index]; }
  /// The path of the module, or the name of the weight.
  const std::string& path(const Record& record) const { return texts_[record.path]; }
  /// The path of the module.
  const std::string& path(const Call& call) const { return texts_[call.path]; }
  /// "boxes[1]": the keys, fields and places that lead to the result in what was returned; "" if that is
  /// itself.
  const std::string& name(const Record& record) const { return texts_[record.name]; }
  /// Whether there is something: None and undefined tensors are as good as nothing.
  bool is_there(const Record& record) const;
  /// The first of some records that has a digest; `kNone` if none has.
  template <class Indexes>
  std::uint32_t first_tensor(const Indexes& indexes) const {
    for (const std::uint32_t i : indexes) {
      if (records_[i].digest != decltype(Record::digest)()) return i;
    }
    return kNone;
  }
  /// Whether all modules lie in a model whose own call was not seen, say because a compiler put it into the
  /// program.
  bool model_is_unseen() const;
  /// Why something that it should hold was not recorded, if it says so; else "".
  std::string not_recorded() const;
  /// How many forwards its program made after the recorded ones, if it says so.
  std::int64_t later_forwards() const;
  /// The number of a text, or `kNone`.
  std::uint32_t number_of(const std::string& text) const;
  /// The fingerprint of a record, or nothing if it has none.
  std::optional<Fingerprint> print(const Record& record) const;
  /// Why a record has no fingerprint.
  std::string reason(const Record& record) const;

 private:
  struct File;

  Run(std::string name, std::unique_ptr<File> file);
  void add(const frames::Frame& frame, std::uint64_t at);
  void find_calls(Sequence& sequence, std::uint32_t number);
  std::uint32_t number(std::string_view text);

  std::string name_;
  std::unique_ptr<File> file_;
  std::map<std::string, std::string> header_;
  std::deque<Record> records_;  // deques do not move elements to grow
  std::vector<std::uint32_t> weights_, operations_;
  std::deque<Call> calls_;
  std::vector<Sequence> sequences_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t>
      places_;  // of rank and thread, while reading
  std::vector<std::string> texts_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
  bool cut_off_ = false;
};

}  // namespace torchtap::views::compare
