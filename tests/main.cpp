#define BOOST_TEST_MODULE torchtap
#include <boost/test/unit_test.hpp>
