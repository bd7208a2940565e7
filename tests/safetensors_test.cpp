// The safetensors format, and saving and loading modules by it.
#include <boost/test/unit_test.hpp>

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>

#include "espalier/core/error.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/serialize.h"
#include "espalier/ops/ops.h"
#include "file_errors.h"
#include "temporary_folder.h"

namespace esp = espalier;
using espalier::testing::file_error, espalier::testing::has;
namespace fs = std::filesystem;
using esp::nn::Dense;

namespace {

struct Folder : esp::testing::TemporaryFolder {
  fs::path file() const { return path() / "some.safetensors"; }
};

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& file, const std::string& bytes) {
  fs::remove(file);  // overwriting is slow on some file systems
  std::ofstream(file, std::ios::binary) << bytes;
}

std::string with_length(uint64_t length, const std::string& rest) {
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + rest;
}

/// A file with this header and `data` bytes of data.
std::string raw(const std::string& header, size_t data) {
  return with_length(header.size(), header + std::string(data, '\1'));
}

void refuses(const fs::path& file, const std::string& bytes, const std::string& reason) {
  write(file, bytes);
  BOOST_TEST_INFO(reason);
  BOOST_CHECK_EXCEPTION(esp::read_safetensors(file), esp::FileError,
                        esp::testing::says({file.string(), reason}));
}

bool same(const esp::Tensor& a, const esp::Tensor& b) {
  const esp::Tensor x = a.contiguous_copy(), y = b.contiguous_copy();
  return x.spec() == y.spec() && (x.bytes() == 0 || std::memcmp(x.address(), y.address(), x.bytes()) == 0);
}

esp::nn::Sequential called_model() {
  esp::nn::Sequential model{Dense(4), esp::nn::Relu(), Dense(2)};
  model(esp::ones({1, 3}));
  return model;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(safetensors)

BOOST_AUTO_TEST_CASE(all_types_and_shapes_come_back) {
  const Folder folder;
  const esp::NamedTensors tensors{
      {"double", esp::tensor({1.5, -0.0, HUGE_VAL}, esp::float64)},
      {"long", esp::tensor_from(std::vector<int64_t>{INT64_MIN, INT64_MAX}, {2, 1})},
      {"float", esp::randn({3, 4})},
      {"scalar", esp::tensor(2.5f)},
      {"empty", esp::zeros({3, 0, 2})},
      {"view", esp::arange(12).reshape({3, 4}).slice(1, 1, 3)},
      {"übung \"1\"\n", esp::tensor_from(std::vector<int32_t>{-7}, {1})},
      {"bool", esp::tensor_from(std::vector<bool>{true, false, true}, {3})},
  };
  const esp::FileNotes notes{{"by", "a test"}, {"", ""}};
  esp::write_safetensors(folder.file(), tensors, notes);
  esp::FileNotes notes_back;
  const esp::NamedTensors back = esp::read_safetensors(folder.file(), &notes_back);
  BOOST_TEST((notes == notes_back));
  BOOST_REQUIRE(back.size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    BOOST_TEST_INFO(name);
    const auto found =
        std::find_if(back.begin(), back.end(), [&](const auto& pair) { return pair.first == name; });
    BOOST_REQUIRE(found != back.end());
    BOOST_TEST(same(found->second, tensor));
  }
  BOOST_TEST(folder.files() == 1u);
  esp::write_safetensors(folder.file(), {});
  BOOST_TEST(esp::read_safetensors(folder.file()).empty());
}

BOOST_AUTO_TEST_CASE(the_bytes_are_those_of_the_format) {
  const Folder folder;
  esp::write_safetensors(folder.file(), {{"a", esp::tensor({1.0f, 2.0f})}});
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  const std::string data("\0\0\x80\x3f\0\0\0\x40", 8);
  BOOST_TEST(read(folder.file()) == with_length(padded.size(), padded + data));

  // Files of other writers: metadata, unsorted entries, unknown fields, white space.
  write(
      folder.file(),
      raw(R"({"__metadata__":{"format":"pt"}, "b" : {"extra":[1],"data_offsets":[2,6],"dtype":"I32","shape":[]},)"
          R"("a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}}  )",
          6));
  const esp::NamedTensors tensors = esp::read_safetensors(folder.file());
  BOOST_REQUIRE(tensors.size() == 2u);
  BOOST_TEST(tensors[0].first == "a");
  BOOST_TEST(tensors[1].second.item<int32_t>() == 0x01010101);
}

BOOST_AUTO_TEST_CASE(bools_are_zero_or_one) {
  const Folder folder;
  const std::string header = R"({"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  write(folder.file(), with_length(header.size(), header + std::string("\0\xff\2", 3)));
  BOOST_TEST(same(esp::read_safetensors(folder.file())[0].second,
                  esp::tensor_from(std::vector<bool>{false, true, true}, {3})));
}

BOOST_AUTO_TEST_CASE(malformed_files_are_refused) {
  const Folder folder;
  const fs::path file = folder.file();
  refuses(file, "", "too short");
  refuses(file, "1234567", "too short");
  refuses(file, with_length(0, ""), "no JSON object");
  refuses(file, with_length(INT64_MAX, "{}"), "only 2 follow");
  refuses(file, with_length(UINT64_MAX, "{}"), "only 2 follow");
  refuses(file, with_length(3, "{}"), "only 2 follow");
  refuses(file, raw("[]", 0), "no JSON object");
  refuses(file, raw(" {}", 0), "no JSON object");
  refuses(file, raw("{", 0), "malformed");
  refuses(file, raw("{}x", 0), "malformed");
  refuses(file, raw("{\"\xff\":1}", 0), "malformed");
  refuses(file, raw("{}", 1), "1 bytes of data");
  refuses(file, raw(R"({"a":1})", 0), "'a' without dtype");
  refuses(file, raw(R"({"a":{"dtype":"F32","shape":[]}})", 0), "'a' without dtype");
  refuses(file, raw(R"({"__metadata__":1})", 0), "__metadata__");
  refuses(file, raw(R"({"__metadata__":{"a":1}})", 0), "__metadata__");
  refuses(file, raw(R"({"a":{},"a":{}})", 0), "'a' twice");
  refuses(file, raw(R"({"a":{"dtype":"F32","dtype":"F64"}})", 0), "'dtype' twice");

  // dtype, shape, data_offsets, bytes of data, part of the message
  const std::tuple<const char*, const char*, const char*, size_t, const char*> rows[] = {
      {R"("F8_E8M0")", "[2]", "[0,2]", 2, "\"F8_E8M0\", which is not supported"},
      {R"("f32")", "[1]", "[0,4]", 4, "not supported"},
      {"32", "[1]", "[0,4]", 4, "wrong kind"},
      {"{\"a\":[1]}", "[1]", "[0,4]", 4, "nested more deeply"},
      {R"("F32")", "1", "[0,4]", 4, "wrong kind"},
      {R"("F32")", "[1]", "4", 4, "wrong kind"},
      {R"("F32")", "[-1]", "[0,4]", 4, "-1 in its shape"},
      {R"("F32")", "[1.0]", "[0,4]", 4, "1.0 in its shape"},
      {R"("F32")", "[1e0]", "[0,4]", 4, "1.0 in its shape"},
      {R"("F32")", "[null]", "[0,4]", 4, "null in its shape"},
      {R"("F32")", "[\"1\"]", "[0,4]", 4, "\"1\" in its shape"},
      {R"("F32")", "[true]", "[0,4]", 4, "true in its shape"},
      {R"("F32")", "[NaN]", "[0,4]", 4, "malformed"},
      {R"("F32")", "[[1]]", "[0,4]", 4, "nested more deeply"},
      {R"("F32")", "[9223372036854775808]", "[0,4]", 4, "in its shape"},
      {R"("F32")", "[1e400]", "[0,4]", 4, "malformed"},
      {R"("F32")", "[99999999999999999999999]", "[0,4]", 4, "in its shape"},
      {R"("F32")", "[4611686018427387904]", "[0,4]", 4, "no memory holds"},
      {R"("F32")", "[4294967296,4294967296]", "[0,4]", 4, "no memory holds"},
      {R"("F32")", "[0,4294967296,4294967296]", "[0,0]", 0, "no memory holds"},
      {R"("F32")", "[1099511627776]", "[0,4398046511104]", 4, "outside the file's 4 bytes"},
      {R"("F32")", "[1]", "[0,4]", 3, "outside the file's 3 bytes"},
      {R"("F32")", "[1]", "[4,0]", 4, "outside the file's 4 bytes"},
      {R"("F32")", "[1]", "[-4,0]", 4, "data_offsets [-4,0]"},
      {R"("F32")", "[1]", "[0,4.0]", 4, "data_offsets"},
      {R"("F32")", "[1]", "[0]", 4, "data_offsets [0]"},
      {R"("F32")", "[1]", "[0,4,8]", 8, "data_offsets [0,4,8]"},
      {R"("F32")", "[1]", "[0,18446744073709551615]", 4, "data_offsets"},
      {R"("F32")", "[2]", "[0,4]", 4, "[2] take 8"},
      {R"("F32")", "[]", "[0,8]", 8, "[] take 4"},
      {R"("F32")", "[0]", "[0,4]", 4, "[0] take 0"},
      {R"("F32")", "[1]", "[0,4]", 5, "5 bytes of data"},
      {R"("F32")", "[1]", "[1,5]", 5, "starts at byte 1"},
  };
  for (const auto& [dtype, shape, offsets, data, reason] : rows) {
    const std::string fields[] = {dtype, shape, offsets};
    refuses(file,
            raw("{\"a\":{\"dtype\":" + fields[0] + ",\"shape\":" + fields[1] +
                    ",\"data_offsets\":" + fields[2] + "}}",
                data),
            reason);
  }
  // Overlap, and a gap.
  const std::string a =
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":)";
  refuses(file, raw(a + "[0,4]}}", 4), "'b' that starts at byte 0");
  refuses(file, raw(a + "[2,6]}}", 6), "'b' that starts at byte 2");
  refuses(file, raw(a + "[5,9]}}", 9), "'b' that starts at byte 5");
}

BOOST_AUTO_TEST_CASE(deep_nesting_is_refused_at_once) {
  const Folder folder;
  const std::string deep(1'000'000, '[');
  refuses(folder.file(), raw("{\"a\":" + deep, 0), "nested");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  refuses(folder.file(), raw(objects, 0), "nested");
}

BOOST_AUTO_TEST_CASE(what_is_no_file_is_refused) {
  const Folder folder;
  BOOST_TEST(has(file_error([&] { esp::read_safetensors(folder.path() / "none"); }), "none"));
  BOOST_TEST(has(file_error([&] { esp::read_safetensors(folder.path()); }), "not a regular file"));
  BOOST_TEST(has(file_error([&] { esp::read_safetensors("/dev/zero"); }), "not a regular file"));
}

// A damaged file gives a FileError, or tensors within its bytes.
BOOST_AUTO_TEST_CASE(truncations_and_bit_flips_never_crash) {
  const Folder folder;
  esp::write_safetensors(folder.file(),
                         {{"weight", esp::randn({2, 3})},
                          {"mask", esp::tensor_from(std::vector<bool>{true, false, true}, {3})},
                          {"empty", esp::zeros({0})}},
                         {{"note", "x"}});
  const std::string whole = read(folder.file());
  int read_well = 0, refused = 0;
  auto attempt = [&](const std::string& bytes) {
    write(folder.file(), bytes);
    try {
      int64_t total = 0;
      for (const auto& [name, tensor] : esp::read_safetensors(folder.file()))
        total += static_cast<int64_t>(tensor.bytes());
      BOOST_REQUIRE(total < static_cast<int64_t>(whole.size()));
      ++read_well;
    } catch (const esp::FileError&) {
      ++refused;
    }
  };
  for (size_t length = 0; length < whole.size(); ++length) attempt(whole.substr(0, length));
  BOOST_TEST(read_well == 0);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    attempt(bytes);
  }
  uint64_t random = 88172645463325252u;  // two and more changes at once
  auto next = [&] { return random ^= random << 13, random ^= random >> 7, random ^= random << 17, random; };
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = whole;
    for (uint64_t changes = 2 + next() % 4; changes-- > 0;)
      bytes[next() % bytes.size()] = static_cast<char>(next());
    attempt(bytes);
  }
  BOOST_TEST(read_well > 100);  // flips in the data, in names and in notes
  BOOST_TEST(refused > 1000);
}

BOOST_AUTO_TEST_CASE(failed_writes_leave_the_old_file) {
  const Folder folder;
  const esp::Tensor big = esp::zeros({100'000});
  esp::write_safetensors(folder.file(), {{"old", esp::tensor({1.0f})}});
  const std::string before = read(folder.file());

  // Simulates a full disk by a limit on the size of files.
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{100'000, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string full = file_error([&] { esp::write_safetensors(folder.file(), {{"new", big}}); });
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  BOOST_TEST(has(full, "some.safetensors"), full);
  BOOST_TEST(has(full, "File too large"), full);

  const esp::Tensor one = esp::tensor({1.0f});
  BOOST_TEST(has(file_error([&] {
                   esp::write_safetensors(folder.file(), {{"a", one}, {"a", one}});
                 }),
                 "'a'"));
  BOOST_TEST(has(file_error([&] {
                   esp::write_safetensors(folder.file(), {{"__metadata__", one}});
                 }),
                 "__metadata__"));
  BOOST_TEST(has(file_error([&] {
                   esp::write_safetensors(folder.file(), {{"\xff", one}});
                 }),
                 "some.safetensors"));
  BOOST_TEST(has(file_error([&] {
                   esp::write_safetensors(folder.file(), {{"a", esp::Tensor()}});
                 }),
                 "undefined"));
  BOOST_TEST(read(folder.file()) == before);
  BOOST_TEST(folder.files() == 1u);

  const std::string missing = file_error([&] {
    esp::write_safetensors(folder.path() / "no" / "file", {{"a", one}});
  });
  BOOST_TEST(has(missing, "no/file"), missing);
  BOOST_TEST(has(missing, "No such file or directory"), missing);
  BOOST_TEST(has(file_error([&] { esp::write_safetensors(folder.path(), {}); }), folder.path().string()));
  BOOST_TEST(has(file_error([&] { esp::write_safetensors("", {}); }), "an empty path"));
}

BOOST_AUTO_TEST_CASE(modules_are_saved_and_loaded) {
  const Folder folder;
  const esp::nn::Sequential model = called_model();
  esp::nn::save(model, folder.file());
  const esp::Tensor x = esp::randn({5, 3});
  const esp::Tensor expected = model(x).value();

  esp::nn::Sequential fresh{Dense(4), esp::nn::Relu(), Dense(2)};  // its widths come from the file
  esp::nn::load(fresh, folder.file());
  BOOST_TEST(fresh.parameters().size() == 4u);
  BOOST_TEST(same(fresh(x).value(), expected));
  BOOST_CHECK_THROW(fresh(esp::ones({1, 5})), esp::ShapeError);

  esp::nn::Sequential used = called_model();
  const esp::Variable weight = used.parameter("0.weight");
  esp::nn::load(used, folder.file());
  BOOST_TEST(same(used(x).value(), expected));
  BOOST_TEST(used.parameter("0.weight").node() == weight.node());  // the same leaves, so optimizers go on

  esp::nn::Sequential doubles{Dense(4), Dense(2)};
  doubles(esp::ones({1, 3}, esp::float64));
  esp::nn::save(doubles, folder.file());
  esp::nn::Sequential learns{Dense(4), Dense(2)};
  esp::nn::load(learns, folder.file());
  BOOST_TEST(learns.parameter("1.bias").dtype() == esp::float64);
}

BOOST_AUTO_TEST_CASE(a_loaded_value_is_the_modules_own) {
  const Folder folder;
  Dense first(2), second(2);
  first(esp::ones({1, 2}));
  esp::nn::save(first, folder.file());
  const esp::Variable y = esp::sum(first(esp::ones({1, 2})));
  const double before = y.item();
  esp::set_value(first.parameter("weight"), esp::zeros({2, 2}));
  esp::nn::load(first, folder.file());
  BOOST_TEST(esp::sum(first(esp::ones({1, 2}))).item() == before);
}

BOOST_AUTO_TEST_CASE(loading_is_all_or_nothing) {
  const Folder folder;
  const esp::Tensor w = esp::zeros({4, 3}), b = esp::zeros({4}), v = esp::zeros({2, 4}), c = esp::zeros({2});
  auto complains = [&](const esp::NamedTensors& tensors, std::initializer_list<const char*> parts) {
    esp::write_safetensors(folder.file(), tensors);
    esp::nn::Sequential called = called_model(), fresh{Dense(4), esp::nn::Relu(), Dense(2)};
    std::vector<esp::Tensor> before;
    for (const auto& [name, parameter] : called.parameters()) before.push_back(parameter.value().clone());
    for (const esp::nn::Sequential& model : {called, fresh}) {
      const std::string what = file_error([&] { esp::nn::load(model, folder.file()); });
      for (const char* part : parts) BOOST_TEST(has(what, part), what << " lacks " << part);
      BOOST_TEST(has(what, "some.safetensors"), what);
      BOOST_TEST(has(what, "safetensors_test.cpp"), what);
    }
    for (size_t i = 0; i < before.size(); ++i)
      BOOST_TEST(same(called.parameters()[i].second.value(), before[i]));
    BOOST_TEST(fresh.parameters().empty());
  };
  complains({{"0.weight", w}, {"0.bias", b}, {"2.weight", v}}, {"2.bias"});
  complains({}, {"0.weight, 0.bias, 2.weight, 2.bias"});
  complains({{"0.weight", w}, {"0.bias", b}, {"2.weight", v}, {"2.bias", c}, {"more", c}, {"yet", c}},
            {"more, yet"});
  complains({{"0.weight", w}, {"0.bias", b}, {"2.weight", v}, {"2.bias", b}}, {"2.bias", "[2]", "[4]"});
  complains({{"0.weight", w}, {"0.bias", b}, {"2.weight", w}, {"2.bias", c}}, {"2.weight", "[2, ", "[4, 3]"});
  complains({{"0.weight", w}, {"0.bias", b}, {"2.weight", c}, {"2.bias", c}}, {"2.weight", "[2]"});
  complains({{"0.weight", w}, {"0.bias", b}, {"2.weight", v}, {"2.bias", c.to(esp::float64)}},
            {"2.bias", "float64"});
  complains({{"0.weight", w}, {"0.bias", b}, {"2.weight", v.to(esp::int64)}, {"2.bias", c.to(esp::int64)}},
            {"2.weight", "float32", "int64"});
}

BOOST_AUTO_TEST_CASE(what_has_no_shape_yet_cannot_be_saved) {
  const Folder folder;
  try {
    esp::nn::save(Dense(3), folder.file());
    BOOST_FAIL("it threw nothing");
  } catch (const esp::Error& error) {
    BOOST_TEST(has(error.what(), "weight"));
  }
  BOOST_TEST(folder.files() == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
