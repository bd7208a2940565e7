// Executor::export_c: networks as C code compute what their executors compute, forward and after 100 steps.
#include <boost/test/unit_test.hpp>

#include "c_module.h"
#include "espalier/espalier.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr double tolerance = 1e-5;
constexpr int steps = 100;

Tensor values(const esp::Shape& shape, uint64_t which) {
  return numbers(shape, -1, 1, which).to(esp::float32);
}
Tensor classes(const esp::Shape& shape, int64_t count, uint64_t which) {
  Tensor result(shape, esp::int64);
  uint64_t state = 88172645463325252u + 977 * which;
  for (int64_t& x : result.span<int64_t>()) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    x = static_cast<int64_t>(state % static_cast<uint64_t>(count));
  }
  return result;
}

/// A network with placeholders, and values for them by the number of a step.
struct Network {
  Variable output, loss;
  esp::optim::Optimizer optimizer;
  std::function<esp::Feeds(int step)> inference, training;
};

const void* address(const Tensor& tensor) { return tensor.address(); }

/// Calls an exported function with the addresses of inputs and of `results`, in this order.
int call(void* function, const esp::Feeds& feeds, std::vector<void*> results) {
  std::vector<void*> all;
  for (const auto& [name, value] : feeds) all.push_back(const_cast<void*>(address(value)));
  all.insert(all.end(), results.begin(), results.end());
  using P = void*;
  switch (all.size()) {
    case 2: return reinterpret_cast<int (*)(P, P)>(function)(all[0], all[1]);
    case 3: return reinterpret_cast<int (*)(P, P, P)>(function)(all[0], all[1], all[2]);
    case 4: return reinterpret_cast<int (*)(P, P, P, P)>(function)(all[0], all[1], all[2], all[3]);
    default: BOOST_FAIL("no such call"); return -1;
  }
}
void* entry(const CModule& module, const std::string& name) {
  return reinterpret_cast<void*>(module.function<void()>(name));
}

void check_network(const Network& network) {
  const TemporaryFolder folder;
  const auto trainer =
      network.loss.get_executor({.mode = esp::Mode::training, .optimizer = network.optimizer});
  // The random numbers of the first step are those that come next when the code is written.
  (void)trainer.export_c(folder / "net.c", {.predict = network.output});
  const CModule code(folder / "net.c");
  code.function<void()>("net_init")();
  const auto check_forward = [&](double most) {
    const auto feeds = network.inference(1000);
    const Tensor expected = network.output.get_executor({.mode = esp::Mode::inference}).run(feeds);
    Tensor result(expected.shape());
    BOOST_TEST(call(entry(code, "net_run"), feeds, {result.address()}) == 0);
    BOOST_TEST(difference(result, expected) < most);
  };
  check_forward(tolerance);
  double largest = 0;
  for (int step = 0; step < steps; ++step) {
    const auto feeds = network.training(step);
    const double expected = trainer.run(feeds).item();
    float loss = 0;
    BOOST_REQUIRE(call(entry(code, "net_step"), feeds, {&loss}) == 0);
    largest = std::max(largest, std::abs(loss - expected) / (1 + std::abs(expected)));
  }
  BOOST_TEST(largest < tolerance);
  check_forward(tolerance);
}

Network mlp() {
  const Variable x = esp::placeholder("x", {4, 16}), y = esp::placeholder("y", {4}, esp::int64);
  const esp::nn::Sequential net{esp::nn::Dense(24), esp::nn::Relu(), esp::nn::Dropout(0.25),
                                esp::nn::Dense(10)};
  const Variable output = net(x);
  return {output, esp::nn::SoftmaxCrossEntropy()(output, y), esp::optim::Adam({.lr = 1e-3}),
          [](int i) {
            return esp::Feeds{{"x", values({4, 16}, i)}};
          },
          [](int i) {
            return esp::Feeds{{"x", values({4, 16}, i)}, {"y", classes({4}, 10, i)}};
          }};
}

Network convolutional() {
  const Variable x = esp::placeholder("x", {3, 2, 8, 8}), y = esp::placeholder("y", {3}, esp::int64);
  const esp::nn::Sequential net{esp::nn::Conv2d(4, {.kernel = 3, .padding = 1}),
                                esp::nn::BatchNorm(),
                                esp::nn::Relu(),
                                esp::nn::MaxPool2d({.kernel = 2}),
                                esp::nn::Conv2d(6, {.kernel = 3, .stride = 2, .padding = 1, .groups = 2}),
                                esp::nn::Tanh(),
                                esp::nn::AvgPool2d({.kernel = 2}),
                                esp::nn::Lambda([](const Variable& v) { return esp::flatten(v, 1); }),
                                esp::nn::Dense(5)};
  const Variable output = net(x);
  return {output, esp::nn::SoftmaxCrossEntropy()(output, y), esp::optim::Sgd({.lr = 1e-2, .momentum = 0.9}),
          [](int i) {
            return esp::Feeds{{"x", values({3, 2, 8, 8}, i)}};
          },
          [](int i) {
            return esp::Feeds{{"x", values({3, 2, 8, 8}, i)}, {"y", classes({3}, 5, i)}};
          }};
}

Network lstm_step() {
  const Variable x = esp::placeholder("x", {2, 5}), h = esp::placeholder("h", {2, 6}),
                 c = esp::placeholder("c", {2, 6});
  const esp::nn::LSTMCell cell(5, 6);
  const auto [next_h, next_c] = cell(x, esp::nn::LSTMState{h, c});
  const Variable output = esp::concat(std::vector<Variable>{next_h, next_c}, 1);
  const auto feeds = [](int i) {
    return esp::Feeds{{"x", values({2, 5}, i)}, {"h", values({2, 6}, i + 1)}, {"c", values({2, 6}, i + 2)}};
  };
  return {output, esp::mean(esp::square(next_h - 0.5)) + esp::mean(esp::square(next_c)),
          esp::optim::RmsProp({.lr = 1e-3}), feeds, feeds};
}

Network transformer() {
  const Variable tokens = esp::placeholder("tokens", {2, 6}, esp::int64),
                 y = esp::placeholder("y", {2, 6}, esp::int64);
  const esp::nn::Embedding embedding(11, 8);
  const esp::nn::LayerNorm first, second;
  const esp::nn::Dense q(8), k(8), v(8), o(8), up(16), down(8), head(11);
  Variable x = embedding(tokens);
  const Variable z = first(x);
  const Variable weights = esp::softmax(esp::matmul(q(z), esp::transpose(k(z))) * 0.35, -1);
  x = x + o(esp::matmul(weights, v(z)));
  x = x + down(esp::gelu(up(second(x))));
  const Variable output = head(x);
  return {output, esp::nn::SoftmaxCrossEntropy()(output, y), esp::optim::AdamW({.lr = 1e-3}),
          [](int i) {
            return esp::Feeds{{"tokens", classes({2, 6}, 11, i)}};
          },
          [](int i) {
            return esp::Feeds{{"tokens", classes({2, 6}, 11, i)}, {"y", classes({2, 6}, 11, i + 7)}};
          }};
}

/// Layers whose recurrences and attention are ops of their own.
Network sequences() {
  const Variable tokens = esp::placeholder("tokens", {5, 2}, esp::int64),
                 y = esp::placeholder("y", {2}, esp::int64);
  const esp::nn::Embedding embedding(11, 8);
  const esp::nn::Lstm lstm(8, 6, {.bidirectional = true});
  const esp::nn::Gru gru(12, 8);
  const esp::nn::TransformerEncoder encoder(2, 8, 2, {.feedforward = 16, .dropout = 0});
  const Variable steps = gru(lstm(embedding(tokens)).outputs).outputs;
  const Variable output = esp::nn::Dense(5)(esp::mean(encoder(esp::transpose(steps, {1, 0, 2})), 1));
  return {output, esp::nn::SoftmaxCrossEntropy()(output, y), esp::optim::Adam({.lr = 1e-3}),
          [](int i) {
            return esp::Feeds{{"tokens", classes({5, 2}, 11, i)}};
          },
          [](int i) {
            return esp::Feeds{{"tokens", classes({5, 2}, 11, i)}, {"y", classes({2}, 5, i + 7)}};
          }};
}

Network recomputed() {
  const Variable x = esp::placeholder("x", {4, 6}), y = esp::placeholder("y", {4}, esp::int64);
  const esp::nn::Dense first(8), second(8), head(5);
  Variable h = x;
  for (const esp::nn::Dense& dense : {first, second})
    h = esp::recompute([&](const Variable& v) { return esp::tanh(dense(v)) * 0.7; }, h);
  const Variable output = head(h);
  return {output, esp::nn::SoftmaxCrossEntropy()(output, y), esp::optim::Adam({.lr = 1e-3}),
          [](int i) {
            return esp::Feeds{{"x", values({4, 6}, i)}};
          },
          [](int i) {
            return esp::Feeds{{"x", values({4, 6}, i)}, {"y", classes({4}, 5, i)}};
          }};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(c_export)

BOOST_AUTO_TEST_CASE(layers_of_sequences_learn_in_c) {
  esp::seed(13);
  check_network(sequences());
}

BOOST_AUTO_TEST_CASE(blocks_that_are_computed_again_learn_in_c) {
  esp::seed(12);
  check_network(recomputed());
}

BOOST_AUTO_TEST_CASE(inputs_and_outputs_may_have_any_name) {
  const TemporaryFolder folder;
  int number = 0;
  for (const char* name : {"M_PI", "NULL", "INFINITY", "NAN", "bool", "class", "new", "HUGE_VALF", "int32_t",
                           "isnan", "INT64_MAX", "FP_NAN", "or", "while", "i", "x"}) {
    const std::string file = "net" + std::to_string(number++) + ".c";
    const Variable x = esp::placeholder(name, {3});
    const auto executor = (x * 2.0).get_executor(
        {.mode = esp::Mode::inference, .outputs = {{"template", x + 1.0}, {"M_E", x - 1.0}}});
    (void)executor.export_c(folder / file, {.name = "net"});
    const CModule code(folder / file);
    // Its declarations are those of a header of C++.
    const auto header = folder / "header.cpp";
    std::ofstream(header) << "#include <cmath>\n#define NET_DECLARATIONS_ONLY\n#include \"" << file << "\"\n";
    BOOST_TEST(runs("c++ -Wall -Werror -fsyntax-only " + header.string()), name);
    float in[3] = {1, 2, 3}, doubled[3], more[3], less[3];
    BOOST_TEST(code.function<int(const float*, float*, float*, float*)>("net_run")(in, doubled, more, less) ==
               0);
    BOOST_TEST(doubled[2] == 6);
    BOOST_TEST(more[2] == 4);
    BOOST_TEST(less[2] == 2);
  }
}

BOOST_AUTO_TEST_CASE(a_perceptron_with_dropout_and_adam_learns_in_c) {
  esp::seed(3);
  check_network(mlp());
}

BOOST_AUTO_TEST_CASE(a_convolutional_network_with_batch_statistics_and_pooling_learns_in_c) {
  esp::seed(4);
  check_network(convolutional());
}

BOOST_AUTO_TEST_CASE(a_step_of_an_lstm_learns_in_c) {
  esp::seed(5);
  check_network(lstm_step());
}

BOOST_AUTO_TEST_CASE(a_transformer_learns_in_c) {
  esp::seed(6);
  check_network(transformer());
}

BOOST_AUTO_TEST_CASE(optimizers_and_schedules_learn_in_c) {
  using namespace esp::optim;
  const std::vector<std::pair<std::string, Optimizer>> optimizers{
      {"schedule", Adam({.lr = 1e-3, .schedule = step_decay({.every = 10, .factor = 0.5})})},
      {"lamb", Lamb({.lr = 1e-3})},
      {"adafactor", Adafactor({.lr = 1e-2})}};
  const TemporaryFolder folder;
  for (const auto& [name, optimizer] : optimizers) {
    esp::seed(9);
    const Network network = mlp();
    const auto trainer = network.loss.get_executor({.mode = esp::Mode::training, .optimizer = optimizer});
    (void)trainer.export_c(folder / (name + ".c"), {.name = "net"});
    const CModule code(folder / (name + ".c"));
    code.function<void()>("net_init")();
    for (int step = 0; step < 30; ++step) {
      const auto feeds = network.training(step);
      float loss = 0;
      BOOST_TEST(call(entry(code, "net_step"), feeds, {&loss}) == 0);
      BOOST_TEST(std::abs(loss - trainer.run(feeds).item()) < tolerance * 4, name << " in step " << step);
    }
  }
}

BOOST_AUTO_TEST_CASE(states_are_saved_loaded_and_reset) {
  esp::seed(7);
  const Network network = mlp();
  const TemporaryFolder folder;
  const auto trainer =
      network.loss.get_executor({.mode = esp::Mode::training, .optimizer = network.optimizer});
  const esp::ExportedSizes sizes = trainer.export_c(folder / "net.c");
  const CModule code(folder / "net.c");
  const auto init = code.function<void()>("net_init");
  const auto save = code.function<void(unsigned char*)>("net_save");
  const auto load = code.function<int(const unsigned char*, long)>("net_load");
  const auto step = [&](int i) {
    float loss = 0;
    BOOST_TEST(call(entry(code, "net_step"), network.training(i), {&loss}) == 0);
    return loss;
  };
  init();
  std::vector<unsigned char> saved(static_cast<size_t>(sizes.states) + 24);
  const float first = step(0);
  save(saved.data());
  const float second = step(1);
  BOOST_TEST(load(saved.data(), static_cast<long>(saved.size())) == 0);
  BOOST_TEST(step(1) == second);  // also by the same random numbers
  init();
  BOOST_TEST(step(0) == first);
  saved[100] ^= 1;
  BOOST_TEST(load(saved.data(), static_cast<long>(saved.size())) == 1);
  BOOST_TEST(load(saved.data(), static_cast<long>(saved.size()) - 1) == 1);
  code.function<void(float)>("net_set_learning_rate")(0);
  std::vector<unsigned char> before(saved.size()), after(saved.size());
  save(before.data());
  (void)step(2);
  save(after.data());
  const auto weight = [](const std::vector<unsigned char>& bytes) {
    return std::vector(bytes.begin() + 24, bytes.begin() + 64);
  };
  BOOST_TEST(weight(before) == weight(after), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(states_of_other_shapes_are_not_loaded) {
  const TemporaryFolder folder;
  std::vector<unsigned char> saved;
  for (const esp::Shape& shape : {esp::Shape{2, 3}, esp::Shape{3, 2}}) {
    const Variable x = esp::placeholder("x", shape), w = esp::parameter(values(shape, 1), "w");
    const std::string file = shape == esp::Shape{2, 3} ? "a.c" : "b.c";
    const esp::ExportedSizes sizes = esp::mean(esp::square(x * w))
                                         .get_executor({.optimizer = esp::optim::Sgd(0.1)})
                                         .export_c(folder / file);
    const CModule code(folder / file);
    const std::string name = file.substr(0, 1);
    code.function<void()>(name + "_init")();
    const bool first = saved.empty();
    if (first) {
      saved.resize(static_cast<size_t>(sizes.states) + 24);
      code.function<void(unsigned char*)>(name + "_save")(saved.data());
    }
    const auto load = code.function<int(const unsigned char*, long)>(name + "_load");
    BOOST_TEST(load(saved.data(), static_cast<long>(saved.size())) == (first ? 0 : 1));
  }
}

BOOST_AUTO_TEST_CASE(weights_go_into_tables_of_their_own_or_a_file_to_load) {
  esp::seed(8);
  const Network network = mlp();
  const auto executor = network.output.get_executor({.mode = esp::Mode::inference});
  const auto feeds = network.inference(3);
  const Tensor expected = executor.run(feeds);
  Tensor result(expected.shape());
  const TemporaryFolder folder;
  (void)executor.export_c(folder / "linked.c", {.weights = folder / "tables.c"});
  const CModule linked(folder / "linked.c", (folder / "tables.c").string());
  BOOST_TEST(call(entry(linked, "linked_run"), feeds, {result.address()}) == 0);
  BOOST_TEST(difference(result, expected) < tolerance);

  const esp::ExportedSizes sizes =
      executor.export_c(folder / "code.c", {.name = "small", .weights = folder / "small.bin"});
  BOOST_TEST(sizes.constants == 0);
  const CModule loaded(folder / "code.c");
  const std::string bytes = text_of(folder / "small.bin");
  const auto load = loaded.function<int(const unsigned char*, long)>("small_load");
  BOOST_TEST(load(reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<long>(bytes.size())) ==
             0);
  Tensor again(expected.shape());
  BOOST_TEST(call(entry(loaded, "small_run"), feeds, {again.address()}) == 0);
  BOOST_TEST(difference(again, expected) < tolerance);
  BOOST_TEST(!loaded.has("small_init"));
}

BOOST_AUTO_TEST_CASE(a_step_that_meets_a_bad_index_says_so_and_changes_nothing) {
  const Network network = transformer();
  const TemporaryFolder folder;
  const auto trainer =
      network.loss.get_executor({.mode = esp::Mode::training, .optimizer = network.optimizer});
  const esp::ExportedSizes sizes = trainer.export_c(folder / "net.c");
  const CModule code(folder / "net.c");
  code.function<void()>("net_init")();
  std::vector<unsigned char> before(static_cast<size_t>(sizes.states) + 24), after(before.size());
  code.function<void(unsigned char*)>("net_save")(before.data());
  auto feeds = network.training(0);
  feeds[1].second.span<int64_t>()[3] = 11;
  float loss = 0;
  BOOST_TEST(call(entry(code, "net_step"), feeds, {&loss}) > 0);
  code.function<void(unsigned char*)>("net_save")(after.data());
  BOOST_TEST(before == after, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(columns_of_a_distributor_become_inputs_of_as_many_rows_as_are_asked_for) {
  const Tensor x = values({10, 3}, 1), y = values({10, 1}, 2);
  const esp::data::Distributor feed({x, y}, {.batch_size = 5});
  const auto [a, b] = feed.get_output_graphs<2>();
  const esp::nn::Dense dense(1);
  const Variable output = dense(a), loss = esp::mean(esp::square(output - b));
  const auto trainer = loss.get_executor({.mode = esp::Mode::training,
                                          .optimizer = esp::optim::Sgd({.lr = 0.1}),
                                          .outputs = {{"output", output}}});
  const TemporaryFolder folder;
  (void)trainer.export_c(folder / "net.c", {.rows = 1});
  const CModule code(folder / "net.c");
  code.function<void()>("net_init")();
  float of_row = 0, result = 0;
  BOOST_TEST(call(entry(code, "net_step"), {{"column_0", x}, {"column_1", y}}, {&of_row, &result}) == 0);
  const float expected = dense(Variable(x)).value().span<float>()[0], off = expected - y.span<float>()[0];
  BOOST_TEST(std::abs(result - expected) < tolerance);
  BOOST_TEST(std::abs(of_row - off * off) < tolerance);
  BOOST_CHECK_EXCEPTION((void)trainer.export_c(folder / "net.c", {.rows = -1}), esp::Error,
                        says({"rows", "-1"}));
}

BOOST_AUTO_TEST_CASE(what_has_no_code_is_refused_with_its_line) {
  const TemporaryFolder folder;
  const auto file = folder / "net.c";
  const Variable x = esp::placeholder("x", {4, 3});
  const auto executor_of = [](const Variable& v) { return v.get_executor({.mode = esp::Mode::inference}); };
  const std::string line = here();
  const Variable sorted = esp::cumsum(x, 1) * 2.0;
  BOOST_CHECK_EXCEPTION(
      (void)executor_of(sorted).export_c(file), esp::UnsupportedError,
      says({"export_c", "cumsum",
            "c_export_test.cpp:" + std::to_string(std::stoi(line.substr(line.find(':') + 1)) + 1)}));
  const Variable bytes = esp::placeholder("b", {4}, esp::uint8);
  BOOST_CHECK_EXCEPTION((void)executor_of(esp::cast(bytes, esp::float32) * 2.0).export_c(file),
                        esp::UnsupportedError, says({"export_c", "uint8"}));
  const Variable open = esp::placeholder("open", {-1, 3});
  BOOST_CHECK_EXCEPTION((void)executor_of(open * 2.0).export_c(file), esp::Error,
                        says({"export_c", "shapes"}));
  const auto trainer = esp::mean(esp::nn::Dense(1)(x))
                           .get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.1)});
  BOOST_CHECK_EXCEPTION((void)trainer.export_c(file, {.predict = esp::placeholder("q", {3})}), esp::Error,
                        says({"export_c", ".predict"}));
  BOOST_TEST(!std::filesystem::exists(file));
  (void)executor_of(open * 2.0).export_c(file, {.shapes = {{"open", {2, 3}}}});
  BOOST_CHECK_EXCEPTION((void)executor_of(x * 2.0).export_c(file, {.shapes = {{"other", {2, 3}}}}),
                        esp::DataError, says({"export_c", "other"}));
  BOOST_CHECK_EXCEPTION((void)executor_of(x * 2.0).export_c(file, {.name = "7up"}), esp::Error,
                        says({"7up"}));
  BOOST_CHECK_EXCEPTION((void)executor_of(x * 2.0).export_c(folder / "no" / "net.c"), esp::FileError,
                        says({"net.c"}));
  const auto replicas =
      (x * 2.0).get_executor({.mode = esp::Mode::inference, .devices = {esp::cpu(0), esp::cpu(1)}});
  BOOST_CHECK_EXCEPTION((void)replicas.export_c(file), esp::UnsupportedError, says({"one device"}));
  const auto lower = esp::matmul(x, esp::transpose(x))
                         .get_executor({.mode = esp::Mode::inference, .precision = esp::Precision::bfloat16});
  BOOST_CHECK_EXCEPTION((void)lower.export_c(file), esp::UnsupportedError, says({"float32"}));
}

BOOST_AUTO_TEST_SUITE_END()
