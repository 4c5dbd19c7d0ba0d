// Tensors in archives: every view as its values, and no archive, however forged, as anything but a tensor or
// an error.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <boost/test/unit_test.hpp>

#include <limits>
#include <random>
#include <sstream>

#include <torchtap/base/error.hpp>
#include <torchtap/core/archive.hpp>

#include "../support.hpp"

BOOST_AUTO_TEST_SUITE(archive)

using namespace torchtap::core;
using torchtap::core::detail::pack;
using torchtap::core::detail::PackedTensor;
using torchtap::core::detail::unpack;
using torchtap_test::says;

namespace {

std::string bytes_of(const at::Tensor& tensor) {
  std::ostringstream stream;
  {
    OutputArchive archive(stream);
    archive(tensor);
  }
  return stream.str();
}

at::Tensor tensor_of(const std::string& bytes) {
  std::istringstream stream(bytes);
  InputArchive archive(stream);
  at::Tensor tensor;
  archive(tensor);
  return tensor;
}

}  // namespace

BOOST_AUTO_TEST_CASE(views_are_kept_as_their_values) {
  const at::Tensor base = at::arange(24, at::kFloat).view({4, 6});
  const at::Tensor complex = at::complex(base, base.neg());
  for (const at::Tensor& view :
       {base.t(), base.slice(0, 1, 4, 2), base.select(1, 3), base[0][0].expand({3, 2}), base.narrow(1, 2, 3),
        complex.conj(), at::imag(complex.conj()), complex.t().conj()}) {
    const PackedTensor packed = pack(view);
    BOOST_TEST(packed.bytes.size() == view.numel() * view.element_size());
    const at::Tensor loaded = unpack(packed);
    BOOST_TEST(loaded.equal(view));
    BOOST_TEST(loaded.is_contiguous());
    BOOST_TEST(!loaded.is_conj());
    BOOST_TEST(!loaded.is_neg());
  }
}

BOOST_AUTO_TEST_CASE(a_tensor_of_a_graph_is_kept_without_it) {
  const at::Tensor leaf = at::ones({2}).requires_grad_();
  const at::Tensor loaded = unpack(pack(leaf * 3));
  BOOST_TEST(loaded.equal(at::full({2}, 3.0)));
  BOOST_TEST(!loaded.requires_grad());
}

BOOST_AUTO_TEST_CASE(tensors_without_plain_bytes_are_refused) {
  BOOST_CHECK_EXCEPTION(pack(at::eye(3).to_sparse()), c10::TypeError, says({"Sparse", "to_dense()"}));
  BOOST_CHECK_EXCEPTION(pack(at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQInt8)), c10::TypeError,
                        says({"QInt8", "dequantize()"}));
}

BOOST_AUTO_TEST_CASE(forged_parts_are_an_error) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  const PackedTensor good = pack(at::ones({2, 3}));
  for (const auto& sizes :
       std::vector<std::vector<std::int64_t>>{{},
                                              {2},
                                              {2, 4},
                                              {3, 3},
                                              {2, 3, 2},
                                              {6, -1},
                                              {-2, -3},
                                              {-1, 0},
                                              {most, most},
                                              {most, 2},
                                              {std::int64_t{1} << 62, 4},
                                              {std::int64_t{1} << 32, std::int64_t{1} << 32},
                                              {0, 6}}) {
    PackedTensor packed = good;
    packed.sizes = sizes;
    BOOST_CHECK_EXCEPTION(unpack(packed), c10::ValueError, says({"restore", "damaged"}));
  }
  for (const std::size_t size : {0, 1, 23, 25, 48}) {
    PackedTensor packed = good;
    packed.bytes.resize(size);
    BOOST_CHECK_EXCEPTION(unpack(packed), c10::ValueError, says({"restore", "in ", "damaged"}));
  }
}

BOOST_AUTO_TEST_CASE(forged_dtypes_and_devices_are_an_error) {
  for (std::int32_t dtype = -3; dtype < 100; ++dtype) {
    PackedTensor packed;
    packed.dtype = dtype;
    packed.sizes = {0};
    try {
      const at::Tensor tensor = unpack(packed);
      BOOST_TEST(tensor.defined() == (dtype != -1));
      if (tensor.defined()) BOOST_TEST(static_cast<std::int32_t>(tensor.scalar_type()) == dtype);
    } catch (const c10::Error&) {
      // A dtype that this LibTorch does not have, or has without plain bytes.
    }
  }
  for (const std::int32_t dtype : {-2, std::numeric_limits<std::int32_t>::min(), 1000}) {
    PackedTensor packed;
    packed.dtype = dtype;
    BOOST_CHECK_EXCEPTION(unpack(packed), c10::ValueError, says({"dtype number"}));
  }
  for (const std::int32_t device_type : {-1, 100, 127, 128, 256, 1 << 20}) {
    for (const std::int32_t device_index : {-1, 0, 77, -100, 1 << 20}) {
      PackedTensor packed = pack(at::ones({2}));
      packed.device_type = device_type;
      packed.device_index = device_index;
      BOOST_CHECK_EXCEPTION(unpack(packed), c10::ValueError, says({"restore", "device"}));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_device_that_the_machine_does_not_have_is_replaced_by_the_cpu) {
  PackedTensor packed = pack(at::ones({2}));
  packed.device_type = static_cast<std::int32_t>(c10::DeviceType::HPU);
  packed.device_index = 0;
  BOOST_TEST(unpack(packed).device() == at::Device(at::kCPU));
  BOOST_TEST(unpack(packed).equal(at::ones({2})));
  packed.device_index = 1 << 20;
  BOOST_CHECK_EXCEPTION(unpack(packed), c10::ValueError, says({"device number 1048576"}));
  packed.device_type = static_cast<std::int32_t>(c10::DeviceType::CPU);
  packed.device_index = 5;
  BOOST_TEST(unpack(packed).equal(at::ones({2})));
}

BOOST_AUTO_TEST_CASE(empty_shapes_may_be_of_any_size) {
  const at::Tensor loaded = unpack(pack(at::empty({3, 0, 5}, at::kLong)));
  BOOST_TEST(loaded.sizes() == at::IntArrayRef({3, 0, 5}));
  BOOST_CHECK(loaded.scalar_type() == at::kLong);
}

BOOST_AUTO_TEST_CASE(a_cut_archive_is_an_error) {
  const std::string bytes = bytes_of(at::arange(10));
  BOOST_REQUIRE(tensor_of(bytes).equal(at::arange(10)));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    BOOST_CHECK_THROW(tensor_of(bytes.substr(0, size)), std::exception);
  }
}

// Sizes in an archive are believed no further than bytes follow: a forged one must not make the process ask
// for all memory there is.
BOOST_AUTO_TEST_CASE(a_damaged_archive_is_a_tensor_or_an_error) {
  const std::string bytes = bytes_of(at::arange(10));
  std::mt19937 random(3);
  std::size_t errors = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const char value : {'\x00', '\x01', '\x7f', '\xff', static_cast<char>(random())}) {
      std::string damaged = bytes;
      damaged[at] = value;
      try {
        tensor_of(damaged);
      } catch (const cereal::Exception&) {
        ++errors;
      } catch (const c10::Error&) {
        ++errors;
      } catch (const std::exception& error) {
        BOOST_ERROR("byte " << at << ": " << error.what());  // std::bad_alloc, std::length_error
      }
    }
  }
  BOOST_TEST(errors > bytes.size());
}

// Memory is taken only for what can follow: nothing here may ask for the gigabytes that are claimed.
BOOST_AUTO_TEST_CASE(lists_that_claim_more_than_is_left_are_an_error_before_memory_is_taken) {
  const auto claims = [](auto value, std::uint64_t size) {
    std::ostringstream stream;
    {
      OutputArchive archive(stream);
      archive(value, std::vector<std::uint8_t>(100));
    }
    std::string bytes = stream.str();
    for (int i = 0; i < 8; ++i) bytes[1 + i] = static_cast<char>(size >> (8 * i) & 0xff);
    std::istringstream in(bytes);
    InputArchive archive(in);
    BOOST_CHECK_EXCEPTION(archive(value), cereal::Exception, [](const cereal::Exception& error) {
      return std::string(error.what()).find("bytes are left") != std::string::npos;
    });
  };
  for (const std::uint64_t size : {std::uint64_t{1000}, std::uint64_t{1} << 31, std::uint64_t{1} << 40,
                                   std::numeric_limits<std::uint64_t>::max()}) {
    claims(std::vector<double>(3), size);
    claims(std::vector<bool>(3), size);
    claims(std::string(3, 'x'), size);
    claims(std::vector<std::vector<std::int64_t>>(3), size);
    claims(std::vector<at::Tensor>(3, at::ones({2})), size);
  }
}

BOOST_AUTO_TEST_CASE(a_bool_is_0_or_1) {
  std::ostringstream out;
  {
    OutputArchive archive(out);
    archive(true, std::vector<bool>{false, true});
  }
  const std::string bytes = out.str();
  for (const std::size_t at : {std::size_t{1}, bytes.size() - 1}) {  // behind the byte order; the list's last
    for (const int value : {0, 1, 2, 127, 254, 255}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(value);
      std::istringstream in(changed);
      InputArchive archive(in);
      bool one = false;
      std::vector<bool> list;
      if (value > 1) {
        BOOST_CHECK_EXCEPTION(archive(one, list), cereal::Exception, [](const cereal::Exception& error) {
          return std::string(error.what()) == "the archive has a bool that is neither 0 nor 1";
        });
        continue;
      }
      archive(one, list);
      BOOST_TEST(one == (at == 1 ? value == 1 : true));
      BOOST_TEST((list == std::vector<bool>{false, at == 1 || value == 1}));
    }
  }
}

BOOST_AUTO_TEST_CASE(numbers_of_the_other_byte_order_are_turned_around) {
  std::ostringstream out;
  {
    OutputArchive archive(out, OutputArchive::Options::BigEndian());
    archive(std::vector<double>{1.5, -2.0}, std::int32_t{7}, std::string("text"));
  }
  std::istringstream in(out.str());
  InputArchive archive(in);
  std::vector<double> list;
  std::int32_t number = 0;
  std::string text;
  archive(list, number, text);
  BOOST_TEST((list == std::vector<double>{1.5, -2.0}));
  BOOST_TEST(number == 7);
  BOOST_TEST(text == "text");
}

BOOST_AUTO_TEST_SUITE_END()
