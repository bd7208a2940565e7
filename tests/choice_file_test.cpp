// Files of choices, and the precision of products.
#include <boost/test/unit_test.hpp>

#include <thread>

#include "espalier/core/files/file.h"
#include "espalier/ops/matmul/choice_file.h"
#include "espalier/ops/matmul/matmul_precision.h"
#include "temporary_folder.h"

using namespace espalier;
using testing::TemporaryFolder;

BOOST_AUTO_TEST_SUITE(choice_file)

BOOST_AUTO_TEST_CASE(kept_for_the_next_process) {
  const TemporaryFolder folder;
  const auto path = folder / "new" / "choices.txt";
  ChoiceFile first(path, "head");
  BOOST_TEST(!first.find("a product of 3").has_value());
  BOOST_TEST(!std::filesystem::exists(path));
  first.put("a product of 3", "cafe");
  first.put("another", "17");
  first.put("another", "18");
  BOOST_TEST(*first.find("a product of 3") == "cafe");
  ChoiceFile second(path, "head");
  BOOST_TEST(*second.find("a product of 3") == "cafe");
  BOOST_TEST(*second.find("another") == "18");
  BOOST_TEST(!second.find("a product").has_value());
}

BOOST_AUTO_TEST_CASE(another_header_is_another_machine) {
  const TemporaryFolder folder;
  ChoiceFile one(folder / "choices.txt", "driver 1");
  one.put("key", "value");
  ChoiceFile other(folder / "choices.txt", "driver 2");
  BOOST_TEST(!other.find("key").has_value());
  other.put("key", "newer");
  BOOST_TEST(*ChoiceFile(folder / "choices.txt", "driver 2").find("key") == "newer");
  BOOST_TEST(!ChoiceFile(folder / "choices.txt", "driver 1").find("key").has_value());
}

BOOST_AUTO_TEST_CASE(several_processes_add_to_one_file) {
  const TemporaryFolder folder;
  ChoiceFile one(folder / "choices.txt", "head"), other(folder / "choices.txt", "head");
  (void)one.find("x"), (void)other.find("x");  // both have read the missing file
  one.put("x", "1");
  other.put("y", "2");
  ChoiceFile third(folder / "choices.txt", "head");
  BOOST_TEST(*third.find("x") == "1");
  BOOST_TEST(*third.find("y") == "2");
}

BOOST_AUTO_TEST_CASE(damage_costs_only_what_it_hits) {
  const TemporaryFolder folder;
  const auto path = folder / "choices.txt";
  ChoiceFile(path, "head").put("first key", "abc");
  ChoiceFile(path, "head").put("second key", "def");
  const std::string whole = read_file(path);
  for (size_t at = 5; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    const auto where = folder.write("damaged.txt", damaged);
    ChoiceFile file(where, "head");
    const auto a = file.find("first key"), b = file.find("second key");
    BOOST_TEST((!a || *a == "abc"));
    BOOST_TEST((!b || *b == "def"));
    BOOST_TEST((!a || !b));
    BOOST_TEST((a || b || damaged[at] == '\n' || whole[at] == '\n'));
  }
  for (size_t size = 0; size < whole.size(); ++size) {
    ChoiceFile file(folder.write("short.txt", whole.substr(0, size)), "head");
    BOOST_TEST(!file.find("second key").has_value());
  }
  for (const std::string text :
       {"", "head", "head\n\n\n", "head\n \n", "head\n  \n", "head\nkey\n", "head\nkey value\n"})
    BOOST_TEST(!ChoiceFile(folder.write("odd.txt", text), "head").find("key").has_value());
}

BOOST_AUTO_TEST_CASE(without_a_file_in_memory) {
  ChoiceFile memory("", "head");
  memory.put("key", "value");
  BOOST_TEST(*memory.find("key") == "value");
  const TemporaryFolder folder;
  ChoiceFile unwritable(folder.write("file", "") / "choices.txt", "head");
  unwritable.put("key", "value");
  BOOST_TEST(*unwritable.find("key") == "value");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(precision_of_products)

BOOST_AUTO_TEST_CASE(scopes_override_what_is_allowed) {
  BOOST_TEST((matmul_precision() == MatmulPrecision::ieee));
  allow_tf32(true);
  BOOST_TEST((matmul_precision() == MatmulPrecision::tf32));
  {
    const MatmulPrecisionScope exact(MatmulPrecision::ieee);
    BOOST_TEST((matmul_precision() == MatmulPrecision::ieee));
    {
      const MatmulPrecisionScope fast(MatmulPrecision::tf32);
      BOOST_TEST((matmul_precision() == MatmulPrecision::tf32));
    }
    BOOST_TEST((matmul_precision() == MatmulPrecision::ieee));
    std::thread([] { BOOST_TEST((matmul_precision() == MatmulPrecision::tf32)); }).join();
  }
  allow_tf32(false);
  BOOST_TEST((matmul_precision() == MatmulPrecision::ieee));
}

BOOST_AUTO_TEST_SUITE_END()
