#include "espalier/data/cifar.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "malformed_files.h"
#include "temporary_folder.h"

using namespace espalier;
using testing::MalformedFile, testing::says;

namespace {

/// A record: labels, and pixels that count up from `first`.
std::string record(const std::string& labels, int first = 0) {
  std::string bytes = labels;
  for (int i = 0; i < 3072; ++i) bytes.push_back(static_cast<char>((first + i) % 251));
  return bytes;
}
std::string of10(int label, int first = 0) { return record({static_cast<char>(label)}, first); }
std::string of100(int coarse, int fine, int first = 0) {
  return record({static_cast<char>(coarse), static_cast<char>(fine)}, first);
}

struct Folder {
  data::Cifar10 read10(const std::string& bytes) const {
    return data::read_cifar10(folder.write("some.bin", bytes));
  }
  data::Cifar100 read100(const std::string& bytes) const {
    return data::read_cifar100(folder.write("some.bin", bytes));
  }
  testing::TemporaryFolder folder;
};

std::vector<int64_t> list(const Tensor& tensor) {
  const auto values = tensor.span<int64_t>();
  return {values.begin(), values.end()};
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cifar_files, Folder)

BOOST_AUTO_TEST_CASE(files) {
  const data::Cifar10 ten = read10(of10(9, 5) + of10(0, 7) + of10(3));
  BOOST_TEST((ten.images.spec() == Spec{DType::uint8, {3, 3, 32, 32}}));
  BOOST_TEST(list(ten.labels) == (std::vector<int64_t>{9, 0, 3}));
  BOOST_TEST(ten.images.at<uint8_t>({1, 2, 31, 30}) == (7 + 2 * 1024 + 31 * 32 + 30) % 251);
  BOOST_TEST(ten.images.at<uint8_t>({0, 0, 0, 0}) == 5);

  const data::Cifar100 hundred = read100(of100(19, 99, 1) + of100(0, 42, 2));
  BOOST_TEST((hundred.images.spec() == Spec{DType::uint8, {2, 3, 32, 32}}));
  BOOST_TEST(list(hundred.labels) == (std::vector<int64_t>{99, 42}));
  BOOST_TEST(list(hundred.coarse_labels) == (std::vector<int64_t>{19, 0}));
  BOOST_TEST(hundred.images.at<uint8_t>({1, 0, 0, 1}) == 3);
}

BOOST_AUTO_TEST_CASE(folders) {
  for (int i = 1; i <= 5; ++i)
    folder.write("data_batch_" + std::to_string(i) + ".bin", of10(i) + of10(i - 1));
  folder.write("test_batch.bin", of10(8));
  BOOST_TEST(list(data::read_cifar10(folder.path()).labels) ==
             (std::vector<int64_t>{1, 0, 2, 1, 3, 2, 4, 3, 5, 4}));
  BOOST_TEST(list(data::read_cifar10(folder.path(), {.test = true}).labels) == (std::vector<int64_t>{8}));
  BOOST_CHECK_EXCEPTION(data::read_cifar100(folder.path()), FileError, says({"train.bin", "cifar_test.cpp"}));
  folder.write("train.bin", of100(1, 2));
  folder.write("test.bin", of100(3, 4));
  BOOST_TEST(list(data::read_cifar100(folder.path()).labels) == (std::vector<int64_t>{2}));
  BOOST_TEST(list(data::read_cifar100(folder.path(), {.test = true}).coarse_labels) ==
             (std::vector<int64_t>{3}));
  folder.write("data_batch_4.bin", of10(4) + "x");
  BOOST_CHECK_EXCEPTION(data::read_cifar10(folder.path()), FileError,
                        says({"data_batch_4.bin", "3074 bytes"}));
  std::filesystem::remove(folder / "data_batch_3.bin");
  BOOST_CHECK_EXCEPTION(data::read_cifar10(folder.path()), FileError, says({"data_batch_3.bin"}));
  BOOST_CHECK_THROW(data::read_cifar10(folder / "none"), FileError);
}

BOOST_AUTO_TEST_CASE(what_is_no_file_of_cifar10) {
  const std::string good = of10(1);
  testing::refuses_all([&](const std::string& bytes) { (void)read10(bytes); },
                       {{"", {"some.bin", "0 bytes", "3073", "cifar_test.cpp"}},
                        {"\x01", {"1 bytes"}},
                        {good.substr(0, 3072), {"3072 bytes"}},
                        {good.substr(1), {"3072 bytes"}},
                        {good + "\x01", {"3074 bytes", "CIFAR-100"}},
                        {of100(1, 1), {"3074 bytes", "CIFAR-100"}},
                        {of100(1, 1) + of100(1, 1), {"6148 bytes", "CIFAR-100"}},
                        {good + good.substr(0, 1), {"no whole number"}},
                        {good + good.substr(0, 3072), {"6145 bytes"}},
                        {good + good + std::string(1, '\0'), {"6147 bytes"}},
                        {of10(10), {"label 10", "record 0", "below 10"}},
                        {of10(11), {"label 11"}},
                        {of10(99), {"label 99"}},
                        {of10(127), {"label 127"}},
                        {of10(128), {"label 128"}},
                        {of10(255), {"label 255", "some.bin"}},
                        {good + of10(10), {"record 1"}},
                        {of10(10) + good, {"record 0"}},
                        {good + good + of10(200) + good, {"label 200", "record 2"}},
                        {std::string(3073, '\xff'), {"label 255"}},
                        {std::string(2 * 3073, ' '), {"label 32", "record 0"}},
                        {"\x1f\x8b" + good, {"3075 bytes"}},
                        {"PK" + good.substr(2), {"label 80"}},
                        {std::string(3072, '\0'), {"3072 bytes"}},
                        {std::string(3, '\0'), {"3 bytes"}}});
}

BOOST_AUTO_TEST_CASE(what_is_no_file_of_cifar100) {
  const std::string good = of100(1, 1);
  testing::refuses_all([&](const std::string& bytes) { (void)read100(bytes); },
                       {{"", {"some.bin", "0 bytes", "3074", "cifar_test.cpp"}},
                        {"\x01\x01", {"2 bytes"}},
                        {good.substr(0, 3073), {"3073 bytes", "CIFAR-10"}},
                        {of10(1), {"CIFAR-10"}},
                        {of10(1) + of10(1), {"6146 bytes", "CIFAR-10"}},
                        {good + "\x01", {"3075 bytes"}},
                        {good + good.substr(0, 3073), {"6147 bytes"}},
                        {good.substr(2), {"3072 bytes"}},
                        {of100(20, 1), {"coarse label 20", "record 0", "below 20"}},
                        {of100(21, 99), {"coarse label 21"}},
                        {of100(99, 1), {"coarse label 99"}},
                        {of100(128, 1), {"coarse label 128"}},
                        {of100(255, 1), {"coarse label 255"}},
                        {of100(1, 100), {"fine label 100", "below 100"}},
                        {of100(19, 101), {"fine label 101"}},
                        {of100(0, 128), {"fine label 128"}},
                        {of100(0, 255), {"fine label 255"}},
                        {of100(255, 255), {"coarse label 255"}},
                        {good + of100(20, 1), {"coarse", "record 1"}},
                        {good + of100(1, 100), {"fine", "record 1"}},
                        {good + good + of100(1, 200), {"record 2"}},
                        {std::string(3074, '\xff'), {"coarse label 255"}}});
}

BOOST_AUTO_TEST_CASE(damage) {
  const std::string whole = of10(1) + of10(2);
  for (size_t length = 0; length < whole.size(); length += 5)
    BOOST_CHECK_THROW(read10(whole.substr(0, length)), FileError);
  BOOST_CHECK_NO_THROW(read10(whole.substr(0, 3073)));
}

BOOST_AUTO_TEST_SUITE_END()
