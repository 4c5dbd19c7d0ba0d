// Values in single `.pt` files: round trips, refused values and damaged files.
#include <torch/csrc/jit/serialization/pickle.h>

#include <cstring>

#include <torchtap/base/crc32.hpp>
#include <torchtap/base/disk.hpp>
#include <torchtap/storage/detail/pickle.hpp>
#include <torchtap/storage/detail/zip.hpp>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(file)

using namespace torchtap_test;
using torchtap::storage::load_value;
using torchtap::storage::save_value;
using torchtap::storage::SaveOptions;

namespace {

Value round_trip(const TemporaryDirectory& directory, const Value& value) {
  const std::string path = directory / "round.pt";
  save_value(path, value, SaveOptions().overwrite(true).sync(false));
  return load_value(path);
}

const std::vector<at::ScalarType> kDtypes{at::kByte, at::kChar,     at::kShort,        at::kInt,
                                          at::kLong, at::kHalf,     at::kFloat,        at::kDouble,
                                          at::kBool, at::kBFloat16, at::kComplexFloat, at::kComplexDouble};

/// 0, 1, 2 … as any dtype.
at::Tensor counting(at::IntArrayRef shape, at::ScalarType dtype) {
  std::int64_t size = 1;
  for (const auto extent : shape) size *= extent;
  return at::arange(size, at::kLong).view(shape).to(dtype);
}

/// The pickle of a float64 tensor over the record data/0.
std::string tensor_pickle(int numel, int offset, int size, int stride) {
  const auto k = [](int n) {
    std::string text = "J";
    for (int i = 0; i < 4; ++i) text += static_cast<char>((n >> (8 * i)) & 0xFF);
    return text;
  };
  const auto x = [](const std::string& s) {
    return std::string("X") + static_cast<char>(s.size()) + std::string(3, '\0') + s;
  };
  return "\x80\x02" + std::string("ctorch._utils\n_rebuild_tensor_v2\n((") + x("storage") +
         "ctorch\nDoubleStorage\n" + x("0") + x("cpu") + k(numel) + "tQ" + k(offset) + k(size) + "\x85" +
         k(stride) + "\x85" + "\x89" + "ccollections\nOrderedDict\n)RtR.";
}

}  // namespace

BOOST_AUTO_TEST_CASE(crc32_is_that_of_zip_files) {
  using torchtap::base::crc32;
  BOOST_TEST(crc32(0, "123456789", 9) == 0xCBF43926u);
  const std::string text(1000, 'x');
  BOOST_TEST(crc32(crc32(0, text.data(), 37), text.data() + 37, 963) == crc32(0, text.data(), 1000));
  // The same with and without libdeflate, for any length and offset.
  const at::Tensor noise = at::randint(256, {5000}, at::TensorOptions(at::kByte));
  const auto* bytes = static_cast<const char*>(noise.data_ptr());
  for (std::size_t at = 0; at < 20; ++at) {
    for (std::size_t size : {0, 1, 15, 16, 17, 63, 64, 65, 1000, 4980}) {
      BOOST_TEST(crc32(7, bytes + at, size) == torchtap::base::crc32_portable(7, bytes + at, size));
    }
  }
}

BOOST_AUTO_TEST_CASE(every_kind_of_value_comes_back) {
  const TemporaryDirectory directory;
  std::vector<Value> values{
      Value(),
      Value(at::ones({2, 3})),
      Value(Value::List{}),
      Value(Value::Dict{}),
      Value(std::vector<at::Tensor>{at::ones({1})}),
      Value(Value::Dict{{"one", Value(at::ones({1}))}}),
      Value(Value::List{Value(), Value(Value::List{}), Value(Value::Dict{{"", Value()}})}),
      Value(
          Value::Dict{{"ключ \"quoted\"\n", Value(std::vector<at::Tensor>{at::ones({2}), at::zeros({0, 3})})},
                      {"inner", Value(Value::Dict{{"a", Value(at::scalar_tensor(3))}})}}),
      Value(at::full({3}, std::numeric_limits<double>::quiet_NaN())),
      Value(at::randn({300, 1000})),
  };
  for (const auto dtype : kDtypes) {
    values.emplace_back(counting({2, 3}, dtype));
    values.emplace_back(counting({}, dtype));
    values.emplace_back(counting({0, 4}, dtype));
    values.emplace_back(counting({4, 6}, dtype).t());
    values.emplace_back(counting({4, 6}, dtype).slice(1, 1, 6, 2).select(0, 2));
    values.emplace_back(counting({3, 1}, dtype).expand({3, 4}));
  }
  values.emplace_back(at::randn({3, 4}, at::kComplexFloat).conj());
  values.emplace_back(at::imag(at::randn({3, 4}, at::kComplexFloat).conj()));
  for (const auto& value : values) BOOST_TEST(same(round_trip(directory, value), value), value.describe());
}

// Larger than the pieces in which checksums are computed during reading and writing.
BOOST_AUTO_TEST_CASE(large_tensors_keep_their_checksums) {
  const TemporaryDirectory directory;
  const std::string path = directory / "large.pt";
  const at::Tensor large = at::rand({5'000'001});
  save_value(path, Value(std::vector<at::Tensor>{large, large.narrow(0, 0, 300'000) + 1}),
             SaveOptions().sync(false));
  BOOST_TEST(same(load_value(path).tensors()[0], large));
  BOOST_TEST(same(load_value(path).tensors()[1], large.narrow(0, 0, 300'000) + 1));
  python(directory, R"(
import torch, zipfile
assert zipfile.ZipFile("large.pt").testzip() is None
a, b = torch.load("large.pt", weights_only=True)
assert torch.equal(a[:300000] + 1, b)
)");
  std::string bytes = read_bytes(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_bytes(path, bytes);
  BOOST_CHECK_EXCEPTION(load_value(path), c10::ValueError, says({"does not match its checksum"}));
}

BOOST_AUTO_TEST_CASE(mapped_tensors_equal_those_of_the_file_and_outlive_it) {
  using torchtap::storage::LoadOptions;
  const TemporaryDirectory directory;
  const std::string path = directory / "mapped.pt";
  const at::Tensor one = at::rand({1000, 3}), two = at::arange(7, at::kByte);
  save_value(path,
             Value(Value::Dict{{"one", Value(one)}, {"two", Value(two)}, {"none", Value(at::empty({0}))}}));
  const std::string before = read_bytes(path);
  const auto maps = [&] {
    std::ifstream stream("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(stream, line);) count += line.find("mapped.pt") != std::string::npos;
    return count;
  };
  {
    const Value value = load_value(path, LoadOptions().mmap(true));
    BOOST_TEST(maps() == 2u);
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(value.at("one").tensor().data_ptr()) % 64 == 0u);
    BOOST_TEST(same(value.at("one").tensor(), one));
    BOOST_TEST(same(value.at("two").tensor(), two));
    BOOST_TEST(value.at("none").tensor().numel() == 0);
    value.at("one").tensor().fill_(-1);  // does not change the file
    BOOST_TEST(read_bytes(path) == before);
    BOOST_TEST(same(load_value(path).at("one").tensor(), one));
    const at::Tensor view = value.at("two").tensor().slice(0, 2);
    fs::remove(path);
    BOOST_TEST(same(view, two.slice(0, 2)));
  }
  BOOST_TEST(maps() == 0u);
  // The same for a file of Python and for a recording.
  python(directory, "import torch; torch.save([torch.arange(5.), torch.ones(2)], 'python.pt')");
  BOOST_TEST(same(load_value(directory / "python.pt", LoadOptions().mmap(true)).tensors()[0],
                  at::arange(5, at::kFloat)));
  const auto recording = torchtap::storage::load(directory / "python.pt", LoadOptions().mmap(true));
  BOOST_TEST(same(recording.at(0).tensors()[1], at::ones({2})));
}

BOOST_AUTO_TEST_CASE(an_undefined_tensor_is_nothing_and_gradients_are_not_saved) {
  const TemporaryDirectory directory;
  const Value loaded = round_trip(directory, Value(std::vector<at::Tensor>{at::Tensor(), at::ones({2})}));
  BOOST_TEST(loaded.list()[0].is_none());
  const at::Tensor leaf = at::ones({2}).requires_grad_(true);
  const at::Tensor computed = leaf * 2;
  BOOST_TEST(!round_trip(directory, Value(leaf)).tensor().requires_grad());
  BOOST_TEST(same(round_trip(directory, Value(computed)).tensor(), computed.detach()));
}

BOOST_AUTO_TEST_CASE(a_view_is_saved_without_the_rest_of_its_storage) {
  const TemporaryDirectory directory;
  const at::Tensor storage = at::randn({1000000});
  save_value(directory / "view.pt", Value(storage.slice(0, 5, 8)));
  BOOST_TEST(fs::file_size(directory / "view.pt") < 10000u);
  // A tensor in two places is written once; another view of the same storage is written separately.
  const at::Tensor big = storage.slice(0, 0, 1000);
  save_value(directory / "twice.pt", Value(std::vector<at::Tensor>{big, big, storage.slice(0, 1, 1001)}));
  BOOST_TEST(fs::file_size(directory / "twice.pt") < 10000u);
  const auto loaded = load_value(directory / "twice.pt").tensors();
  BOOST_TEST(same(loaded[1], big));
  BOOST_TEST(same(loaded[2], storage.slice(0, 1, 1001)));
}

BOOST_AUTO_TEST_CASE(values_that_a_file_cannot_hold_are_refused_by_name) {
  const TemporaryDirectory directory;
  const std::string path = directory / "x.pt";
  BOOST_CHECK_EXCEPTION(save_value(path, Value(Value::Dict{{"w", Value(at::eye(3).to_sparse())}})),
                        c10::TypeError, says({"save_value", "[\"w\"]", "to_dense()"}));
  BOOST_CHECK_EXCEPTION(save_value(path, Value(at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQInt8))),
                        c10::TypeError, says({"dequantize()"}));
  BOOST_CHECK_EXCEPTION(save_value(path, Value(at::empty({2}, at::TensorOptions(at::kMeta)))), c10::TypeError,
                        says({"meta"}));
  BOOST_CHECK_EXCEPTION(save_value(path, Value(Value::Dict{{"a", Value()}, {"a", Value()}})), c10::ValueError,
                        says({"two entries called \"a\""}));
  BOOST_CHECK_EXCEPTION(save_value(path, Value(Value::Dict{{"\xC3(", Value()}})), c10::ValueError,
                        says({"UTF-8"}));
  Value deep;
  for (int i = 0; i < 101; ++i) deep = Value(Value::List{deep});
  BOOST_CHECK_EXCEPTION(save_value(path, deep), c10::ValueError, says({"nests deeper than 100"}));
  BOOST_TEST(same(round_trip(directory, deep.list()[0]), deep.list()[0]));
  fs::remove(directory / "round.pt");
  BOOST_TEST(names_in(directory.path()).empty());
}

BOOST_AUTO_TEST_CASE(an_existing_file_is_replaced_only_when_asked) {
  const TemporaryDirectory directory;
  const std::string path = directory / "x.pt";
  save_value(path, Value(at::zeros({2})));
  BOOST_CHECK_EXCEPTION(save_value(path, Value(at::ones({2}))), c10::ValueError,
                        says({"exists already", "overwrite(true)"}));
  BOOST_TEST(same(load_value(path).tensor(), at::zeros({2})));
  save_value(path, Value(at::ones({2})), SaveOptions().overwrite(true));
  BOOST_TEST(same(load_value(path).tensor(), at::ones({2})));
  BOOST_CHECK_EXCEPTION(save_value(directory / "a/b/x.pt", Value()), c10::ValueError, says({"mkdir(true)"}));
  save_value(directory / "a/b/x.pt", Value(), SaveOptions().mkdir(true));
  BOOST_TEST(load_value(directory / "a/b/x.pt").is_none());
  BOOST_CHECK_EXCEPTION(save_value(directory / "a", Value(), SaveOptions().overwrite(true)), c10::ValueError,
                        says({"is a directory"}));
  BOOST_CHECK_THROW(save_value("/dev/null", Value(), SaveOptions().overwrite(true)), c10::ValueError);
  BOOST_CHECK_THROW(save_value("/proc/torchtap.pt", Value()), c10::Error);
  BOOST_CHECK_THROW(save_value(path + "/x.pt", Value(), SaveOptions().mkdir(true)), c10::Error);
  BOOST_CHECK_THROW(save_value("", Value()), c10::ValueError);
  // A link is followed: its target is replaced, not the link.
  fs::create_symlink(path, directory / "link.pt");
  save_value(directory / "link.pt", Value(at::full({1}, 7)), SaveOptions().overwrite(true));
  BOOST_TEST(fs::is_symlink(directory / "link.pt"));
  BOOST_TEST(same(load_value(path).tensor(), at::full({1}, 7)));
  BOOST_CHECK_EXCEPTION(save_value(path + "/", Value(), SaveOptions().overwrite(true)), c10::ValueError,
                        says({"ends in a slash"}));
  fs::create_symlink(directory / "nowhere", directory / "dangling.pt");
  BOOST_CHECK_EXCEPTION(save_value(directory / "dangling.pt", Value(), SaveOptions().overwrite(true)),
                        c10::ValueError, says({"symbolic link that leads nowhere"}));
  fs::remove(directory / "dangling.pt");
  BOOST_TEST(same(load_value(path).tensor(), at::full({1}, 7)));
  BOOST_TEST(names_in(directory.path()) == (std::vector<std::string>{"a", "link.pt", "x.pt"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(cpp_readers_and_writers_of_libtorch_agree) {
  const TemporaryDirectory directory;
  const at::Tensor tensor = at::randn({3, 4});
  save_value(directory / "ours.pt", Value(Value::Dict{{"a", Value(std::vector<at::Tensor>{tensor})}}));
  const std::string bytes = read_bytes(directory / "ours.pt");
  const auto theirs = torch::jit::pickle_load({bytes.begin(), bytes.end()});
  BOOST_TEST(same(theirs.toGenericDict().at("a").toListRef()[0].toTensor(), tensor));

  const auto pickled = [&](const c10::IValue& value) {
    const auto saved = torch::jit::pickle_save(value);
    write_bytes(directory / "theirs.pt", std::string(saved.begin(), saved.end()));
    return load_value(directory / "theirs.pt");
  };
  BOOST_TEST(same(pickled(tensor).tensor(), tensor));
  BOOST_TEST(same(pickled(tensor.t()).tensor(), tensor.t()));
  BOOST_TEST(
      same(pickled(c10::List<at::Tensor>({tensor, tensor})), Value(std::vector<at::Tensor>{tensor, tensor})));
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("w", tensor);
  BOOST_TEST(same(pickled(dict), Value(Value::Dict{{"w", Value(tensor)}})));
  BOOST_TEST(same(pickled(c10::List<std::int64_t>({1, -2})),
                  Value(std::vector<at::Tensor>{at::scalar_tensor(1, at::TensorOptions(at::kLong)),
                                                at::scalar_tensor(-2, at::TensorOptions(at::kLong))})));
  BOOST_TEST(same(pickled(c10::ivalue::Tuple::create({tensor, c10::IValue(), 2.5})),
                  Value(Value::List{Value(tensor), Value(),
                                    Value(at::scalar_tensor(2.5, at::TensorOptions(at::kDouble)))})));
}

BOOST_AUTO_TEST_CASE(false_claims_in_a_pickle_are_errors) {
  const TemporaryDirectory directory;
  const auto load = [&](const std::string& pickled) { return load_value(minimal_file(directory, pickled)); };
  BOOST_TEST(same(load(tensor_pickle(4, 1, 2, 2)).tensor(), at::tensor({2.0, 4.0}, at::kDouble)));
  BOOST_TEST(load(tensor_pickle(4, 4, 0, 1)).tensor().numel() == 0);
  BOOST_CHECK_EXCEPTION(load(tensor_pickle(5, 0, 1, 1)), c10::ValueError,
                        says({"claims 5 elements", "32 bytes"}));
  for (const auto& [offset, size, stride] : std::vector<std::tuple<int, int, int>>{
           {0, 5, 1}, {4, 1, 1}, {1, 4, 1}, {0, 2, 4}, {0, INT32_MAX, INT32_MAX}, {5, 0, 1}}) {
    BOOST_CHECK_EXCEPTION(load(tensor_pickle(4, offset, size, stride)), c10::ValueError,
                          says({"crafted.pt", "in a storage of 4 elements"}));
  }
  for (const int negative : {-1, INT32_MIN}) {
    BOOST_CHECK_THROW(load(tensor_pickle(negative, 0, 1, 1)), c10::ValueError);
    BOOST_CHECK_THROW(load(tensor_pickle(4, negative, 1, 1)), c10::ValueError);
    BOOST_CHECK_THROW(load(tensor_pickle(4, 0, negative, 1)), c10::ValueError);
    BOOST_CHECK_THROW(load(tensor_pickle(4, 3, 2, negative)), c10::ValueError);
  }
  const std::string proto = "\x80\x02";
  BOOST_CHECK_EXCEPTION(load(proto + "cos\nsystem\n."), c10::ValueError, says({"os.system"}));
  BOOST_CHECK_EXCEPTION(load(proto + "c__builtin__\neval\nX\1"), c10::ValueError, says({"__builtin__.eval"}));
  BOOST_CHECK_EXCEPTION(load(proto + "cnumpy.core.multiarray\nscalar\n."), c10::ValueError,
                        says({"from_numpy"}));
  BOOST_CHECK_EXCEPTION(load(proto + "]q" + std::string(1, '\0') + "h" + std::string(1, '\0') + "a."),
                        c10::ValueError, says({"holds itself"}));
  std::string laughs = proto + "]";  // thirty lists, each holding the one before twice
  for (char i = 0; i < 30; ++i) laughs += std::string("q") + i + "](h" + i + "h" + i + "e";
  BOOST_CHECK_THROW(load(laughs + "."), c10::ValueError);
  BOOST_CHECK_EXCEPTION(load(proto + std::string(100000, ']') + "."), c10::ValueError, says({"damaged"}));
  std::string nested = proto + std::string(5000, ']') + std::string(4999, 'a') + ".";
  BOOST_CHECK_EXCEPTION(load(nested), c10::ValueError, says({"nests deeper"}));
  BOOST_CHECK_THROW(load(proto), c10::ValueError);
  BOOST_CHECK_THROW(load(""), c10::ValueError);
  BOOST_CHECK_EXCEPTION(load(proto + "ccollections\nOrderedDict\n."), c10::ValueError,
                        says({"class or function"}));
  BOOST_CHECK_EXCEPTION(load(proto + "\x95"), c10::ValueError, says({"too early"}));
}

BOOST_AUTO_TEST_CASE(other_files_are_errors_with_a_reason) {
  const TemporaryDirectory directory;
  BOOST_CHECK_EXCEPTION(load_value(directory / "none.pt"), c10::ValueError,
                        says({"none.pt", "no such file"}));
  BOOST_CHECK_EXCEPTION(load_value(directory.path()), c10::ValueError, says({"is a directory"}));
  const auto load = [&](const std::string& bytes) {
    write_bytes(directory / "x.pt", bytes);
    return load_value(directory / "x.pt");
  };
  BOOST_CHECK_EXCEPTION(load(""), c10::ValueError, says({"x.pt", "is empty"}));
  BOOST_CHECK_EXCEPTION(load("hello"), c10::ValueError, says({"x.pt", "no PyTorch file"}));
  BOOST_CHECK_EXCEPTION(load(std::string(100000, 'x')), c10::ValueError, says({"no PyTorch file"}));
  BOOST_CHECK_THROW(load("PK\5\6" + std::string(18, '\0')), c10::ValueError);
  BOOST_CHECK_THROW(load("PK\5\6" + std::string(18, '\xFF')), c10::ValueError);
  BOOST_TEST(::mkfifo((directory / "pipe").c_str(), 0600) == 0);
  BOOST_CHECK_EXCEPTION(load_value(directory / "pipe"), c10::ValueError, says({"not a regular file"}));
}

// A damaged file loads or throws a c10::Error, and nothing else. Values that still load are read completely.
BOOST_AUTO_TEST_CASE(damaged_bytes_are_errors_and_never_crashes) {
  const TemporaryDirectory directory;
  save_value(
      directory / "good.pt",
      Value(Value::Dict{{"a", Value(std::vector<at::Tensor>{at::ones({3}), at::ones({2, 2}, at::kLong)})},
                        {"b", Value(at::zeros({5}, at::kHalf))}}));
  python(directory, R"(
import torch
torch.save({"w": torch.ones(3, 4).t(), "n": [1, 2.5, None, True], 3: (torch.zeros(2),)}, "python.pt")
)");
  unsigned state = 12345;
  const auto random = [&state](std::size_t below) {
    state = state * 1664525u + 1013904223u;
    return static_cast<std::size_t>(state >> 8) % below;
  };
  std::size_t errors = 0, loaded = 0;
  const auto attempt = [&](const std::string& path) {
    try {
      load_value(path);
      ++loaded;
    } catch (const c10::Error&) {
      ++errors;
    }
  };
  for (const char* name : {"good.pt", "python.pt"}) {
    const std::string good = read_bytes(directory / name);
    const std::string path = directory / "bad.pt";
    for (std::size_t size = 0; size < good.size(); size += 1 + random(7)) {
      write_bytes(path, good.substr(0, size));
      BOOST_CHECK_THROW(load_value(path), c10::ValueError);
    }
    for (int round = 0; round < 4000; ++round) {
      std::string bad = good;
      for (std::size_t flips = 1 + random(3); flips > 0; --flips) {
        bad[random(bad.size())] ^= static_cast<char>(1u << random(8));
      }
      write_bytes(path, bad);
      attempt(path);
    }
    // The container is intact here, so that the damage reaches the unpickler.
    using namespace torchtap::base;
    using namespace torchtap::storage::detail;
    const InputFile input = InputFile::open("test", directory / name);
    const std::string pickled = ZipReader(input).read("data.pkl");
    for (int round = 0; round < 8000; ++round) {
      std::string bad = pickled;
      for (std::size_t edits = 1 + random(4); edits > 0; --edits) {
        const std::size_t at = random(bad.size());
        switch (random(4)) {
          case 0:
            bad[at] = static_cast<char>(random(256));
            break;
          case 1:
            bad[at] ^= static_cast<char>(1u << random(8));
            break;
          case 2:
            bad.erase(at, 1 + random(8));
            break;
          default:
            bad.insert(at, bad.substr(random(bad.size()), random(40)));
        }
        if (bad.empty()) bad = ".";
      }
      attempt(minimal_file(directory, bad));
    }
  }
  BOOST_TEST_MESSAGE(errors << " errors, " << loaded << " loaded");
  BOOST_TEST(errors > 10000u);
}

// A record takes some 250 bytes of the file, and each tensor of a pickle once took a kilobyte of memory.
BOOST_AUTO_TEST_CASE(small_tensors_of_a_list_share_records) {
  const TemporaryDirectory directory;
  constexpr std::int64_t kCount = 20000;
  std::vector<at::Tensor> list;
  for (std::int64_t i = 0; i < kCount; ++i) list.push_back(at::full({4}, i, at::kFloat));
  const at::Tensor twice = at::arange(6, at::kLong), large = at::rand({5000});
  Value::List mixed{Value(twice),
                    Value(twice),
                    Value(twice.slice(0, 1, 6, 2)),
                    Value(),
                    Value(large),
                    Value(twice),
                    Value(at::empty({0, 3})),
                    Value(std::string("text")),
                    Value(at::complex(at::ones({2}), at::ones({2})).conj()),
                    Value(at::ones({3}, at::kBool)),
                    Value(Value::List{Value(at::ones({}))})};
  const std::string path = directory / "list.pt";
  save_value(path, Value(list), SaveOptions().sync(false));
  BOOST_TEST(read_bytes(path).size() < kCount * (4 * sizeof(float) + 100));
  const std::vector<at::Tensor> read = load_value(path).tensors();
  BOOST_REQUIRE(read.size() == list.size());
  std::size_t differ = 0;
  for (std::size_t i = 0; i < read.size(); ++i) differ += read[i].equal(list[i]) ? 0 : 1;
  BOOST_TEST(differ == 0u);
  BOOST_TEST(round_trip(directory, Value(mixed)) == Value(mixed));
  python(directory,
         "import torch\nread = torch.load('list.pt', weights_only=True)\n"
         "assert torch.stack(read).equal(torch.arange(20000.).unsqueeze(1).expand(20000, 4))\n");
  const auto zip = torchtap::base::InputFile::open("test", directory / "round.pt");
  const torchtap::storage::detail::ZipReader records(zip);
  std::size_t count = 0;
  while (records.has("data/" + std::to_string(count))) ++count;
  BOOST_TEST(count == 6u);  // twice with its slice, large, the empty one, complex, bool, the nested one
}

// Nodes of a call's arguments are used again, but not those that a pickle names later.
BOOST_AUTO_TEST_CASE(arguments_of_a_call_that_are_met_again_stay) {
  const TemporaryDirectory directory;
  const std::string tensor = tensor_pickle(4, 1, 2, 2);  // "\x80\x02" … "."
  const std::string body = tensor.substr(2, tensor.size() - 3);
  const auto arguments = body.find('(');
  BOOST_REQUIRE(arguments != std::string::npos);
  const auto among = [&](const std::string& opcodes) {
    return body.substr(0, arguments + 1) + opcodes + body.substr(arguments + 1);
  };
  // [tensor, one among whose arguments a list is made, one among whose arguments it grows, the list, tensor]
  const std::string made = among(
                        "]q\x63"
                        "K\x07"
                        "a0"),
                    grown = among(
                        "h\x63"
                        "K\x08"
                        "a0");
  const Value value =
      load_value(minimal_file(directory, "\x80\x02](" + body + made + grown + "h\x63" + body + "e."));
  BOOST_REQUIRE(value.list().size() == 5u);
  BOOST_REQUIRE(value.list()[3].list().size() == 2u);
  BOOST_TEST(value.list()[3].list()[0].tensor().item<std::int64_t>() == 7);
  BOOST_TEST(value.list()[3].list()[1].tensor().item<std::int64_t>() == 8);
  for (const std::size_t i : {0, 1, 2, 4}) {
    BOOST_TEST(value.list()[i].tensor().equal(at::tensor({2.0, 4.0}, at::kDouble)));
  }
}

BOOST_AUTO_TEST_SUITE_END()
