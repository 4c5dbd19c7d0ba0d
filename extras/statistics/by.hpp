#pragma once

/// A reduction for each key: statistics by class, by expert.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <torchtap/base/api.hpp>
#include <torchtap/reductions/any.hpp>
#include <torchtap/reductions/pass.hpp>

namespace torchtap::reductions {

/// The keys that a `By` takes.
class TORCHTAP_API ByOptions {
 public:
  /// The keys that come, of the companion called `name`.
  explicit ByOptions(std::string name) : name_(std::move(name)) {}
  /// Keys 0 … n - 1; each has its row in the results.
  ByOptions(std::string name, std::int64_t n) : name_(std::move(name)), n_(n), most_(n) {}

  /// At most so many different keys; 4096 unless set. It takes the memory of so many reductions.
  ByOptions& most(std::int64_t keys) {
    most_ = keys;
    return *this;
  }
  const std::string& name() const noexcept { return name_; }
  /// 0: the keys that come.
  std::int64_t n() const noexcept { return n_; }
  std::int64_t most() const noexcept { return most_; }

  template <class Archive>
  void serialize(Archive& archive) {
    archive(name_, n_, most_);
  }

 private:
  std::string name_;
  std::int64_t n_ = 0, most_ = 4096;
};

/// Applies a reduction to the rows of each key: `by("labels", 10, Mean(MeanOptions().over({0})))` has the
/// bits of ten reductions, each updated with `x.index_select(0, (labels == key).nonzero().flatten())`.
///
/// Keys are whole numbers that `core::Context` names around the forward. Their shape is how the sample's
/// begins; a key without dimensions is the whole sample's. Rows of negative keys belong to no group and are
/// counted. A group whose key does not come is not updated.
///
/// A sample on a device stays there, and so do the groups. The keys, on that device or on the CPU, are copied
/// to the CPU, so each update waits for the device. It copies the sample's rows once there, unless all of
/// them have one key.
///
/// The idea is split-apply-combine (Wickham 2011), as `groupby` in pandas.
class TORCHTAP_API By : public SharesPass {
 public:
  /// Throws `c10::ValueError` if a bound is not positive, if the reduction has samples or if it uses the same
  /// name.
  By(ByOptions options, Any reduction);

  /// Throws `c10::ValueError` if the keys are missing, have another shape, are too many or too large, or are
  /// neither on the sample's device nor on the CPU; `c10::TypeError` if they are not whole numbers;
  /// `c10::NotImplementedError` if the current stream of the sample's device captures a CUDA graph, where
  /// nothing may wait; the first time also `c10::ValueError` if a result has the name of the keys; and the
  /// reduction's errors. All groups are unchanged then.
  void update(const at::Tensor& sample);
  /// Throws the error that `update` would throw for this sample. Changes nothing.
  void check(const at::Tensor& sample) const;
  /// Merges key by key. Throws `c10::ValueError` if the configuration differs or there are too many keys, and
  /// the reduction's errors; the state is unchanged then.
  void merge(const By& other);
  /// The sum of the groups' counts.
  std::int64_t count() const;
  /// Number of rows with negative keys.
  std::int64_t left_out() const noexcept { return left_out_; }
  /// The keys that came, ascending.
  std::vector<std::int64_t> keys() const;
  /// The reduction of a key. Throws `c10::IndexError` if it did not come.
  const Any& at(std::int64_t key) const&;
  /// For a temporary: returns by value.
  Any at(std::int64_t key) && { return at(key); }
  /// "NAME", the keys [K], int64; "NAME.count", the groups' counts; "NAME.left_out"; then each result of the
  /// reduction as [K, …]. Under a given n there are n rows, of keys that did not come NaN, or 0 in results of
  /// whole numbers. A result whose shape depends on the key is an entry for each: "counts.3". Empty before
  /// the first sample.
  core::Results results() const;
  /// "By(labels, 10, Mean)".
  std::string describe() const;
  /// Whether samples may come in any order, as the reduction says.
  bool commutative() const { return each_.commutative(); }
  /// The name of the keys, and the names that the reduction uses.
  std::vector<std::string> companions() const;
  By fresh() const { return {options_, each_}; }

  /// Writes configuration and state, for cereal.
  void save(core::OutputArchive& archive) const;
  /// Reads configuration and state, for cereal.
  void load(core::InputArchive& archive);

 private:
  friend struct core::Access;
  struct Keys;
  std::string recipe() const;
  void expect_room(std::int64_t key, std::size_t keys, const char* call) const;
  Any* find(std::int64_t key);
  Keys keys_of(const at::Tensor& sample) const;
  void begin(const at::Tensor& sample);
  void take(const at::Tensor& sample);
  void fold_one(std::int64_t key, const at::Tensor& sample);
  void fold_groups(const Keys& keys, const at::Tensor& sample);
  void ask(Pass& /*pass*/) const override {}
  void check_sample(const Pass& pass) const override { check(pass.sample()); }
  void fold(const Pass& pass) override { update(pass.sample()); }

  /// The places of groups, by small keys that came before. A copy has its own groups.
  struct Known {
    std::vector<Any*> groups;

    Known() = default;
    Known(const Known& /*other*/) {}
    Known(Known&&) = default;
    Known& operator=(const Known& /*other*/) {
      groups.clear();
      return *this;
    }
    Known& operator=(Known&&) = default;
  };

  ByOptions options_;
  Any each_;             // without samples
  bool nested_ = false;  // it looks up companions itself
  std::map<std::int64_t, Any> groups_;
  Known known_;
  std::int64_t left_out_ = 0;
};

/// Applies `reduction`, or a callable that folds two tensors, to the rows of each key that comes.
inline By by(std::string name, Any reduction) {
  return {ByOptions(std::move(name)), std::move(reduction)};
}
/// Groups by keys 0 … n - 1.
inline By by(std::string name, std::int64_t n, Any reduction) {
  return {ByOptions(std::move(name), n), std::move(reduction)};
}

}  // namespace torchtap::reductions
