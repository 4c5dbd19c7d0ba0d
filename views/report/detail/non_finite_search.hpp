#pragma once

// The search for the first value that is not finite. Whether a tensor is finite is known from when it was
// made; tensors that no operation made are looked through when they are first used.
//
// NaN and infinities have separate roles. An infinity that was written on purpose, as in a mask, is intended,
// and so are values computed from such infinities alone, until they become NaN.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <torchtap/operations/event.hpp>
#include <torchtap/views/report/detail/non_finite_scan.hpp>
#include <torchtap/views/report/detail/owners.hpp>
#include <torchtap/views/report/measurements.hpp>
#include <torchtap/views/watch/identity.hpp>
#include <torchtap/views/watch/region.hpp>

namespace torchtap::views::report::detail {

/// The place where an operation ran.
struct Where {
  std::string module;
  std::int64_t call = 0;
  bool backward = false;
};

/// The kinds of values in a tensor that are not finite. `inf` are infinities that are not intended.
struct Kinds {
  bool nan = false, inf = false, intended = false;

  bool any() const noexcept { return nan || inf || intended; }
  Kinds& operator|=(const Kinds& other) noexcept {
    nan = nan || other.nan;
    inf = inf || other.inf;
    intended = intended || other.intended;
    return *this;
  }
};

/// An operation on its way.
struct Searched {
  struct Input {
    std::string name;
    at::Tensor tensor;
  };
  struct Written {
    at::Tensor tensor;
    bool filled;  // it overwrote the whole tensor
  };
  c10::SmallVector<Input, 4> inputs;      // arguments whose values it reads
  bool views = false;                     // it may look at them no further than where they lie
  c10::SmallVector<at::Tensor, 1> unset;  // of these, memory that no operation filled as a whole
  c10::SmallVector<Written, 2> written;
  Kinds in;               // what its inputs have
  NonFinite counts;       // of it, if findings are noted
  bool infinite = false;  // a number that it is given is infinite
};

/// A tensor that the model holds, and its values that are not finite.
struct BadHeld {
  std::string path;
  NonFinite values;
};

/// Not thread safe: the measured model locks.
class NonFiniteSearch {
 public:
  explicit NonFiniteSearch(const Owners& owners) : owners_(owners) {}

  std::int64_t left_out = 0;      // findings beyond the most that are kept
  std::vector<BadHeld> bad_held;  // parameters and buffers
  std::string first;              // the first source or producer of this repeat, as a sentence

  void begin(std::int64_t repeat);
  /// Forgets the tensors; the findings stay.
  void forget() { memory_.clear(); }
  /// `reads`: of which arguments it reads the values.
  void before(operations::Event& event, const std::vector<bool>& reads, Searched& searched,
              const Where& where);
  void after(operations::Event& event, Searched& searched, const Where& where);
  /// The kinds of the tensor's elements.
  Kinds kinds(const at::Tensor& tensor);
  /// All that was found, the worst first.
  std::vector<Occurrence> findings() const;

 private:
  struct Memory {
    Kinds has;                                     // what was written to it, or found in it
    bool clean = false;                            // all of it is known to be finite
    bool unset = false;                            // made by empty(), and not filled since
    watch::Region last;                            // what was looked through last,
    std::int64_t numel = -1;                       // its elements,
    Scan found;                                    // and its kinds
    c10::SmallVector<watch::Region, 1> explained;  // parts whose values have a finding or a maker
    bool all_explained = false;

    /// The kinds of its values that are already explained.
    Kinds kinds_of(const Scan& scan) const;
    bool explains(const watch::Region& region) const;
    void explain(const watch::Region& region, const Kinds& kinds);
  };
  struct Output {
    at::Tensor tensor;
    bool filled;
    Scan found;
  };
  enum Kind : std::size_t { of_nan, of_inf, of_intended };

  const Scan& look(const at::Tensor& tensor, Memory& memory);
  Kinds read(const at::Tensor& tensor, const Where& where);
  void read(Searched& searched, const at::Tensor& tensor, const Where& where);
  Kinds from_outside(const at::Tensor& tensor, const Scan& found, bool backward) const;
  void make_unset(const at::Tensor& tensor);
  void look_at_output(Output& output, const Searched& searched);
  void read_unset(Searched& searched, const Scan& made, const Where& where);
  void source(const at::Tensor& tensor, const Kinds& kinds, bool unset, const Where& where);
  void judge(operations::Event& event, const Searched& searched, const std::vector<Output>& outputs,
             const Scan& made, const Where& where);
  std::vector<std::string> describe_inputs(const Searched& searched) const;
  void add(Occurrence finding, Kind kind);

  const Owners& owners_;
  watch::ByMemory<Memory> memory_;
  std::int64_t repeat_ = 0;
  std::array<std::vector<Occurrence>, 3> found_;      // by `Kind`
  std::array<bool, 3> collects_{true, true, true};    // no earlier repeat had any
  std::array<std::vector<std::int64_t>, 3> moments_;  // when each was found
  std::int64_t moment_ = 0;
  bool became_nan_ = false;  // an infinity that was not intended
  std::map<std::tuple<Role, std::string, std::string, bool>, std::size_t> intended_;  // one finding for each
};

}  // namespace torchtap::views::report::detail
