// A History as a table and as a chart.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <regex>
#include <sstream>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/executor/history.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

esp::History example() {
  esp::History history;
  for (int e = 0; e < 12; ++e)
    history.epochs.push_back({.loss_mean = 1.0 / (3 + e),
                              .validation_loss = 1.2 / (3 + e),
                              .samples = 100,
                              .seconds = 0.5,
                              .outputs = {{"accuracy", 1 - 1.0 / (2 + e)}, {"f1, \"macro\" <&>", 0.1}},
                              .validation_outputs = {{"accuracy", 1 - 1.5 / (2 + e)}}});
  history.epochs[2].loss_mean = not_a_number;
  return history;
}

std::string text_of(const esp::History& history,
                    void (esp::History::*write)(const std::filesystem::path&, std::source_location) const) {
  const TemporaryFolder folder;
  (history.*write)(folder / "file", std::source_location::current());
  return esp::read_file(folder / "file");
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Checks that elements are closed in order, and attributes quoted.
void check_xml(const std::string& text) {
  std::vector<std::string> open;
  for (size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
    size_t end = at + 1;
    for (bool quoted = false; quoted || text.at(end) != '>'; ++end) {
      BOOST_TEST_REQUIRE(text[end] != '<');
      if (text[end] == '"') quoted = !quoted;
    }
    const std::string tag = text.substr(at + 1, end - at - 1);
    if (tag[0] == '?') continue;
    if (tag[0] == '/') {
      BOOST_TEST_REQUIRE(!open.empty());
      BOOST_TEST(open.back() == tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find_first_of(" \n")));
    }
  }
  BOOST_TEST(open.empty());
  for (size_t at = text.find('&'); at != std::string::npos; at = text.find('&', at + 1))
    BOOST_TEST(text.find(';', at) - at <= 5u);
}

/// Two ticks of an axis, by which a place is read as a number.
struct Scale {
  double place, number, last_place, last_number;
  double at(double x) const { return number + (x - place) / (last_place - place) * (last_number - number); }
};
std::vector<std::vector<double>> matches(const std::string& text, const std::string& pattern) {
  std::vector<std::vector<double>> all;
  const std::regex regex(pattern);
  for (std::sregex_iterator m(text.begin(), text.end(), regex), end; m != end; ++m) {
    std::vector<double>& numbers = all.emplace_back();
    for (size_t i = 1; i < m->size(); ++i) numbers.push_back(std::stod((*m)[i]));
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(history_files)

BOOST_AUTO_TEST_CASE(a_table_to_read) {
  esp::History history;
  history.epochs.push_back(
      {.loss_mean = 0.25, .samples = 100, .seconds = 0.5, .outputs = {{"accuracy", 0.5}}});
  history.epochs.push_back(
      {.loss_mean = 1.0 / 3, .samples = 100, .seconds = 0.25, .outputs = {{"accuracy", 0.75}}});
  history.interrupted = true;
  std::ostringstream text, no_epoch;
  text.precision(3);
  text << history;
  BOOST_TEST(text.str() ==
             "epoch   loss  accuracy  samples  seconds\n"
             "    1   0.25       0.5      100      0.5\n"
             "    2  0.333      0.75      100     0.25\n"
             "interrupted\n");
  text.str("");
  text << std::fixed << history;
  BOOST_TEST(text.str().find("0.250     0.500      100    0.500") != std::string::npos, text.str());
  text.unsetf(std::ios::floatfield);
  no_epoch << esp::History();
  BOOST_TEST(no_epoch.str() == "epoch  loss  samples  seconds\n");
  text.str("");
  text << example();
  BOOST_TEST(text.str().find("validation_accuracy") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_table_has_a_row_for_each_epoch) {
  std::istringstream lines(text_of(example(), &esp::History::write_csv));
  std::string line;
  std::getline(lines, line);
  BOOST_TEST(
      line ==
      "epoch,loss,validation_loss,accuracy,\"f1, \"\"macro\"\" <&>\",validation_accuracy,samples,seconds");
  for (int e = 0; e < 12; ++e) {
    BOOST_TEST_REQUIRE(bool(std::getline(lines, line)));
    std::istringstream fields(line);
    std::vector<double> numbers_in_line;
    for (std::string field; std::getline(fields, field, ',');) numbers_in_line.push_back(std::stod(field));
    BOOST_TEST_REQUIRE(numbers_in_line.size() == 8u);
    BOOST_TEST(numbers_in_line[0] == e + 1);
    if (e != 2) BOOST_TEST(numbers_in_line[1] == 1.0 / (3 + e));  // read back without loss
    if (e == 2) BOOST_TEST(std::isnan(numbers_in_line[1]));
    BOOST_TEST(numbers_in_line[5] == 1 - 1.5 / (2 + e));
    BOOST_TEST(numbers_in_line[6] == 100);
  }
  BOOST_TEST(!std::getline(lines, line));
  esp::History plain;
  plain.epochs.push_back({.loss_mean = 0.5, .samples = 3});
  BOOST_TEST(text_of(plain, &esp::History::write_csv) == "epoch,loss,samples,seconds\n1,0.5,3,0\n");
  plain.epochs.insert(plain.epochs.begin(), {.loss_mean = 0.75, .validation_loss = 0.625, .samples = 4});
  BOOST_TEST(text_of(plain, &esp::History::write_csv) ==  // the run ended within its second epoch
             "epoch,loss,validation_loss,samples,seconds\n1,0.75,0.625,4,0\n2,0.5,,3,0\n");
}

BOOST_AUTO_TEST_CASE(a_chart_has_curves_axes_and_a_legend) {
  const std::string svg = text_of(example(), &esp::History::write_svg);
  check_xml(svg);
  BOOST_TEST(count_of(svg, "class=\"title\"") == 2u);
  for (const char* name : {">loss<", ">validation_loss<", ">accuracy<", ">validation_accuracy<",
                           ">f1, &quot;macro&quot; &lt;&amp;&gt;<", ">epoch<"})
    BOOST_TEST(svg.find(name) != std::string::npos, name);
  BOOST_TEST(count_of(svg, "class=\"curve\"") == 10u);  // five, each in the legend too
  BOOST_TEST(count_of(svg, "<circle") == 5u * 12 - 1);
  BOOST_TEST(svg.find("nan") == std::string::npos);
  BOOST_TEST(svg.find("inf") == std::string::npos);
  BOOST_TEST(svg.find("width=\"860\"") != std::string::npos);
  esp::History wide = example();  // it grows with its labels
  wide.epochs[0].outputs[std::string(50, 'm')] = 1;
  BOOST_TEST(text_of(wide, &esp::History::write_svg).find("width=\"1090\"") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(points_lie_where_the_axes_say) {
  esp::History history = example();
  const auto check = [&](double factor, double first, double step) {
    for (int e = 0; e < 12; ++e) {
      history.epochs[e].loss_mean = e == 2 ? not_a_number : factor / (3 + e);
      history.epochs[e].validation_loss = factor * 1.2 / (3 + e);
    }
    std::string svg = text_of(history, &esp::History::write_svg);
    svg.resize(svg.find(">Outputs<"));
    const auto rows = matches(svg, R"re(class="grid".* y1="([^"]*)".*>([^<]+)</text>)re");
    const auto columns = matches(svg, R"re(<line class="axis" x1="([^"]*)".*>([^<]+)</text>)re");
    BOOST_TEST_REQUIRE(rows.size() >= 4u);
    BOOST_TEST(rows.size() <= 8u);
    BOOST_TEST(rows[0][1] == first, boost::test_tools::tolerance(1e-9));
    for (size_t i = 1; i < rows.size(); ++i)
      BOOST_TEST(rows[i][1] - rows[i - 1][1] == step, boost::test_tools::tolerance(1e-9));
    BOOST_TEST_REQUIRE(columns.size() == 2u);  // round numbers between 1 and 12
    BOOST_TEST((columns[0][1] == 5 && columns[1][1] == 10));
    const Scale y{rows[0][0], rows[0][1], rows.back()[0], rows.back()[1]};
    const Scale x{columns[0][0], columns[0][1], columns.back()[0], columns.back()[1]};
    BOOST_TEST(y.place > y.last_place);  // upwards
    const auto points = matches(svg, R"re(<circle cx="([^"]*)" cy="([^"]*)")re");
    BOOST_TEST_REQUIRE(points.size() == 23u);
    // The frame goes from the first epoch to the last one, and from the least number to the largest.
    const auto frame = matches(svg, R"re(class="axis" d="M([^ ]*) ([^V]*)V([^H]*)H([^"]*)")re");
    BOOST_TEST_REQUIRE(frame.size() == 1u);
    BOOST_TEST((points[0][0] == frame[0][0] && points.back()[0] == frame[0][3]));
    BOOST_TEST((rows.back()[0] == frame[0][1] && rows[0][0] == frame[0][2]));
    for (size_t i = 0; i < points.size(); ++i) {
      const size_t e = i < 11 ? i + (i >= 2) : i - 11;
      const esp::EpochRecord& epoch = history.epochs[e];
      BOOST_TEST(std::abs(x.at(points[i][0]) - static_cast<double>(e + 1)) < 0.01);
      BOOST_TEST(std::abs(y.at(points[i][1]) - (i < 11 ? epoch.loss_mean : epoch.validation_loss)) <
                 0.002 * factor);
    }
  };
  check(1, 0, 0.1);
  check(1.75, 0, 0.2);
  check(3e6, 2e5, 2e5);
  check(1e-7, 0, 1e-8);
}

BOOST_AUTO_TEST_CASE(epochs_are_whole_numbers) {
  esp::History history;
  for (int e = 1; e <= 3; ++e) history.epochs.push_back({.loss_mean = 1.0 * e});
  const auto columns = matches(text_of(history, &esp::History::write_svg),
                               R"re(<line class="axis" x1="([^"]*)".*>([^<]+)</text>)re");
  BOOST_TEST_REQUIRE(columns.size() == 3u);
  for (size_t i = 0; i < 3; ++i) BOOST_TEST(columns[i][1] == static_cast<double>(i + 1));
}

BOOST_AUTO_TEST_CASE(charts_of_little_are_charts) {
  esp::History none, one, constant, broken, huge;
  one.epochs.push_back({.loss_mean = 0.5});
  for (int e = 0; e < 100; ++e) {
    constant.epochs.push_back({.loss_mean = 0});
    broken.epochs.push_back({.loss_mean = not_a_number});
    huge.epochs.push_back({.loss_mean = e % 2 ? -1e300 : 1e300, .validation_loss = 1e-12});
  }
  for (const esp::History& history : {none, one, constant, broken, huge}) {
    const std::string svg = text_of(history, &esp::History::write_svg);
    check_xml(svg);
    BOOST_TEST(svg.find("nan") == std::string::npos);
    BOOST_TEST(svg.find("inf") == std::string::npos);
    BOOST_TEST(svg.size() < 20000u);
  }
  BOOST_TEST(count_of(text_of(one, &esp::History::write_svg), "<circle") == 1u);
  BOOST_CHECK_EXCEPTION(one.write_svg("/nowhere/at/all.svg"), esp::FileError, says({"nowhere", here()}));
  BOOST_CHECK_EXCEPTION(one.write_csv("/nowhere/at/all.csv"), esp::FileError, says({"nowhere", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
