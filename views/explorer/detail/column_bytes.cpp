// Columns as bytes.
#include <torchtap/base/error.hpp>
#include <torchtap/views/explorer/detail/column_bytes.hpp>

namespace torchtap::views::explorer::detail {

void put_column(std::string& to, const watch::Column& column) {
  put_number(to, column.first_step);
  put_number(to, column.last_step);
  for (const std::uint64_t number : {column.count, column.nan, column.posinf, column.neginf, column.zeros}) {
    put_number(to, static_cast<double>(number));
  }
  for (const double number : {column.min, column.max, column.sum, column.sum_squares}) put_number(to, number);
  put_number(to, column.n_bins);
  to += column.bins;
}

watch::Column get_column(Bytes& from) {
  watch::Column column;
  column.first_step = from.get<std::int64_t>();
  column.last_step = from.get<std::int64_t>();
  bool sound = true;
  for (std::uint64_t* const number :
       {&column.count, &column.nan, &column.posinf, &column.neginf, &column.zeros}) {
    const double value = from.get<double>();
    sound = sound && value >= 0 && value < 9e18;
    *number = sound ? static_cast<std::uint64_t>(value) : 0;
  }
  for (double* const number : {&column.min, &column.max, &column.sum, &column.sum_squares})
    *number = from.get<double>();
  column.n_bins = from.get<std::uint32_t>();
  TORCH_CHECK_VALUE(sound && from.good(),
                    "views::explorer: expected the statistics of a tensor at a step, got ",
                    "something else; the file or message is damaged.");
  column.bins = from.rest();
  (void)watch::unpack(column.bins, column.n_bins);
  return column;
}

}  // namespace torchtap::views::explorer::detail
