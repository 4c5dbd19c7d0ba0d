// Exchanges `.pt` files with Python in both directions.
#include <torch/serialize/output-archive.h>

#include "support.hpp"

BOOST_AUTO_TEST_SUITE(python_interop)

using namespace torchtap_test;
using torchtap::storage::load_value;
using torchtap::storage::save_value;

BOOST_AUTO_TEST_CASE(python_reads_what_we_write) {
  const TemporaryDirectory directory;
  const std::vector<std::pair<std::string, at::ScalarType>> dtypes{{"uint8", at::kByte},
                                                                   {"int8", at::kChar},
                                                                   {"int16", at::kShort},
                                                                   {"int32", at::kInt},
                                                                   {"int64", at::kLong},
                                                                   {"float16", at::kHalf},
                                                                   {"float32", at::kFloat},
                                                                   {"float64", at::kDouble},
                                                                   {"bool", at::kBool},
                                                                   {"bfloat16", at::kBFloat16},
                                                                   {"complex64", at::kComplexFloat},
                                                                   {"complex128", at::kComplexDouble}};
  for (const auto& [name, dtype] : dtypes) {
    const at::Tensor counting = at::arange(24, at::kLong).view({4, 6}).to(dtype);
    save_value(directory / ("plain_" + name + ".pt"), Value(counting));
    save_value(directory / ("view_" + name + ".pt"), Value(counting.t().slice(0, 1, 6, 2)));
    save_value(directory / ("scalar_" + name + ".pt"), Value(counting[0][1]));
    save_value(directory / ("empty_" + name + ".pt"), Value(counting.slice(0, 0, 0)));
  }
  const at::Tensor z = at::complex(at::arange(3, at::kDouble), at::arange(3, at::kDouble) + 1);
  save_value(directory / "conj.pt", Value(z.conj()));
  save_value(directory / "neg.pt", Value(at::imag(z.conj())));
  save_value(directory / "none.pt", Value());
  save_value(directory / "list.pt",
             Value(std::vector<at::Tensor>{at::ones({2}), at::Tensor(), at::zeros({0})}));
  save_value(directory / "one_list.pt", Value(std::vector<at::Tensor>{at::full({2}, 3)}));
  save_value(directory / "empty_list.pt", Value(Value::List{}));
  save_value(directory / "one_dict.pt", Value(Value::Dict{{"mean", Value(at::full({2}, 3))}}));
  save_value(
      directory / "nested.pt",
      Value(Value::Dict{{"ключ", Value(Value::List{Value(Value::Dict{
                                     {"a", Value(at::scalar_tensor(7, at::TensorOptions(at::kInt)))}})})},
                        {"grad", Value(at::ones({2}).requires_grad_(true) * 2)},
                        {"e", Value(Value::Dict{})}}));
  save_value(directory / "large.pt", Value(at::arange(3000000, at::kInt)));
  const at::Tensor shared = at::arange(70000, at::kInt);
  save_value(directory / "shared.pt", Value(std::vector<at::Tensor>{shared, shared}));
  std::vector<at::Tensor> many;
  for (int i = 0; i < 70000; ++i)
    many.push_back(at::full({1}, i, at::kInt));  // more records than zip32 counts
  save_value(directory / "many.pt", Value(many));
  python(directory, R"(
import os, torch, warnings, zipfile
warnings.simplefilter("error", UserWarning)
load = lambda name: torch.load(name + ".pt", weights_only=True)
def check(got, want):
    assert type(got) is torch.Tensor and got.dtype == want.dtype and got.shape == want.shape, (got, want)
    assert torch.equal(got, want), (got, want)
    assert not got.requires_grad and got.is_contiguous() and got.storage_offset() == 0
    storage = got.untyped_storage() if hasattr(got, "untyped_storage") else got.storage().untyped()  # from 2.0; 1.13
    assert storage.nbytes() == got.numel() * got.element_size(), "the storage holds just the tensor"
for name in "uint8 int8 int16 int32 int64 float16 float32 float64 bool bfloat16 complex64 complex128".split():
    want = torch.tensor([[6 * i + j for j in range(6)] for i in range(4)]).to(getattr(torch, name))
    check(load("plain_" + name), want)
    check(load("view_" + name), want.t()[1::2].contiguous())
    check(load("scalar_" + name), want[0, 1].clone())
    check(load("empty_" + name), want[:0].clone())
z = torch.complex(torch.arange(3.).double(), torch.arange(3.).double() + 1)
check(load("conj"), torch.complex(z.real, -z.imag))
check(load("neg"), -z.imag)
assert load("none") is None
a, b, c = load("list"); check(a, torch.ones(2)); assert b is None; check(c, torch.zeros(0))
one = load("one_list"); assert type(one) is list and len(one) == 1; check(one[0], torch.full((2,), 3))
assert load("empty_list") == []
one = load("one_dict"); assert type(one) is dict and list(one) == ["mean"]; check(one["mean"], torch.full((2,), 3))
nested = load("nested"); assert list(nested) == ["ключ", "grad", "e"] and nested["e"] == {}
check(nested["ключ"][0]["a"], torch.tensor(7, dtype=torch.int32)); check(nested["grad"], torch.full((2,), 2.))
check(load("large"), torch.arange(3000000, dtype=torch.int32))
a, b = load("shared"); check(a, torch.arange(70000, dtype=torch.int32)); check(b, a)
assert os.path.getsize("shared.pt") < 70000 * 4 + 5000
many = load("many"); assert len(many) == 70000 and all(t.item() == i for i, t in enumerate(many))
for name in os.listdir("."):
    if name.endswith(".pt") and name != "many.pt":
        assert zipfile.ZipFile(name).testzip() is None, name
        loaded = torch.load(name, weights_only=False)  # the unrestricted reader, too
)");
  BOOST_TEST(load_value(directory / "many.pt").list().size() == 70000u);
  BOOST_TEST(same(load_value(directory / "large.pt").tensor(), at::arange(3000000, at::kInt)));
}

BOOST_AUTO_TEST_CASE(we_read_what_python_writes) {
  const TemporaryDirectory directory;
  python(directory, R"(
import collections, os, torch
torch.manual_seed(0)
t = torch.arange(12.).view(3, 4)
d = dict(
  tensor=t, view=t.t()[1:, 1:], flipped_slice=t[:, ::2], expanded=torch.ones(3, 1).expand(3, 4),
  bf16=t.bfloat16(), half=t.half(), cplx=torch.complex(t, t + 1), boolean=t > 5, scalar=torch.tensor(2.5),
  empty=torch.zeros(0, 3), int64=torch.arange(3), parameter=torch.nn.Parameter(t), grad=t.clone().requires_grad_(),
  list=[t, t + 1], one_list=[t], empty_list=[], tuple=(t, t + 1), one_tuple=(t,), triple=(t, t, t), empty_dict={},
  dict={"a": t, "b": {"c": [t]}}, one_dict={"mean": t}, int_keys={0: t, 10: t + 1},
  ordered=collections.OrderedDict(a=t, b=t + 1), none=None, none_list=[None, t],
  numbers=[True, 3, -5, 2.5, 70000, 2**40, -2**40], large_list=[torch.tensor(float(i)) for i in range(3000)],
  state_dict=torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).state_dict(),
  attributes=t.clone(),
)
d["attributes"].note = [1]
for name, value in d.items():
    torch.save(value, name + ".pt")
with torch.no_grad():
    reference = torch.nn.Linear(2, 3)
for protocol in (2, 3, 4, 5):
    torch.save({"a": [t, 300], "l": [t] * 300}, f"protocol{protocol}.pt", pickle_protocol=protocol)
torch.save(t, "legacy.pt", _use_new_zipfile_serialization=False)
torch.save({"epoch": {"name": "resnet"}}, "text.pt")
torch.save(t.to_sparse(), "sparse.pt")
torch.save(torch.quantize_per_tensor(t, 0.1, 0, torch.qint8), "quantized.pt")
torch.save(torch.nn.Linear(1, 1), "module.pt")
torch.save({(1, 2): t}, "tuple_key.pt")
torch.save({1: t, "1": t}, "same_key.pt")
torch.save(t.numpy(), "numpy.pt")
torch.save([2**70], "huge_int.pt")
shared = torch.zeros(4); torch.save([shared[:2], shared[1:]], "shared.pt")
torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), "script.pt")
if hasattr(torch, "uint16"): torch.save(torch.arange(3).to(torch.uint16), "uint16.pt")
conj = torch.complex(t, t + 1).conj()
torch.save(conj, "conj.pt")
if not torch.equal(torch.load("conj.pt"), conj): os.remove("conj.pt")  # 1.13 writes it without the flag
)");
  const at::Tensor t = at::arange(12, at::kFloat).view({3, 4});
  const auto load = [&](const std::string& name) { return load_value(directory / (name + ".pt")); };
  const auto is = [&](const std::string& name, const Value& want) {
    BOOST_TEST_CONTEXT(name) {
      BOOST_TEST(same(load(name), want));
    }
  };
  const auto list = [](std::vector<at::Tensor> tensors) { return Value(tensors); };
  is("tensor", Value(t));
  BOOST_TEST(same(load("view").tensor(), t.t().slice(0, 1).slice(1, 1)));
  BOOST_TEST(load("view").tensor().strides() == (at::IntArrayRef{1, 4}));
  is("flipped_slice", Value(t.slice(1, 0, 4, 2)));
  is("expanded", Value(at::ones({3, 4})));
  is("bf16", Value(t.to(at::kBFloat16)));
  is("half", Value(t.to(at::kHalf)));
  is("cplx", Value(at::complex(t, t + 1)));
  if (fs::exists(directory / "conj.pt")) is("conj", Value(at::complex(t, -(t + 1))));
  is("boolean", Value(t > 5));
  is("scalar", Value(at::scalar_tensor(2.5)));
  is("empty", Value(at::zeros({0, 3})));
  is("int64", Value(at::arange(3, at::kLong)));
  is("parameter", Value(t));
  is("attributes", Value(t));
  is("grad", Value(t));
  BOOST_TEST(!load("grad").tensor().requires_grad());
  is("list", list({t, t + 1}));
  is("one_list", list({t}));
  is("empty_list", Value(Value::List{}));
  is("tuple", list({t, t + 1}));
  is("one_tuple", list({t}));
  is("triple", list({t, t, t}));
  is("empty_dict", Value(Value::Dict{}));
  is("dict", Value(Value::Dict{{"a", Value(t)}, {"b", Value(Value::Dict{{"c", list({t})}})}}));
  is("one_dict", Value(Value::Dict{{"mean", Value(t)}}));
  is("int_keys", Value(Value::Dict{{"0", Value(t)}, {"10", Value(t + 1)}}));
  is("ordered", Value(Value::Dict{{"a", Value(t)}, {"b", Value(t + 1)}}));
  is("none", Value());
  is("none_list", Value(Value::List{Value(), Value(t)}));
  const auto whole = [](std::int64_t n) { return at::scalar_tensor(n, at::TensorOptions(at::kLong)); };
  is("numbers", list({at::scalar_tensor(true, at::TensorOptions(at::kBool)), whole(3), whole(-5),
                      at::scalar_tensor(2.5, at::TensorOptions(at::kDouble)), whole(70000),
                      whole(std::int64_t{1} << 40), whole(-(std::int64_t{1} << 40))}));
  const Value large = load("large_list");
  BOOST_TEST(large.list().size() == 3000u);
  BOOST_TEST(large.list()[2999].tensor().item<float>() == 2999.0f);
  const Value state = load("state_dict");
  std::vector<std::string> keys;
  for (const auto& [key, item] : state.dict()) keys.push_back(key);
  BOOST_TEST(keys == (std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                                               "1.running_var", "1.num_batches_tracked"}),
             boost::test_tools::per_element());
  BOOST_TEST(same(state.at("1.running_var").tensor(), at::ones({3})));
  for (const char* protocol : {"2", "3", "4", "5"}) {
    const Value value = load(std::string("protocol") + protocol);
    BOOST_TEST(same(value.at("a"), list({t, whole(300)})));
    BOOST_TEST(value.at("l").list().size() == 300u);
  }
  const auto shared = load("shared").tensors();
  shared[0][1].fill_(5);
  BOOST_TEST(shared[1][0].item<float>() == 5.0f);

  const auto fails = [&](const std::string& name, std::vector<std::string> parts) {
    parts.push_back(name + ".pt");
    BOOST_TEST_CONTEXT(name) {
      BOOST_CHECK_EXCEPTION(load(name), c10::ValueError, says(parts));
    }
  };
  fails("legacy", {"before 1.6", "torch.save(torch.load(path), path)"});
  BOOST_TEST(load("text").at("epoch").at("name").text() == "resnet");
  fails("sparse", {"to_dense()"});
  fails("quantized", {"dequantize()"});
  fails("module", {"torch.nn.modules.linear.Linear"});
  fails("tuple_key", {"a tuple for a key"});
  fails("same_key", {"the int 1 and the str \"1\""});
  fails("numpy", {"from_numpy"});
  fails("huge_int", {"64 bits"});
  fails("script", {"TorchScript", "torch::jit::load"});
  if (fs::exists(directory / "uint16.pt")) {
    const at::Tensor loaded = load("uint16").tensor();
    BOOST_TEST(loaded.to(at::kLong).equal(at::arange(3, at::kLong)));
    save_value(directory / "uint16_again.pt", Value(loaded));
    python(directory, R"(
import torch
got = torch.load("uint16_again.pt", weights_only=True)
assert got.dtype == torch.uint16 and got.tolist() == [0, 1, 2], got
)");
  }
}

// What torch::save writes of modules and optimizers, by the archive that it writes to.
BOOST_AUTO_TEST_CASE(we_read_what_libtorch_saves) {
  const TemporaryDirectory directory;
  const at::Tensor weight = at::arange(6, at::kFloat).view({2, 3});
  torch::serialize::OutputArchive inner, group, archive;
  inner.write("weight", weight);
  inner.write("running", at::arange(2), /*is_buffer=*/true);
  group.write("lr", c10::IValue(0.25));
  group.write("amsgrad", c10::IValue(true));
  archive.write("step", c10::IValue(3));
  archive.write("name", c10::IValue("Adam"));
  archive.write("sizes", c10::IValue(std::vector<std::int64_t>{4, 5}));
  archive.write("fc", inner);
  torch::serialize::OutputArchive empty;
  archive.write("empty", empty);
  archive.write("group", group);
  archive.write("tied", weight);
  archive.save_to(directory / "module.pt");
  const Value read = load_value(directory / "module.pt");
  BOOST_TEST(read.dict().size() == 7U);
  BOOST_TEST(read.at("fc").at("weight").tensor().equal(weight));
  BOOST_TEST(read.at("fc").at("running").tensor().equal(at::arange(2)));
  BOOST_TEST(read.at("tied").tensor().is_alias_of(read.at("fc").at("weight").tensor()));
  BOOST_TEST(read.at("empty").dict().empty());
  BOOST_TEST(read.at("step").tensor().item<int>() == 3);
  BOOST_TEST(read.at("name").text() == "Adam");
  BOOST_TEST(read.at("group").at("lr").tensor().item<double>() == 0.25);
  BOOST_TEST(read.at("group").at("amsgrad").tensor().item<bool>());
  BOOST_TEST(read.at("sizes").list()[1].tensor().item<int>() == 5);
}

BOOST_AUTO_TEST_SUITE_END()
