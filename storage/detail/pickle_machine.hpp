#pragma once

/// The stack machine that runs a pickle and makes nodes of its opcodes. A derived class interprets names,
/// calls and persistent ids.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torchtap/base/disk.hpp>
#include <torchtap/base/dtypes.hpp>

namespace torchtap::storage::detail {

/// A value on the stack. The machine owns all nodes, because a pickle can contain reference cycles, which
/// shared_ptr would leak.
struct Node {
  enum class Kind {
    mark,
    none,
    boolean,
    integer,
    real,
    string,
    bytes,
    tuple,
    list,
    dict,
    global,
    storage,
    tensor,
    foreign
  };
  Kind kind = Kind::none;
  std::int64_t integer = 0;  // also a boolean, and how many elements a storage has
  double real = 0;
  std::string text;                    // also the name of a global, and of the class of a foreign object
  std::vector<Node*> items;            // of a dict: key, value, key, value …
  at::Tensor tensor;                   // of a storage: its bytes
  const base::Dtype* dtype = nullptr;  // of a storage, null if it is untyped; of a global, if it is a dtype
  std::size_t number = 0;              // how many were made before it,
  std::size_t begin = 0;               // and before the first of its items
};

/// The text of a dict that is an object: its one item, if it has any, is the dict of its attributes.
constexpr char kObject[] = "object";

/// "a list", "None" …, for messages.
const char* kind_name(Node::Kind kind);

class PickleMachine {
 public:
  PickleMachine(const PickleMachine&) = delete;
  PickleMachine& operator=(const PickleMachine&) = delete;

 protected:
  using Kind = Node::Kind;

  /// `file` is for messages and must outlive the machine. With `foreign`, unknown objects become foreign
  /// objects if the pickle can continue.
  PickleMachine(const base::InputFile& file, std::string bytes, bool foreign)
      : file_(file), bytes_(std::move(bytes)), foreign_(foreign) {}
  virtual ~PickleMachine() = default;

  /// The object that Python calls `module.name`.
  virtual Node& global(const std::string& module, const std::string& name) = 0;
  /// The result of `function(*arguments)`.
  virtual Node& call(const Node& function, const Node& arguments) = 0;
  /// The object behind a persistent id.
  virtual Node& persistent(const Node& id) = 0;

  /// Runs the pickle and returns the value that it leaves on the stack. Throws `c10::ValueError` for a
  /// damaged pickle, or for opcodes that `torch.save` does not use.
  Node* parse();
  /// A node that lives as long as the machine.
  Node& make(Kind kind);
  /// A foreign object of the class called `name`.
  Node& foreign(const std::string& name);
  bool takes_foreign() const noexcept { return foreign_; }
  std::size_t size() const noexcept { return bytes_.size(); }
  const base::InputFile& file() const noexcept { return file_; }
  [[noreturn]] void bad(const std::string& reason) const;
  [[noreturn]] void damaged() const { bad("its pickle is damaged"); }

 private:
  bool constant(unsigned char op);
  bool build(unsigned char op);
  bool shuffle(unsigned char op);
  void apply(unsigned char op);

  const char* take(std::uint64_t size);
  std::uint64_t little(int size);
  std::string text(std::uint64_t size);
  std::string line();
  std::int64_t integer_of(std::uint64_t size);
  double real();

  void push(Node& node) { stack_.push_back(&node); }
  void push_integer(Kind kind, std::int64_t value);
  void push_text(Kind kind, std::string text);
  void push_tuple(std::size_t size);
  void push_container(Kind kind);
  Node& top();
  Node& pop();
  std::vector<Node*> pop_to_mark();
  void extend(const std::vector<Node*>& items, Kind kind);
  void memoize(std::uint64_t index);
  void recall(std::uint64_t index);
  Node& instead_of_arguments(Node& result, std::size_t begin);

  const base::InputFile& file_;
  const std::string bytes_;
  const bool foreign_;
  std::size_t at_ = 0;
  std::size_t op_at_ = 0;
  std::deque<Node> nodes_;
  Node none_;
  std::vector<Node*> stack_;
  std::unordered_map<std::uint64_t, Node*> memo_;
  std::size_t last_mark_ = 0;  // the number of the mark that was taken off last
  std::size_t kept_ = 0;       // nodes of smaller numbers may be met again through others
};

}  // namespace torchtap::storage::detail
