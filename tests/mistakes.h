// Mistakes: calls that must throw, and what their errors say.
#pragma once
#include <boost/test/unit_test.hpp>
#include <functional>
#include <source_location>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include "espalier/core/error.h"

namespace espalier::testing {

struct Mistake {
  std::string name;  ///< of what is called
  std::function<void()> call;
  std::string says;
};

/// Each throws exactly an E, whose message begins with the name and has the words and the caller's file.
template <class E>
void check(const std::vector<Mistake>& mistakes,
           std::source_location where = std::source_location::current()) {
  const std::string_view path = where.file_name();
  const std::string file = std::string(path.substr(path.rfind('/') + 1)) + ":";
  for (const Mistake& m : mistakes) BOOST_TEST_CONTEXT(m.name << " " << m.says) {
      try {
        m.call();
        BOOST_ERROR("nothing was thrown");
      } catch (const Error& e) {
        const std::string text = e.what();
        BOOST_TEST((typeid(e) == typeid(E)), text);
        BOOST_TEST(text.starts_with(m.name + ": "), text);
        BOOST_TEST(text.find(m.says) != std::string::npos, text);
        BOOST_TEST(text.find(file) != std::string::npos, text);
      }
    }
}

}  // namespace espalier::testing
