// Event files, read back by a parser of their framing, and by the Python package tensorboard where it is
// there.
#include <stdlib.h>

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/kit/tensorboard/event_messages.h"
#include "espalier/executor/kit/tensorboard/png.h"
#include "espalier/executor/kit/tensorboard/protobuf.h"
#include "espalier/executor/kit/tensorboard/record_file.h"
#include "espalier/executor/kit/tensorboard/tensorboard.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "places.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

uint64_t number_at(const std::string& bytes, size_t at, size_t size) {
  uint64_t number = 0;
  for (size_t i = size; i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes.at(at + i));
  return number;
}

/// The records of a file, whose CRCs are checked.
std::vector<std::string> records_of(const std::filesystem::path& file) {
  const std::string bytes = esp::read_file(file);
  std::vector<std::string> records;
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = number_at(bytes, at, 8);
    BOOST_TEST_REQUIRE(at + size + 16 <= bytes.size());
    BOOST_TEST(number_at(bytes, at + 8, 4) == esp::masked_crc32c(bytes.substr(at, 8)));
    records.push_back(bytes.substr(at + 12, size));
    BOOST_TEST(number_at(bytes, at + 12 + size, 4) == esp::masked_crc32c(records.back()));
    at += size + 16;
  }
  return records;
}

struct Field {
  uint64_t number = 0;  // of integers and numbers of a fixed size
  std::string bytes;    // of all else
};

/// The fields of a message.
std::multimap<uint32_t, Field> fields_of(const std::string& message) {
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (!(byte & 0x80)) return value;
    }
  };
  std::multimap<uint32_t, Field> fields;
  while (at < message.size()) {
    const uint64_t key = varint();
    Field field;
    switch (key & 7) {
      case 0: field.number = varint(); break;
      case 1: field.number = number_at(message, at, 8), at += 8; break;
      case 5: field.number = number_at(message, at, 4), at += 4; break;
      case 2: {
        const size_t size = varint();
        field.bytes = message.substr(at, size);
        BOOST_TEST_REQUIRE(field.bytes.size() == size);
        at += size;
        break;
      }
      default: BOOST_FAIL("a field of type " << (key & 7));
    }
    fields.emplace(static_cast<uint32_t>(key >> 3), field);
  }
  return fields;
}

const Field& only(const std::multimap<uint32_t, Field>& fields, uint32_t number) {
  BOOST_TEST_REQUIRE(fields.count(number) == 1u);
  return fields.find(number)->second;
}

std::string python() {
  const char* named = getenv("ESPALIER_TEST_PYTHON");
  return named ? named : "python3";
}
/// A precondition of cases that read files back.
boost::test_tools::assertion_result has_tensorboard(boost::unit_test::test_unit_id) {
  static const bool has =
      std::system((python() + " '" + places::read_events + "' --available > /dev/null 2>&1").c_str()) == 0;
  boost::test_tools::assertion_result result(has);
  result.message() << "the Python package tensorboard is not there (ESPALIER_TEST_PYTHON names a python)";
  return result;
}
nlohmann::json read_by_tensorboard(const std::filesystem::path& folder) {
  const TemporaryFolder output;
  const auto file = output / "events.json";
  const std::string command = python() + " '" + places::read_events + "' '" + folder.string() + "' > '" +
                              file.string() + "' 2> /dev/null";
  BOOST_TEST_REQUIRE(std::system(command.c_str()) == 0);
  return nlohmann::json::parse(esp::read_file(file));
}

/// A line for each node of a graph: its name, op, inputs, shapes, type and source.
std::vector<std::string> nodes_of(const esp::Variable& root) {
  std::vector<std::string> lines;
  for (const auto& [number, field] : fields_of(esp::graph_message(root).bytes())) {
    if (number != 1) continue;
    const auto node = fields_of(field.bytes);
    std::string line = only(node, 1).bytes + " = " + only(node, 2).bytes;
    for (auto [at, end] = node.equal_range(3); at != end; ++at) line += " " + at->second.bytes;
    std::map<std::string, std::string> attributes;
    for (auto [at, end] = node.equal_range(5); at != end; ++at) {
      const auto entry = fields_of(at->second.bytes);
      attributes[only(entry, 1).bytes] = only(entry, 2).bytes;
    }
    const auto shapes = fields_of(only(fields_of(attributes.at("_output_shapes")), 1).bytes);
    for (auto [at, end] = shapes.equal_range(7); at != end; ++at) {
      line += " [";
      for (const auto& [two, axis] : fields_of(at->second.bytes))
        line += " " + std::to_string(static_cast<int64_t>(only(fields_of(axis.bytes), 1).number));
      line += " ]";
    }
    line += " " + std::to_string(only(fields_of(attributes.at("dtype")), 6).number);
    lines.push_back(line + " " + only(fields_of(attributes.at("line")), 2).bytes);
  }
  return lines;
}

/// A writer that has written images and histograms.
esp::SummaryWriter writer_of_all_kinds(const std::filesystem::path& folder) {
  esp::SummaryWriter writer(folder);
  writer.add_image("grey", esp::tensor({{0.0f, 0.5f}, {1.0f, NAN}}), 1);
  writer.add_image("wide", esp::full({100, 300, 3}, 7, esp::int64), 1);
  writer.add_histogram("h", esp::tensor({0.0f, 1.0f, 2.0f, 64.0f, INFINITY, NAN}), 3);
  writer.add_histogram("same", esp::full({5}, -2.0), 3);
  writer.flush();
  return writer;
}

/// Trains a line for two epochs of two steps with the callback.
esp::History train_with(const esp::AnyCallback& callback, const esp::nn::Dense& layer = esp::nn::Dense(1)) {
  const esp::data::Distributor feed({esp::ones({4, 3}), esp::ones({4, 1})}, {.batch_size = 2});
  const auto in = feed.get_output_graphs();
  const esp::Variable error = layer(in[0]) - in[1];
  const esp::Executor executor = esp::mean(esp::square(error))
                                     .get_executor({.optimizer = esp::optim::Sgd(0.1),
                                                    .validation = feed,
                                                    .outputs = {{"absolute", esp::mean(esp::abs(error))}}});
  executor.use(callback);
  return executor.execute({.epochs = 2, .progress = false});
}

std::filesystem::path only_file_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  BOOST_TEST_REQUIRE(files.size() == 1u);
  return files[0];
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tensorboard)

BOOST_AUTO_TEST_CASE(checksums_are_those_of_the_rfc) {
  // RFC 3720, B.4.
  BOOST_TEST(esp::crc32c(std::string(32, '\0')) == 0x8A9136AAu);
  BOOST_TEST(esp::crc32c(std::string(32, '\xff')) == 0x62A8AB43u);
  BOOST_TEST(esp::crc32c("123456789") == 0xE3069283u);
}

BOOST_AUTO_TEST_CASE(messages_are_encoded) {
  esp::ProtobufMessage message;
  message.add_integer(1, 300).add_integer(2, -1).add_text(3, "abc").add_double(16, 1.5).add_float(5, 0.5f);
  const auto fields = fields_of(message.bytes());
  BOOST_TEST(only(fields, 1).number == 300u);
  BOOST_TEST(only(fields, 2).number == ~uint64_t{0});
  BOOST_TEST(only(fields, 3).bytes == "abc");
  BOOST_TEST(std::bit_cast<double>(only(fields, 16).number) == 1.5);
  BOOST_TEST(std::bit_cast<float>(static_cast<uint32_t>(only(fields, 5).number)) == 0.5f);
  BOOST_TEST(esp::ProtobufMessage().add_integer(1, 150).bytes() == "\x08\x96\x01");  // of the documentation
}

BOOST_AUTO_TEST_CASE(a_writer_makes_records_of_events) {
  const TemporaryFolder folder;
  std::filesystem::path file;
  {
    esp::SummaryWriter writer(folder / "runs/first");
    file = writer.file();
    writer.add_scalar("loss", 0.25, 7);
    writer.add_scalar("loss", NAN, -1);
    writer.flush();
    BOOST_TEST(records_of(file).size() == 3u);
  }
  BOOST_TEST(file.filename().string().starts_with("events.out.tfevents."));
  const auto records = records_of(file);
  const auto version = fields_of(records[0]), event = fields_of(records[1]);
  BOOST_TEST(only(version, 3).bytes == "brain.Event:2");
  BOOST_TEST(std::bit_cast<double>(only(event, 1).number) > 1.7e9);
  BOOST_TEST(only(event, 2).number == 7u);
  const auto value = fields_of(only(fields_of(only(event, 5).bytes), 1).bytes);
  BOOST_TEST(only(value, 1).bytes == "loss");
  BOOST_TEST(std::bit_cast<float>(static_cast<uint32_t>(only(value, 2).number)) == 0.25f);
  // Two writers in one folder have files of their own.
  BOOST_TEST(esp::SummaryWriter(folder / "runs/first").file() != file);
}

BOOST_AUTO_TEST_CASE(images_and_histograms_have_their_values) {
  const auto png = esp::png_of(esp::tensor({{0.0f, 0.5f}, {1.0f, 2.0f}}));
  BOOST_TEST(png.bytes.starts_with("\x89PNG\r\n\x1a\n"));
  BOOST_TEST(png.height == 2);
  BOOST_CHECK_THROW(esp::png_of(esp::ones({2, 2, 2})), esp::ShapeError);
  const TemporaryFolder folder;
  esp::SummaryWriter writer = writer_of_all_kinds(folder.path());
  BOOST_CHECK_EXCEPTION(writer.add_image("bad", esp::ones({4}), 1), esp::ShapeError, says({"[4]", here()}));
  BOOST_CHECK_EXCEPTION(writer.add_histogram("bad", esp::full({2}, NAN), 1), esp::DataError,
                        says({"finite", here()}));
  BOOST_CHECK_EXCEPTION(writer.add_graph({}), esp::Error, says({"undefined", here()}));
  const auto value =
      fields_of(only(fields_of(only(fields_of(records_of(writer.file())[3]), 5).bytes), 1).bytes);
  const auto histogram = fields_of(only(value, 5).bytes);
  const double numbers[] = {0, 64, 4, 67, 4101};  // least, largest, count, sum, squares
  for (uint32_t i = 0; i < 5; ++i)
    BOOST_TEST(std::bit_cast<double>(only(histogram, i + 1).number) == numbers[i]);
  const std::string &limits = only(histogram, 6).bytes, &counts = only(histogram, 7).bytes;
  BOOST_TEST_REQUIRE(limits.size() == 64u * 8);
  BOOST_TEST_REQUIRE(counts.size() == 64u * 8);
  for (size_t i = 0; i < 64; ++i) {
    BOOST_TEST(std::bit_cast<double>(number_at(limits, 8 * i, 8)) == static_cast<double>(i + 1));
    const double expected = i == 0 ? 2 : i == 1 || i == 63 ? 1 : 0;
    BOOST_TEST(std::bit_cast<double>(number_at(counts, 8 * i, 8)) == expected);
  }
}

BOOST_AUTO_TEST_CASE(hyperparameters_are_numbers_words_and_flags) {
  const esp::HyperParameters values{{"lr", 0.25}, {"net", std::string("small")}, {"bias", true}};
  const auto of_plugin = [](const esp::ProtobufMessage& value, const std::string& tag, uint32_t field) {
    const auto fields = fields_of(value.bytes());
    BOOST_TEST(only(fields, 1).bytes == tag);
    const auto plugin = fields_of(only(fields_of(only(fields, 9).bytes), 1).bytes);
    BOOST_TEST(only(plugin, 1).bytes == "hparams");
    return fields_of(only(fields_of(only(plugin, 2).bytes), field).bytes);
  };
  const auto start = of_plugin(esp::session_start_value(values), "_hparams_/session_start_info", 3);
  const auto experiment = of_plugin(esp::experiment_value(values, {"loss"}), "_hparams_/experiment", 2);
  BOOST_TEST_REQUIRE(start.count(1) == 3u);
  BOOST_TEST_REQUIRE(experiment.count(4) == 3u);
  std::map<std::string, std::multimap<uint32_t, Field>> given;
  std::map<std::string, uint64_t> types;
  for (auto [at, last] = start.equal_range(1); at != last; ++at) {
    const auto entry = fields_of(at->second.bytes);
    given[only(entry, 1).bytes] = fields_of(only(entry, 2).bytes);
  }
  for (auto [at, last] = experiment.equal_range(4); at != last; ++at) {
    const auto entry = fields_of(at->second.bytes);
    types[only(entry, 1).bytes] = only(entry, 4).number;
  }
  BOOST_TEST(std::bit_cast<double>(only(given["lr"], 2).number) == 0.25);
  BOOST_TEST(only(given["net"], 3).bytes == "small");
  BOOST_TEST(only(given["bias"], 4).number == 1u);
  BOOST_TEST((types == std::map<std::string, uint64_t>{{"bias", 2}, {"lr", 3}, {"net", 1}}));
}

BOOST_AUTO_TEST_CASE(a_graph_has_names_operands_shapes_and_types) {
  const esp::Variable x = esp::placeholder("x", {-1, 3}),
                      w = esp::parameter(esp::ones({3, 3}), "\xc3\xa9 w/2");
  const auto [q, r] = esp::qr(w);
  const esp::Variable first = esp::matmul(x, q);
  const auto [second, line] = std::pair(esp::matmul(x, r), here());
  const std::vector<std::string> expected{"source = source [ -1 3 ]",
                                          "n___w_2 = \xc3\xa9 w/2 [ 3 3 ]",
                                          "qr = qr n___w_2 [ 3 3 ] [ 3 3 ]",
                                          "matmul = matmul source qr [ -1 3 ]",
                                          "matmul_1 = matmul source qr:1 [ -1 3 ]",
                                          "add = add matmul matmul_1 [ -1 3 ]"};
  const std::vector<std::string> nodes = nodes_of(first + second);
  BOOST_TEST_REQUIRE(nodes.size() == expected.size());
  for (size_t i = 0; i < nodes.size(); ++i)
    BOOST_TEST(nodes[i].starts_with(expected[i] + " 1 tensorboard_test.cpp:"));
  BOOST_TEST(nodes[4].ends_with(" " + line));
  const std::pair<esp::DType, int> types[] = {
      {esp::float32, 1}, {esp::float64, 2}, {esp::int32, 3},    {esp::uint8, 4},     {esp::int16, 5},
      {esp::int8, 6},    {esp::int64, 9},   {esp::boolean, 10}, {esp::bfloat16, 14}, {esp::float16, 19}};
  for (const auto& [dtype, number] : types)
    BOOST_TEST(nodes_of(esp::zeros({2}, dtype))[0].starts_with("constant = constant [ 2 ] " +
                                                               std::to_string(number) + " "));
}

BOOST_AUTO_TEST_CASE(tensorboard_reads_images_and_histograms,
                     *boost::unit_test::precondition(has_tensorboard)) {
  const TemporaryFolder folder;
  (void)writer_of_all_kinds(folder.path());
  const auto read = read_by_tensorboard(folder.path());
  BOOST_TEST(read.at("images").at("grey").at("rows") == nlohmann::json({0, 0, 128, 0, 255, 0}));
  const auto& wide = read.at("images").at("wide");
  BOOST_TEST(wide.at("width") == 300);
  BOOST_TEST(wide.at("rows").size() == 100u * 901);
  BOOST_TEST(wide.at("rows").back() == 7);
  const auto& h = read.at("histograms").at("h");
  BOOST_TEST(h.at("num") == 4);
  BOOST_TEST(h.at("sum") == 67);
  BOOST_TEST(h.at("limits").back() == 64);
  double count = 0;
  for (const double c : h.at("counts")) count += c;
  BOOST_TEST(count == 4);
  BOOST_TEST(h.at("counts")[0] == 2);  // 0 and 1, up to the first limit
  BOOST_TEST(read.at("histograms").at("same").at("counts") == nlohmann::json({5}));
}

BOOST_AUTO_TEST_CASE(a_run_is_written) {
  const TemporaryFolder folder;
  (void)train_with(esp::TensorBoard(folder / "a", {.scalars_every = 1, .histograms_every = 1}));
  BOOST_TEST(records_of(only_file_in(folder / "a")).size() > 10u);
}

BOOST_AUTO_TEST_CASE(a_further_run_goes_on_behind_the_one_before) {
  const TemporaryFolder folder;
  const esp::data::Distributor feed({esp::ones({4, 3}), esp::ones({4, 1})}, {.batch_size = 2});
  const auto in = feed.get_output_graphs();
  const esp::Executor executor = esp::mean(esp::square(esp::nn::Dense(1)(in[0]) - in[1]))
                                     .get_executor({.optimizer = esp::optim::Sgd(0.1)});
  executor.use(esp::TensorBoard(folder / "a", {.scalars_every = 1}));
  for (const int64_t epochs : {2, 1, 1}) executor.execute({.epochs = epochs, .progress = false});
  std::map<std::string, std::multiset<uint64_t>> steps;
  for (const auto& file : std::filesystem::directory_iterator(folder / "a"))
    for (const std::string& record : records_of(file.path())) {
      const auto event = fields_of(record);
      if (!event.contains(2) || !event.contains(5)) continue;
      const auto summary = fields_of(only(event, 5).bytes);
      for (auto [at, end] = summary.equal_range(1); at != end; ++at)
        steps[only(fields_of(at->second.bytes), 1).bytes].insert(only(event, 2).number);
    }
  BOOST_TEST((steps.at("step/loss") == std::multiset<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  BOOST_TEST((steps.at("epoch/loss") == std::multiset<uint64_t>{1, 2, 3, 4}));
}

BOOST_AUTO_TEST_CASE(tensorboard_reads_a_run, *boost::unit_test::precondition(has_tensorboard)) {
  const TemporaryFolder folder;
  const esp::nn::Dense layer(1);
  const esp::History history = train_with(
      esp::TensorBoard(
          folder / "a",
          {.scalars_every = 1, .histograms_every = 1, .module = layer, .values = {{"note", "first"}}}),
      layer);
  const auto read = read_by_tensorboard(folder / "a");
  const auto& scalars = read.at("scalars");
  const auto check = [&](const char* tag, double first, double second) {
    const auto& points = scalars.at(tag);
    BOOST_TEST_REQUIRE(points.size() == 2u);
    BOOST_TEST(points[0][0] == 1);
    BOOST_TEST(points[1][0] == 2);
    BOOST_TEST(points[0][1].get<double>() == first, boost::test_tools::tolerance(1e-6));
    BOOST_TEST(points[1][1].get<double>() == second, boost::test_tools::tolerance(1e-6));
  };
  const auto &a = history.epochs[0], &b = history.epochs[1];
  check("epoch/loss", a.loss_mean, b.loss_mean);
  check("epoch/validation_loss", a.validation_loss, b.validation_loss);
  check("epoch/absolute", a.outputs.at("absolute"), b.outputs.at("absolute"));
  check("epoch/validation_absolute", a.validation_outputs.at("absolute"),
        b.validation_outputs.at("absolute"));
  check("epoch/learning_rate", 0.1, 0.1);
  BOOST_TEST(scalars.at("step/loss").size() == 4u);
  BOOST_TEST(read.at("histograms").contains("parameters/weight"));
  BOOST_TEST(read.at("histograms").at("parameters/bias").at("num") == 1);
  const auto& parameters = read.at("hyperparameters");
  BOOST_TEST(parameters.at("lr") == 0.1);
  BOOST_TEST(parameters.at("optimizer") == "Sgd");
  BOOST_TEST(parameters.at("note") == "first");
  BOOST_TEST(read.at("status") == 1);
  BOOST_TEST(read.at("metrics")[0] == "epoch/loss");
  std::set<std::string> names;
  bool product = false;
  for (const auto& node : read.at("graph")) {
    for (const auto& input : node[2])
      BOOST_TEST(names.count(input.get<std::string>().substr(0, input.get<std::string>().find(':'))) == 1u);
    BOOST_TEST(names.insert(node[0]).second);
    product |= node[1] == "matmul";
  }
  BOOST_TEST(product);
}

BOOST_AUTO_TEST_CASE(runs_listen_to_steps_only_if_they_write_them) {
  const TemporaryFolder folder;
  const auto step = static_cast<size_t>(esp::Event::step_finish);
  BOOST_TEST(!esp::AnyCallback(esp::TensorBoard(folder.path())).events()[step]);
  BOOST_TEST(esp::AnyCallback(esp::TensorBoard(folder.path(), {.scalars_every = 5})).events()[step]);
  BOOST_CHECK_EXCEPTION(esp::TensorBoard(""), esp::FileError, says({"folder", here()}));
  BOOST_CHECK_EXCEPTION(esp::TensorBoard("a", {.scalars_every = -1}), esp::Error, says({"negative", here()}));
  BOOST_CHECK_THROW(train_with(esp::TensorBoard(folder.write("file", "") / "sub")), esp::FileError);
}

BOOST_AUTO_TEST_CASE(errors_of_a_run_have_the_line_of_the_callback) {
  const TemporaryFolder folder;
  (void)folder.write("file", "");
  const std::string made = "tensorboard_test.cpp:" + std::to_string(__LINE__ + 1);
  const esp::TensorBoard board(folder / "file/runs");
  BOOST_CHECK_EXCEPTION(train_with(board), esp::FileError, says({"file/runs", made}));
}

BOOST_AUTO_TEST_SUITE_END()
