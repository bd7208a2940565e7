// The choice of a library for each product, and the file that stores it.
#include <boost/test/unit_test.hpp>

#include <array>
#include <cstdlib>
#include <map>

#include "espalier/core/device.h"
#include "espalier/core/files/file.h"
#include "espalier/ops/matmul/gemm_choice.h"
#include "espalier/ops/matmul/tuning.h"
#include "temporary_folder.h"

using namespace espalier;
using testing::TemporaryFolder;

namespace {

Gemm product(int64_t m, bool transpose_b = false) {
  return {DType::float32, false, transpose_b, m, 8, 4, 4, transpose_b ? 4 : 8, 8};
}

struct Environment {
  /// Empty values are unset.
  Environment(std::initializer_list<std::pair<const char*, std::string>> values) {
    for (const auto& [name, value] : values) {
      const char* before = std::getenv(name);
      before_.emplace_back(name, before ? before : "");
      set(name, value);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) set(name, value);
  }

 private:
  static void set(const char* name, const std::string& value) {
    value.empty() ? unsetenv(name) : setenv(name, value.c_str(), 1);
  }
  std::vector<std::pair<const char*, std::string>> before_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(gemm_choice)

BOOST_AUTO_TEST_CASE(measured_once_and_remembered) {
  const TemporaryFolder folder;
  const auto file = folder / "new" / "choices.txt";
  GemmChoices first(file, "head");
  BOOST_TEST(!first.find(product(5)).has_value());
  BOOST_TEST(!std::filesystem::exists(file));
  const GemmLibrary choice = first.measure(product(5));
  BOOST_TEST((first.measure(product(5)) == choice));
  BOOST_TEST(first.measurements() == 1);
  first.measure(product(5, true));
  BOOST_TEST(first.measurements() == 2);

  GemmChoices second(file, "head");
  BOOST_TEST((second.find_or_guess(product(5)) == choice));
  BOOST_TEST((second.measure(product(5)) == choice));
  BOOST_TEST((second.measure(product(5, true)) == *first.find(product(5, true))));
  BOOST_TEST(second.measurements() == 0);
  BOOST_TEST(!second.find(product(6)).has_value());
}

BOOST_AUTO_TEST_CASE(what_the_file_says_is_believed) {
  const TemporaryFolder folder;
  for (const auto& [text, library] : {std::pair<std::string, GemmLibrary>{"OpenBLAS", GemmLibrary::openblas},
                                      {"oneDNN", GemmLibrary::onednn},
                                      {"oneDNN-matmul", GemmLibrary::onednn_matmul}}) {
    const auto file = folder / (text + ".txt");
    ChoiceFile(file, "head").put("float32 n n 5 8 4 1", text);
    GemmChoices choices(file, "head");
    BOOST_TEST((choices.measure(product(5)) == library));
    BOOST_TEST(choices.measurements() == 0);
  }
}

BOOST_AUTO_TEST_CASE(what_it_cannot_have_written_is_not_believed) {
  const TemporaryFolder folder;
  int64_t number = 0;
  for (const auto& [key, choice] : std::vector<std::pair<std::string, std::string>>{
           {"float32 n n 5 8 4 1", "oneDN"},
           {"float32 n x 5 8 4 1", "oneDNN"},
           {"float32 n n 5 8 4 1 ", "oneDNN"},
           {"float32 n n 5 8 4", "oneDNN"},
           {"float32 n n 5 8 4 1 relu", "oneDNN"},
           {"float32 n n 99999999999999999999 8 4 1", "oneDNN"}}) {
    const auto file = folder / (std::to_string(++number) + ".txt");
    ChoiceFile(file, "head").put(key, choice);
    BOOST_TEST(!GemmChoices(file, "head").find(product(5)).has_value(), key);
  }
}

BOOST_AUTO_TEST_CASE(several_processes_add_to_one_file) {
  const TemporaryFolder folder;
  const auto file = folder / "choices.txt";
  GemmChoices one(file, "head"), other(file, "head");
  (void)one.find(product(5)), (void)other.find(product(5));  // both have read the missing file
  one.measure(product(5));
  other.measure(product(6));
  BOOST_CHECK(other.find(product(5)) == one.find(product(5)));  // it has read the new entry
  GemmChoices third(file, "head");
  third.measure(product(5)), third.measure(product(6));
  BOOST_TEST(third.measurements() == 0);
  BOOST_TEST(folder.files() == 1u);
}

BOOST_AUTO_TEST_CASE(another_machine_measures_anew) {
  const TemporaryFolder folder;
  const auto file = folder / "choices.txt";
  GemmChoices(file, "one processor").measure(product(5));
  GemmChoices other(file, "another");
  BOOST_TEST(!other.find(product(5)).has_value());
  other.measure(product(6));
  BOOST_TEST(read_file(file).starts_with("another\nfloat32 n n 6 8 4 1 "));
  BOOST_TEST(read_file(file).find(" 5 8 4 ") == std::string::npos);
  BOOST_TEST(!GemmChoices(file, "anoth").find(product(6)).has_value());
}

BOOST_AUTO_TEST_CASE(a_damaged_file_is_replaced) {
  const TemporaryFolder folder;
  const std::string good = "float32 n n 5 8 4 1 oneDNN\n";
  for (const std::string& text : std::vector<std::string>{
           std::string(), std::string("head"), "head\n" + good + "float32 n n 6 8", "head\n" + good + "\n",
           "head\nfloat32 n n 5 8 4 1 oneDN\n", "head\nfloat32 n x 5 8 4 1 oneDNN\n",
           "head\n" + good + "float32 n n 99999999999999999999 8 4 1 oneDNN\n",
           "head\n" + good.substr(0, good.size() - 1), std::string(1000, '\0')}) {
    const auto file = folder.write("choices.txt", text);
    GemmChoices choices(file, "head");
    BOOST_TEST(!choices.find(product(5)).has_value());
    choices.measure(product(5));
    BOOST_TEST(choices.measurements() == 1);
    BOOST_TEST(GemmChoices(file, "head").find(product(5)).has_value());
  }
}

BOOST_AUTO_TEST_CASE(no_place_for_a_file_is_no_error) {
  const TemporaryFolder folder;
  folder.write("file", "");
  std::filesystem::create_directory(folder / "choices.txt");
  for (const auto& file :
       {folder / "file" / "choices.txt", folder / "choices.txt", std::filesystem::path()}) {
    GemmChoices choices(file, "head");
    choices.measure(product(5)), choices.measure(product(6)), choices.measure(product(5));
    BOOST_TEST(choices.measurements() == 2);
  }
}

BOOST_AUTO_TEST_CASE(doubles_are_not_measured) {
  GemmChoices choices({}, "head");
  Gemm gemm = product(5);
  gemm.dtype = DType::float64;
  BOOST_TEST((choices.measure(gemm) == GemmLibrary::openblas));
  BOOST_TEST(choices.measurements() == 0);
}

BOOST_AUTO_TEST_CASE(small_products_of_a_single_run_need_no_code_to_be_made) {
  GemmChoices choices({}, "head");
  Gemm small = product(5), batch = small, large = product(300);
  batch.one_thread = true;
  large.n = large.k = large.lda = large.ldb = large.ldc = 300;
  choices.set({{small, 1, GemmLibrary::onednn}});
  const TuneScope no_tuning(false);
  const auto taken = [&] {
    return std::array{choices.measure(small), choices.measure(batch), choices.measure(large)};
  };
  using enum GemmLibrary;
  BOOST_CHECK((taken() == std::array{onednn, onednn, onednn}));
  set_runs_once(true);
  BOOST_CHECK((taken() == std::array{ready_library(), onednn, onednn}));
  BOOST_TEST(!choices.may_be_primitive(small, 1));
  set_runs_once(false);
  BOOST_CHECK((taken() == std::array{onednn, onednn, onednn}));
  BOOST_TEST(choices.measurements() == 0);
}

BOOST_AUTO_TEST_CASE(threads_count_where_they_are_used) {
  const int before = num_threads();
  GemmChoices choices({}, "head");
  Gemm large = product(300);
  large.n = large.k = large.lda = large.ldb = large.ldc = 300;
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    choices.measure(large), choices.measure(product(5));
  }
  const int64_t expected = num_threads() == 2 ? 3 : 2;  // without OpenMP there is one thread
  BOOST_TEST(choices.measurements() == expected);
  large.one_thread = true;
  choices.measure(large);
  BOOST_TEST(choices.measurements() == expected);
  set_num_threads(before);
}

BOOST_AUTO_TEST_CASE(what_is_set_replaces_what_was_chosen) {
  GemmChoices choices({}, "head");
  const auto known = [&] {
    std::map<int64_t, GemmLibrary> list;
    for (const GemmChoice& choice : choices.all()) list.emplace(choice.gemm.m, choice.library);
    return list;
  };
  using Known = std::map<int64_t, GemmLibrary>;
  constexpr auto one = GemmLibrary::openblas, other = GemmLibrary::onednn;
  BOOST_TEST(choices.set({{product(5), 1, one}}));
  BOOST_TEST(!choices.set({{product(5), 1, one}}));
  BOOST_CHECK(known() == (Known{{5, one}}));
  BOOST_TEST(choices.set({{product(5), 1, other}}));
  BOOST_CHECK(known() == (Known{{5, other}}));
  BOOST_TEST(choices.set({{product(5), 1, other}, {product(6), 1, one}}));
  BOOST_CHECK(known() == (Known{{5, other}, {6, one}}));
  BOOST_TEST(!choices.set({}));
  BOOST_CHECK(known() == (Known{{5, other}, {6, one}}));
  BOOST_CHECK(choices.measure(product(5)) == other);
  BOOST_TEST(choices.measurements() == 0);
  // Products with different epilogues are different.
  Gemm relu = product(5);
  relu.epilogue = GemmEpilogue::bias_relu;
  BOOST_TEST(choices.set({{relu, 1, one}}));
  BOOST_TEST(choices.all().size() == 3u);
  BOOST_TEST(!choices.set(choices.all()));
  BOOST_CHECK(*choices.find(product(5)) == other);
  BOOST_CHECK(*choices.find(relu) == one);
}

BOOST_AUTO_TEST_CASE(the_environment_names_the_folder) {
  const auto file = [](const std::string& cache, const std::string& own, const std::string& xdg,
                       const std::string& home) {
    const Environment environment{
        {"ESPALIER_CACHE", cache}, {"ESPALIER_CACHE_DIR", own}, {"XDG_CACHE_HOME", xdg}, {"HOME", home}};
    return gemm_choices_file();
  };
  BOOST_TEST(file("", "/own", "/xdg", "/home/me") == "/own/gemm_choices.txt");
  BOOST_TEST(file("", "", "/xdg", "/home/me") == "/xdg/espalier/gemm_choices.txt");
  BOOST_TEST(file("", "", "", "/home/me") == "/home/me/.cache/espalier/gemm_choices.txt");
  BOOST_TEST(file("", "", "not/absolute", "/home/me") == "/home/me/.cache/espalier/gemm_choices.txt");
  BOOST_TEST(file("", "", "", "").empty());
  BOOST_TEST(file("off", "/own", "/xdg", "/home/me").empty());
  BOOST_TEST(file("on", "/own", "", "").string() == "/own/gemm_choices.txt");
}

BOOST_AUTO_TEST_CASE(the_header_says_what_choices_depend_on) {
  const std::string header = gemm_choices_header();
  for (const char* part : {"Espalier ", "OpenBLAS", "oneDNN"})
    BOOST_TEST(header.find(part) != std::string::npos, header);
  BOOST_TEST(header.find('\n') == std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
