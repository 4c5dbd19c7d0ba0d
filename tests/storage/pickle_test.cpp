// Opcodes, names and zip64 containers that other versions of Python or larger files use, and their damage.
#include <utility>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(pickle)

using namespace torchtap_test;
using torchtap::storage::load_value;
using torchtap::storage::LoadOptions;

namespace {

std::string bytes_of(std::uint64_t number, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xFF);
  return bytes;
}

std::string integer(int number) {
  return "J" + bytes_of(static_cast<std::uint32_t>(number), 4);
}
std::string text(const std::string& text) {
  return "X" + bytes_of(text.size(), 4) + text;
}
std::string name(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
std::string tuple(const std::string& items) {
  return "(" + items + "t";
}
std::string call(const std::string& function, const std::string& arguments) {
  return function + tuple(arguments) + "R";
}
std::string rebuild(const std::string& how, const std::string& arguments) {
  return call(name("torch._utils", how), arguments);
}

/// The record data/0 as `elements` of a storage.
std::string storage(const std::string& storage, int elements) {
  return tuple(text("storage") + storage + text("0") + text("cpu") + integer(elements)) + "Q";
}
const std::string kDoubles = storage(name("torch", "DoubleStorage"), 4);
const std::string kBytes = storage(name("torch.storage", "UntypedStorage"), 32);
const std::string kHooks = call(name("collections", "OrderedDict"), "");

/// Offset, shape and strides of a vector.
std::string vector(int size) {
  return integer(0) + tuple(integer(size)) + tuple(integer(1));
}
/// The rest of the arguments of `_rebuild_tensor_v2` and `…_v3`, without metadata.
const std::string kRest = "\x89" + kHooks;

struct Files {
  TemporaryDirectory directory;

  Value load(const std::string& pickled, const LoadOptions& options = {}) const {
    return load_value(minimal_file(directory, "\x80\x02" + pickled + "."), options);
  }
  void refuses(const std::string& pickled, const std::vector<std::string>& parts) const {
    auto all = parts;
    all.push_back("crafted.pt");
    BOOST_CHECK_EXCEPTION(load(pickled), c10::ValueError, says(all));
  }
};

at::Tensor doubles(at::ArrayRef<double> numbers) {
  return at::tensor(numbers, at::kDouble);
}
at::Tensor number(std::int64_t number) {
  return at::scalar_tensor(number, at::TensorOptions(at::kLong));
}

}  // namespace

BOOST_FIXTURE_TEST_CASE(tensors_of_all_versions_of_torch, Files) {
  const at::Tensor all = doubles({1, 2, 3, 4});
  BOOST_TEST(same(load(rebuild("_rebuild_tensor", kDoubles + vector(4))).tensor(), all));
  BOOST_TEST(same(load(rebuild("_rebuild_tensor_v2", kDoubles + vector(4) + kRest)).tensor(), all));
  const std::string third = kBytes + vector(4) + kRest + name("torch", "float64");
  BOOST_TEST(same(load(rebuild("_rebuild_tensor_v3", third)).tensor(), all));
  // A subclass of a tensor, with attributes.
  BOOST_TEST(same(load(call(name("torch._tensor", "_rebuild_from_type_v2"),
                            name("torch._utils", "_rebuild_tensor_v2") + name("torch", "Tensor") +
                                tuple(kDoubles + vector(4) + kRest) + "}"))
                      .tensor(),
                  all));

  // Negative and conjugate views.
  const auto flagged = [](const char* flag) { return "}" + text(flag) + "\x88s"; };
  BOOST_TEST(same(load(rebuild("_rebuild_tensor_v2", kDoubles + vector(4) + kRest + flagged("neg"))).tensor(),
                  -all));
  BOOST_TEST(same(
      load(rebuild("_rebuild_tensor_v2", kDoubles + vector(4) + kRest + flagged("conj"))).tensor(), all));
  BOOST_TEST(same(load(rebuild("_rebuild_tensor_v3", third + flagged("neg"))).tensor(), -all));
  const std::string complex = storage(name("torch", "ComplexDoubleStorage"), 2);
  BOOST_TEST(same(load(rebuild("_rebuild_tensor_v2", complex + vector(2) + kRest + flagged("conj"))).tensor(),
                  at::complex(doubles({1, 3}), doubles({-2, -4}))));
}

BOOST_FIXTURE_TEST_CASE(false_arguments_of_tensors_are_errors, Files) {
  for (const char* how : {"_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3"})
    refuses(rebuild(how, kDoubles + integer(0)), {how, "is given 2 arguments"});
  refuses(rebuild("_rebuild_tensor_v3", kBytes + vector(4) + kRest + text("float64")), {"damaged"});
  refuses(rebuild("_rebuild_tensor_v3", kDoubles + vector(4) + kRest + name("torch", "float32")),
          {"damaged"});
  refuses(rebuild("_rebuild_tensor_v2", kBytes + vector(4) + kRest), {"without a dtype"});
  refuses(rebuild("_rebuild_tensor", integer(1) + vector(4)), {"damaged"});
  refuses(call(name("torch._tensor", "_rebuild_from_type_v2"),
               name("torch._utils", "_rebuild_tensor_v2") + integer(1) + tuple(kDoubles + vector(4))),
          {"damaged"});
  refuses(call(integer(1), ""), {"damaged"});
  refuses(name("torch", "Size") + "]R", {"damaged"});
  refuses(tuple(text("storage")) + "Q", {"damaged"});
  refuses(tuple(text("shelf") + name("torch", "DoubleStorage") + text("0") + text("cpu") + integer(4)) + "Q",
          {"damaged"});
}

BOOST_FIXTURE_TEST_CASE(ordered_dicts_may_be_made_of_pairs, Files) {
  const auto ordered = [](const std::string& pairs) {
    return call(name("collections", "OrderedDict"), pairs);
  };
  const std::string pair = tuple(text("b") + integer(2));
  const Value dict = load(ordered("](" + pair + tuple(text("a") + integer(1)) + "e"));
  BOOST_TEST(same(dict, Value(Value::Dict{{"b", Value(number(2))}, {"a", Value(number(1))}})));
  refuses(ordered(integer(1)), {"damaged"});
  refuses(ordered("](" + tuple(text("b")) + "e"), {"damaged"});
}

BOOST_FIXTURE_TEST_CASE(a_key_of_another_kind_is_named, Files) {
  for (const auto& [key, kind] : std::vector<std::pair<std::string, std::string>>{
           {"N", "None"},
           {"\x88", "a bool"},
           {"G" + std::string(8, '\0'), "a float"},
           {"C\1a", "bytes"},
           {"B" + bytes_of(1, 4) + "a", "bytes"},
           {"\x8e" + bytes_of(1, 8) + "a", "bytes"},
           {")", "a tuple"},
           {"]", "a list"},
           {"}", "a dict"},
           {name("torch", "Size"), "a class or function"},
           {kDoubles, "a storage"},
           {rebuild("_rebuild_tensor", kDoubles + vector(4)), "a tensor"}}) {
    refuses("}" + key + integer(1) + "s", {"with " + kind + " for a key"});
    const Value dict = load("}" + key + integer(1) + "s", LoadOptions().foreign(true));
    BOOST_TEST(dict.dict().at(0).first == "<" + kind + ">");
  }
  const Value dict = load("}" + name("sklearn", "Scaler") + integer(1) + "s", LoadOptions().foreign(true));
  BOOST_TEST(dict.dict().at(0).first == "<an object>");
}

BOOST_FIXTURE_TEST_CASE(all_opcodes_of_protocols_two_to_five, Files) {
  const auto is = [&](const std::string& pickled, std::int64_t expected) {
    BOOST_TEST(same(load(pickled).tensor(), number(expected)));
  };
  is(integer(7) + "2" + "0", 7);                                         // DUP, POP
  is("(" + integer(1) + integer(2) + "1" + integer(3), 3);               // POP_MARK
  is("\x8b" + bytes_of(2, 4) + bytes_of(0xFFFE, 2), -2);                 // LONG4
  is(integer(5) + "r" + bytes_of(300, 4) + "0j" + bytes_of(300, 4), 5);  // LONG_BINPUT, LONG_BINGET
  is("\x95" + bytes_of(5, 8) + integer(4), 4);                           // FRAME
  BOOST_TEST(load("\x8d" + bytes_of(3, 8) + "abc").text() == "abc");     // BINUNICODE8
  BOOST_TEST(load("T" + bytes_of(3, 4) + "abc").text() == "abc");        // BINSTRING
  BOOST_TEST(same(load("(" + text("a") + integer(1) + "d"), Value(Value::Dict{{"a", Value(number(1))}})));
  BOOST_TEST(load("(" + integer(1) + integer(2) + "l").list().size() == 2u);
  BOOST_TEST(same(load("]" + integer(1) + "a"), Value(std::vector<at::Tensor>{number(1)})));
  const std::string stacked = text("collections") + text("OrderedDict") + "\x93";
  BOOST_TEST(load(stacked + ")R").dict().empty());

  refuses("0", {"damaged"});
  refuses("1", {"damaged"});
  refuses("(" + text("a") + "d", {"damaged"});
  refuses(integer(1) + integer(2), {"damaged"});
  refuses("h\7", {"damaged"});
  refuses("\x80\6", {"newer than 5"});
  refuses(integer(1) + integer(2) + "\x93", {"damaged"});
  refuses(kHooks + ")}\x92", {"damaged"});
  refuses("\x8a\11" + std::string(9, '\1'), {"more than 64 bits"});
  refuses("]" + integer(1) + integer(2) + "s", {"damaged"});
}

BOOST_FIXTURE_TEST_CASE(objects_of_other_classes_are_named_where_they_may_be, Files) {
  const std::string scaler = name("sklearn", "Scaler");
  const auto text_of = [&](const std::string& object) {
    return load("}" + text("a") + object + "s", LoadOptions().foreign(true)).dict().at(0).second.text();
  };
  BOOST_TEST(text_of(call(scaler, "")) == "<sklearn.Scaler>");
  BOOST_TEST(text_of(scaler + ")}\x92") == "<sklearn.Scaler>");
  BOOST_TEST(text_of("C\1a") == "<bytes>");
  refuses("}" + text("a") + call(scaler, "") + "s", {"sklearn.Scaler"});
  refuses("}" + text("a") + name("torch._utils", "_rebuild_qtensor") + "s", {"dequantize()"});
  refuses("}" + text("a") + name("torch", "float4_e9m9") + "s",
          {"LibTorch " TORCH_VERSION " has no such dtype"});
  refuses("}" + text("a") + name("__torch__.m", "Net") + "s", {"torch::jit::load"});
  refuses("C\1a", {"bytes"});
}

BOOST_FIXTURE_TEST_CASE(quantized_and_sparse_tensors_are_their_parts_where_objects_are_named, Files) {
  const auto parts_of = [&](const std::string& object) {
    return load("}" + text("a") + object + "s", LoadOptions().foreign(true)).dict().at(0).second;
  };
  const auto keys_of = [](const Value& value) {
    std::string keys;
    for (const auto& [key, item] : value.dict()) keys += key + " ";
    return keys;
  };
  const auto of_storage = [](const std::string& kind) { return storage(name("torch", kind), 4) + vector(4); };
  const std::string vector_of_doubles = rebuild("_rebuild_tensor_v2", kDoubles + vector(4) + kRest);
  const auto per_tensor = [&](const std::string& kind) {
    return rebuild("_rebuild_qtensor",
                   of_storage(kind) +
                       tuple(name("torch", "per_tensor_affine") + vector_of_doubles + integer(7)) + kRest);
  };
  for (const auto& [kind, type] :
       {std::pair("QInt8Storage", at::kChar), std::pair("QUInt8Storage", at::kByte),
        std::pair("QInt32Storage", at::kInt)}) {
    const Value parts = parts_of(per_tensor(kind));
    BOOST_TEST(keys_of(parts) == "scheme int_repr scale zero_point ");
    BOOST_TEST(parts.at("scheme").text() == "torch.per_tensor_affine");
    BOOST_TEST(parts.at("int_repr").tensor().scalar_type() == type);
    BOOST_TEST(parts.at("int_repr").tensor().numel() == 4);
    BOOST_TEST(same(parts.at("zero_point").tensor(), number(7)));
  }
  BOOST_TEST(parts_of(per_tensor("QUInt4x2Storage")).text() == "<torch._utils._rebuild_qtensor>");
  const std::string axis = vector_of_doubles + vector_of_doubles + integer(0);
  BOOST_TEST(keys_of(parts_of(rebuild(
                 "_rebuild_qtensor",
                 of_storage("QInt8Storage") + tuple(name("torch", "per_channel_affine") + axis) + kRest))) ==
             "scheme int_repr scale zero_point axis ");
  const auto layout = [](const std::string& layout) {
    return call(name("torch.serialization", "_get_layout"), text(layout));
  };
  const std::string size = call(name("torch", "Size"), tuple(integer(4)));
  const Value coo = parts_of(call(
      name("torch.nn.parameter", "Parameter"),
      rebuild("_rebuild_sparse_tensor", layout("torch.sparse_coo") + tuple(axis + "0" + size + "\x88"))));
  BOOST_TEST(keys_of(coo) == "layout indices values size ");
  BOOST_TEST(coo.at("layout").text() == "torch.sparse_coo");
  const Value csr =
      parts_of(rebuild("_rebuild_sparse_csr_tensor",
                       layout("torch.sparse_csr") + tuple(axis + "0" + vector_of_doubles + size)));
  BOOST_TEST(keys_of(csr) == "layout compressed_indices plain_indices values size ");

  for (const std::string& damage :
       {rebuild("_rebuild_sparse_tensor", layout("torch.sparse_coo")),
        rebuild("_rebuild_sparse_tensor", layout("torch.sparse_coo") + tuple(integer(1))),
        rebuild("_rebuild_sparse_tensor", layout("torch.sparse_coo") + integer(1)),
        rebuild("_rebuild_qtensor", of_storage("QInt8Storage")),
        rebuild("_rebuild_qtensor", of_storage("QInt8Storage") + tuple(integer(1))),
        rebuild("_rebuild_qtensor", of_storage("QInt8Storage") + integer(1))}) {
    BOOST_CHECK_THROW(parts_of(damage), c10::ValueError);
  }
  refuses("}" + text("a") + per_tensor("QInt8Storage") + "s", {"dequantize()"});
  refuses("}" + text("a") + name("torch._utils", "_rebuild_sparse_tensor") + "s", {"to_dense()"});
}

BOOST_FIXTURE_TEST_CASE(containers_with_zip64_directories, Files) {
  const std::string path = minimal_file(directory, "\x80\x02" + integer(7) + ".");
  const std::string good = read_bytes(path);
  const std::size_t end = good.rfind("PK\5\6");
  const auto field = [&](std::size_t at, int size) {
    std::uint64_t value = 0;
    for (int i = size; i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(good[at + static_cast<std::size_t>(i)]);
    return value;
  };
  const std::uint64_t count = field(end + 10, 2), size = field(end + 12, 4), start = field(end + 16, 4);
  const auto loads = [&](const std::string& bytes) {
    write_bytes(path, bytes);
    return load_value(path).tensor();
  };
  const auto fails = [&](const std::string& bytes, const std::string& why) {
    write_bytes(path, bytes);
    BOOST_CHECK_EXCEPTION(load_value(path), c10::ValueError, says({"crafted.pt", why}));
  };

  // The end of the directory in 64 bits.
  const auto with_end = [&](const std::string& sign, std::uint64_t at) {
    return good.substr(0, end) + sign + bytes_of(44, 8) + bytes_of(45, 2) + bytes_of(45, 2) + bytes_of(0, 8) +
           bytes_of(count, 8) + bytes_of(count, 8) + bytes_of(size, 8) + bytes_of(start, 8) + "PK\6\7" +
           bytes_of(0, 4) + bytes_of(at, 8) + bytes_of(1, 4) + "PK\5\6" + bytes_of(0, 4) +
           std::string(4, '\xFF') + std::string(8, '\xFF') + bytes_of(0, 2);
  };
  BOOST_TEST(same(loads(with_end("PK\6\6", end)), number(7)));
  fails(with_end("PK\6\5", end), "zip64 directory is damaged");
  fails(with_end("PK\6\6", end + 1), "zip64 directory is damaged");

  // The sizes and the place of the first record in 64 bits.
  const std::size_t entry = start, extra_at = entry + 46 + field(entry + 28, 2);
  BOOST_TEST_REQUIRE(field(entry + 30, 2) == 0u);
  const auto with_extra = [&](const std::string& extra) {
    std::string bytes = good;
    bytes.replace(end + 12, 4, bytes_of(size + extra.size(), 4));
    bytes.insert(extra_at, extra);
    bytes.replace(entry + 20, 8, std::string(8, '\xFF'));
    bytes.replace(entry + 42, 4, std::string(4, '\xFF'));
    bytes.replace(entry + 30, 2, bytes_of(extra.size(), 2));
    return bytes;
  };
  const std::string fields = bytes_of(field(entry + 24, 4), 8) + bytes_of(field(entry + 20, 4), 8) +
                             bytes_of(field(entry + 42, 4), 8);
  const std::string unknown = bytes_of(0x7075, 2) + bytes_of(2, 2) + "ab";
  BOOST_TEST(same(loads(with_extra(bytes_of(1, 2) + bytes_of(24, 2) + fields)), number(7)));
  BOOST_TEST(same(loads(with_extra(unknown + bytes_of(1, 2) + bytes_of(24, 2) + fields)), number(7)));
  fails(with_extra(bytes_of(1, 2) + bytes_of(16, 2) + fields.substr(0, 16)), "damaged zip64 header");
  fails(with_extra(bytes_of(1, 2) + bytes_of(99, 2) + fields), "damaged header");
}

BOOST_FIXTURE_TEST_CASE(damaged_headers_and_descriptors_of_records, Files) {
  const std::string path = minimal_file(directory, "\x80\x02" + integer(7) + ".");
  const std::string good = read_bytes(path);
  const std::size_t local = good.find("PK\3\4", good.find("data/0") + 1);  // of data.pkl
  std::size_t central = good.find("PK\1\2");
  central = good.find("PK\1\2", central + 1);
  BOOST_TEST_REQUIRE(good.substr(central + 46, 16) == "archive/data.pkl");
  std::string bytes = good;
  bytes[local] = 'X';
  write_bytes(path, bytes);
  BOOST_CHECK_EXCEPTION(load_value(path), c10::ValueError, says({"data.pkl", "damaged header"}));
  bytes = good;
  bytes.replace(local + 14, 4, std::string(4, '\0'));  // no checksum before the data or in the directory,
  bytes.replace(central + 16, 4, std::string(4, '\0'));
  bytes[local + 6] = 8;  // but, it says, behind the data
  write_bytes(path, bytes);
  BOOST_CHECK_EXCEPTION(load_value(path), c10::ValueError, says({"data.pkl", "damaged descriptor"}));
}

BOOST_AUTO_TEST_SUITE_END()
