// Regions of memory, compared with sets of bytes.
#include <ATen/ATen.h>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include <torchtap/views/watch/region.hpp>

BOOST_AUTO_TEST_SUITE(region)

namespace {

using torchtap::views::watch::Region;
using Bytes = std::set<std::int64_t>;

std::mt19937 dice(7);

std::int64_t roll(std::int64_t from, std::int64_t to) {
  return from + static_cast<std::int64_t>(dice() % static_cast<unsigned>(to - from + 1));
}

/// The bytes of a tensor's elements in its storage, one by one.
Bytes bytes_of(const at::Tensor& tensor) {
  Bytes bytes;
  std::vector<std::int64_t> index(static_cast<std::size_t>(tensor.dim()), 0);
  const auto item = static_cast<std::int64_t>(tensor.element_size());
  for (std::int64_t n = 0; n < tensor.numel(); ++n) {
    std::int64_t at = tensor.storage_offset(), rest = n;
    for (std::int64_t i = tensor.dim(); i-- > 0; rest /= tensor.size(i)) {
      at += rest % tensor.size(i) * tensor.stride(i);
    }
    for (std::int64_t byte = 0; byte < item; ++byte) bytes.insert(at * item + byte);
  }
  return bytes;
}

bool overlap(const Bytes& a, const Bytes& b) {
  return std::any_of(a.begin(), a.end(), [&](std::int64_t byte) { return b.count(byte) > 0; });
}

bool include(const Bytes& a, const Bytes& b) {
  return std::includes(a.begin(), a.end(), b.begin(), b.end());
}

/// A view as programs make them, by a few steps from the whole. With `steps`, slices may leave elements out.
at::Tensor view_of(at::Tensor tensor, bool steps) {
  for (std::int64_t n = roll(0, 3); n > 0 && tensor.dim() > 0; --n) {
    const std::int64_t dim = roll(0, tensor.dim() - 1), size = tensor.size(dim);
    switch (roll(0, 4)) {
      case 0:
        if (size > 0) tensor = tensor.select(dim, roll(0, size - 1));
        break;
      case 1:
        tensor = tensor.transpose(dim, roll(0, tensor.dim() - 1));
        break;
      case 2:
        tensor = tensor.unsqueeze(dim).expand_as(at::empty_like(tensor).unsqueeze(dim));
        break;
      default:
        const std::int64_t begin = roll(0, size);
        tensor = tensor.slice(dim, begin, roll(begin, size), steps ? roll(1, 3) : 1);
    }
  }
  return tensor;
}

std::string text(const at::Tensor& tensor) {
  return c10::str(tensor.sizes(), " by ", tensor.strides(), " from ", tensor.storage_offset());
}

BOOST_AUTO_TEST_CASE(views_of_one_tensor_overlap_and_cover_as_their_bytes_do) {
  int overlaps = 0, covers = 0;
  for (int n = 0; n < 6000; ++n) {
    const auto whole = at::empty({roll(1, 4), roll(1, 4), roll(1, 5)}, n % 2 == 0 ? at::kByte : at::kShort);
    const bool steps = n % 3 == 0;
    const auto a = view_of(whole, steps), b = view_of(whole, steps);
    const Region x(a), y(b);
    const Bytes in_a = bytes_of(a), in_b = bytes_of(b);
    BOOST_TEST(x.empty() == in_a.empty());
    BOOST_TEST(x.overlaps(y) == overlap(in_a, in_b), text(a) << " and " << text(b));
    BOOST_TEST(y.overlaps(x) == x.overlaps(y), text(a) << " and " << text(b));
    if (steps) {
      BOOST_TEST((!x.covers(y) || include(in_a, in_b)), text(a) << " and " << text(b));
    } else {
      BOOST_TEST(x.covers(y) == include(in_a, in_b), text(a) << " and " << text(b));
    }
    overlaps += x.overlaps(y) ? 1 : 0;
    covers += x.covers(y) ? 1 : 0;
  }
  BOOST_TEST(overlaps > 1000);
  BOOST_TEST(covers > 500);
}

BOOST_AUTO_TEST_CASE(any_strides_are_safe) {
  const auto memory = at::empty({200}, at::kByte);
  int missed = 0;
  for (int n = 0; n < 20000; ++n) {
    const auto any = [&] {
      return memory.as_strided({roll(0, 4), roll(1, 4), roll(1, 3)}, {roll(0, 12), roll(0, 9), roll(0, 4)},
                               roll(0, 40));
    };
    const auto a = any(), b = any();
    const Region x(a), y(b);
    const Bytes in_a = bytes_of(a), in_b = bytes_of(b);
    BOOST_TEST((x.overlaps(y) || !overlap(in_a, in_b)), text(a) << " and " << text(b));
    BOOST_TEST((!x.covers(y) || include(in_a, in_b)), text(a) << " and " << text(b));
    missed += x.overlaps(y) != overlap(in_a, in_b) ? 1 : 0;
  }
  BOOST_TEST(missed < 2000);
}

BOOST_AUTO_TEST_CASE(a_remainder_is_what_no_part_had) {
  int emptied = 0;
  for (int n = 0; n < 2000; ++n) {
    const auto whole = at::empty({roll(1, 3), roll(1, 4), roll(1, 4)}, at::kShort);
    const auto shown = view_of(whole, n % 3 == 0);
    Bytes left = bytes_of(shown);
    torchtap::views::watch::Remainder remainder{Region(shown)};
    for (int part = 0; part < 3; ++part) {
      const auto taken = view_of(whole, n % 3 == 0);
      const Bytes bytes = bytes_of(taken);
      BOOST_TEST(remainder.take(Region(taken)) == overlap(left, bytes), text(shown)
                                                                            << " less " << text(taken));
      for (const std::int64_t byte : bytes) left.erase(byte);
      BOOST_TEST(remainder.empty() == left.empty(), text(shown) << " less " << text(taken));
    }
    emptied += left.empty() ? 1 : 0;
  }
  BOOST_TEST(emptied > 300);
  BOOST_TEST(emptied < 1900);
}

BOOST_AUTO_TEST_CASE(large_views_are_told_apart_without_looking_at_each_piece) {
  const auto gates = at::empty({1, 3000, 2000}, at::kByte).expand({2, 3000, 2000});
  const auto parts = gates.chunk(4, 2);
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 4; ++k) {
      BOOST_TEST(Region(parts[i]).overlaps(Region(parts[k])) == (i == k));
      BOOST_TEST(Region(parts[i]).covers(Region(parts[k])) == (i == k));
    }
    BOOST_TEST(Region(gates).covers(Region(parts[i])));
    BOOST_TEST(Region(parts[i]).overlaps(Region(gates.select(1, 7))));
    BOOST_TEST(!Region(parts[i]).covers(Region(gates.select(1, 7))));
    BOOST_TEST(Region(parts[i]).covers(Region(parts[i].select(1, 7))));
  }
  torchtap::views::watch::Remainder all{Region(gates)};
  for (int i = 0; i < 4; ++i) BOOST_TEST(all.take(Region(parts[i])));
  BOOST_TEST(all.empty());
  // Too many pieces: what cannot be told apart counts as there.
  const auto fine = at::empty({100000, 2}, at::kByte);
  torchtap::views::watch::Remainder column{Region(fine.select(1, 0))};
  BOOST_TEST(!column.take(Region(fine.select(1, 1))));
  BOOST_TEST(column.take(Region(fine[5])));
  BOOST_TEST(!column.empty());
  BOOST_TEST(column.take(Region(fine)));
  BOOST_TEST(column.empty());
}

BOOST_AUTO_TEST_CASE(tensors_without_strides_and_other_memories) {
  const auto a = at::empty({4}), b = at::empty({4});
  BOOST_TEST(!Region(a).overlaps(Region(b)));
  BOOST_TEST(!Region(a).covers(Region(b)));
  BOOST_TEST(Region(a).covers(Region(a.alias())));
  BOOST_TEST(Region(a).memory() == a.storage().unsafeGetStorageImpl());
  BOOST_TEST(Region(at::Tensor()).empty());
  BOOST_TEST(Region(a.to_sparse()).empty());
  BOOST_TEST(Region(at::empty({0, 4})).empty());
  BOOST_TEST(!Region(a).overlaps(Region()));
  BOOST_TEST(Region(a).covers(Region()));
  torchtap::views::watch::Remainder none{Region{}};
  BOOST_TEST(none.empty());
  BOOST_TEST(!none.take(Region(a)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
