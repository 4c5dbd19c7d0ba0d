#pragma once

#include <boost/test/unit_test.hpp>

namespace torchtap_test {

/// A decorator: where `holds` returns false, the test is skipped, and shown as skipped.
template <class Condition>
boost::unit_test::precondition only_where(const Condition& holds, const char* why) {
  return boost::unit_test::precondition([=](boost::unit_test::test_unit_id) {
    boost::test_tools::assertion_result result(holds());
    result.message() << why;
    return result;
  });
}

}  // namespace torchtap_test
