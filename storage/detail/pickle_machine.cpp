// The opcodes of pickle that torch.save uses.
#include <cstring>
#include <utility>

#include <torchtap/base/error.hpp>
#include <torchtap/base/little_endian.hpp>
#include <torchtap/storage/detail/pickle_machine.hpp>

namespace torchtap::storage::detail {

const char* kind_name(Node::Kind kind) {
  switch (kind) {
    case Node::Kind::mark:
      return "a mark";
    case Node::Kind::none:
      return "None";
    case Node::Kind::boolean:
      return "a bool";
    case Node::Kind::integer:
      return "an int";
    case Node::Kind::real:
      return "a float";
    case Node::Kind::string:
      return "a str";
    case Node::Kind::bytes:
      return "bytes";
    case Node::Kind::tuple:
      return "a tuple";
    case Node::Kind::list:
      return "a list";
    case Node::Kind::dict:
      return "a dict";
    case Node::Kind::global:
      return "a class or function";
    case Node::Kind::storage:
      return "a storage";
    case Node::Kind::tensor:
      return "a tensor";
    case Node::Kind::foreign:
      return "an object";
  }
  return "?";
}

void PickleMachine::bad(const std::string& reason) const {
  file_.bad(reason + " (at byte " + std::to_string(op_at_) + " of data.pkl)");
}

// --- bytes

const char* PickleMachine::take(std::uint64_t size) {
  if (size > bytes_.size() - at_) bad("its pickle ends too early; it is damaged");
  const char* bytes = bytes_.data() + at_;
  at_ += static_cast<std::size_t>(size);
  return bytes;
}

std::uint64_t PickleMachine::little(int size) {
  return base::get_bytes(take(static_cast<std::uint64_t>(size)), size);
}

std::string PickleMachine::text(std::uint64_t size) {
  const char* bytes = take(size);
  return std::string(bytes, static_cast<std::size_t>(size));
}

std::string PickleMachine::line() {
  const auto end = bytes_.find('\n', at_);
  if (end == std::string::npos) bad("its pickle ends too early; it is damaged");
  std::string line = bytes_.substr(at_, end - at_);
  at_ = end + 1;
  return line;
}

std::int64_t PickleMachine::integer_of(std::uint64_t size) {
  if (size > 8) bad("it holds an integer of more than 64 bits");
  const char* bytes = take(size);
  std::uint64_t value = base::get_bytes(bytes, static_cast<int>(size));
  if (size > 0 && size < 8 && (bytes[size - 1] & 0x80) != 0) value |= ~std::uint64_t{0} << (8 * size);
  return static_cast<std::int64_t>(value);
}

/// BINFLOAT is the only big-endian number.
double PickleMachine::real() {
  const char* bytes = take(8);
  std::uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) bits = bits << 8 | static_cast<unsigned char>(bytes[i]);
  double value = 0;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

// --- the stack

Node& PickleMachine::make(Kind kind) {
  Node& node = nodes_.emplace_back();
  node.kind = kind;
  node.number = node.begin = nodes_.size() - 1;
  return node;
}

Node& PickleMachine::foreign(const std::string& name) {
  Node& node = make(Kind::foreign);
  node.text = name;
  return node;
}

void PickleMachine::push_integer(Kind kind, std::int64_t value) {
  Node& node = make(kind);
  node.integer = value;
  push(node);
}

void PickleMachine::push_text(Kind kind, std::string text) {
  Node& node = make(kind);
  node.text = std::move(text);
  push(node);
}

void PickleMachine::push_tuple(std::size_t size) {
  Node& tuple = make(Kind::tuple);
  tuple.items.resize(size);
  for (std::size_t i = size; i-- > 0;) tuple.items[i] = &pop();
  push(tuple);
}

/// Pushes a container of everything above the mark.
void PickleMachine::push_container(Kind kind) {
  auto items = pop_to_mark();
  if (kind == Kind::dict && items.size() % 2 != 0) damaged();
  Node& node = make(kind);
  node.items = std::move(items);
  node.begin = last_mark_;
  push(node);
}

Node& PickleMachine::top() {
  if (stack_.empty() || stack_.back()->kind == Kind::mark) damaged();
  return *stack_.back();
}

Node& PickleMachine::pop() {
  Node& node = top();
  stack_.pop_back();
  return node;
}

std::vector<Node*> PickleMachine::pop_to_mark() {
  std::size_t mark = stack_.size();
  while (mark > 0 && stack_[mark - 1]->kind != Kind::mark) --mark;
  if (mark == 0) damaged();
  std::vector<Node*> items(stack_.begin() + static_cast<std::ptrdiff_t>(mark), stack_.end());
  last_mark_ = stack_[mark - 1]->number;
  stack_.resize(mark - 1);
  return items;
}

void PickleMachine::extend(const std::vector<Node*>& items, Kind kind) {
  Node& container = top();
  if (container.kind == Kind::foreign) return;
  if (container.kind != kind || (kind == Kind::dict && items.size() % 2 != 0)) damaged();
  container.items.insert(container.items.end(), items.begin(), items.end());
  kept_ = nodes_.size();
}

void PickleMachine::memoize(std::uint64_t index) {
  memo_[index] = &top();
  kept_ = nodes_.size();
}

void PickleMachine::recall(std::uint64_t index) {
  const auto entry = memo_.find(index);
  if (entry == memo_.end()) damaged();
  push(*entry->second);
}

/// Replaces the nodes of a call's arguments, from number `begin` on, by the result, a tensor, if no other
/// node can refer to them. In a list of small samples the arguments would take a kilobyte each.
Node& PickleMachine::instead_of_arguments(Node& result, std::size_t begin) {
  if (result.kind != Kind::tensor || &result != &nodes_.back() || begin < kept_) return result;
  Node& node = nodes_[begin];
  node = std::move(result);
  node.number = node.begin = begin;
  nodes_.resize(begin + 1);
  return node;
}

// --- opcodes

Node* PickleMachine::parse() {
  while (true) {
    op_at_ = at_;
    const auto op = static_cast<unsigned char>(*take(1));
    if (op == '.') {
      Node& root = pop();
      if (!stack_.empty()) damaged();
      return &root;
    }
    if (!constant(op) && !build(op)) apply(op);
  }
}

/// Opcodes that push one value; false for any other.
bool PickleMachine::constant(unsigned char op) {
  switch (op) {
    case 'K':
      push_integer(Kind::integer, static_cast<std::int64_t>(little(1)));
      return true;
    case 'M':
      push_integer(Kind::integer, static_cast<std::int64_t>(little(2)));
      return true;
    case 'J':
      push_integer(Kind::integer, integer_of(4));
      return true;
    case 0x8a:    // LONG1
    case 0x8b: {  // LONG4
      const std::uint64_t size = little(op == 0x8a ? 1 : 4);
      if (size > 8 && foreign_) {
        take(size);
        push(foreign("an int of more than 64 bits"));
      } else {
        push_integer(Kind::integer, integer_of(size));
      }
      return true;
    }
    case 0x88:
    case 0x89:
      push_integer(Kind::boolean, op == 0x88 ? 1 : 0);
      return true;
    case 'N':
      push(none_);
      return true;
    case 'G': {  // BINFLOAT
      Node& node = make(Kind::real);
      node.real = real();
      push(node);
      return true;
    }
    case 'X':
    case 'T':  // BINSTRING
      push_text(Kind::string, text(little(4)));
      return true;
    case 'U':   // SHORT_BINSTRING
    case 0x8c:  // SHORT_BINUNICODE
      push_text(Kind::string, text(little(1)));
      return true;
    case 0x8d:
      push_text(Kind::string, text(little(8)));
      return true;
    case 'B':
      push_text(Kind::bytes, text(little(4)));
      return true;
    case 'C':
      push_text(Kind::bytes, text(little(1)));
      return true;
    case 0x8e:
      push_text(Kind::bytes, text(little(8)));
      return true;
    default:
      return false;
  }
}

/// Opcodes that make or fill containers; false for any other.
bool PickleMachine::build(unsigned char op) {
  switch (op) {
    case '(':
      push(make(Kind::mark));
      return true;
    case ')':
      push_tuple(0);
      return true;
    case 0x85:
    case 0x86:
    case 0x87:
      push_tuple(op - 0x84u);
      return true;
    case 't':
      push_container(Kind::tuple);
      return true;
    case 'l':
      push_container(Kind::list);
      return true;
    case 'd':
      push_container(Kind::dict);
      return true;
    case ']':
      push(make(Kind::list));
      return true;
    case '}':
      push(make(Kind::dict));
      return true;
    case 'a': {
      Node& item = pop();
      extend({&item}, Kind::list);
      return true;
    }
    case 'e':
      extend(pop_to_mark(), Kind::list);
      return true;
    case 's': {
      Node& item = pop();
      Node& key = pop();
      extend({&key, &item}, Kind::dict);
      return true;
    }
    case 'u':
      extend(pop_to_mark(), Kind::dict);
      return true;
    default:
      return false;
  }
}

/// Opcodes of the memo and of the stack itself; false for any other.
bool PickleMachine::shuffle(unsigned char op) {
  switch (op) {
    case 'q':
      memoize(little(1));
      return true;
    case 'r':
      memoize(little(4));
      return true;
    case 0x94:
      memoize(memo_.size());
      return true;
    case 'h':
      recall(little(1));
      return true;
    case 'j':
      recall(little(4));
      return true;
    case '0':
      if (stack_.empty()) damaged();
      stack_.pop_back();
      return true;
    case '1':
      pop_to_mark();
      return true;
    case '2':
      push(top());
      return true;
    case 0x80:  // PROTO
      if (little(1) > 5) bad("its pickle protocol is newer than 5");
      return true;
    case 0x95:  // FRAME: the whole pickle is in memory
      little(8);
      return true;
    default:
      return false;
  }
}

/// The remaining opcodes: names, calls and persistent ids.
void PickleMachine::apply(unsigned char op) {
  if (shuffle(op)) return;
  switch (op) {
    case 'c': {
      const std::string module = line();
      push(global(module, line()));
      return;
    }
    case 0x93: {  // STACK_GLOBAL
      const Node& name = pop();
      const Node& module = pop();
      if (name.kind != Kind::string || module.kind != Kind::string) damaged();
      push(global(module.text, name.text));
      return;
    }
    case 0x92: {  // NEWOBJ_EX, with a dict of further arguments
      pop();
      pop();
      const Node& function = pop();
      if (function.kind != Kind::foreign) damaged();
      push(foreign(function.text));
      return;
    }
    case 'R':
    case 0x81: {  // NEWOBJ: for the accepted classes the same as a call
      const Node& arguments = pop();
      const Node& function = pop();
      Node& result = call(function, arguments);
      push(instead_of_arguments(result, arguments.begin));
      return;
    }
    case 'b': {  // attributes, such as the _metadata of a state_dict
      Node& attributes = pop();
      if (top().kind == Kind::dict && top().text == kObject) {
        if (attributes.kind != Kind::dict || !top().items.empty()) damaged();
        top().items.push_back(&attributes);
        kept_ = nodes_.size();
        return;
      }
      if (top().kind != Kind::dict && top().kind != Kind::foreign)
        bad("it sets attributes of " + std::string(kind_name(top().kind)));
      return;
    }
    case 'Q':
      push(persistent(pop()));
      return;
    default: {
      static const char digits[] = "0123456789abcdef";
      bad(std::string("its pickle has the opcode 0x") + digits[op >> 4] + digits[op & 15] +
          ", which torch.save does not write for tensors, lists and dicts");
    }
  }
}

}  // namespace torchtap::storage::detail
