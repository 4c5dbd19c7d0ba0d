#include "table.hpp"

#include <utility>

namespace torchtap::tools {

Table::Table(std::vector<Column> columns) : views::text::Table(std::move(columns)) {
  ascii(!utf8_locale());
}

}  // namespace torchtap::tools
