// espalier-run, espalier-train and espalier-inspect as child processes, and the C interface from C and
// Python.
#include <boost/test/unit_test.hpp>

#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "checkpoint_program.h"
#include "espalier/data/csv.h"
#include "espalier/data/npy.h"
#include "espalier/data/npz.h"
#include "places.h"
#include "plan_programs.h"
#include "program_runs.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

Outcome run(const TemporaryFolder& folder, const std::string& command) {
  return run_program(folder, std::string(places::programs) + "/" + command);
}

void check_fails(const TemporaryFolder& folder, const std::string& command, int code,
                 const std::string& said) {
  const Outcome outcome = run(folder, command);
  BOOST_TEST(outcome.code == code, command << ": " << outcome.code << ", " << outcome.error);
  BOOST_TEST(outcome.error.find(said) != std::string::npos, command << ": " << outcome.error);
  BOOST_TEST(std::count(outcome.error.begin(), outcome.error.end(), '\n') == 1, outcome.error);
  BOOST_TEST(outcome.error.starts_with("espalier-"), outcome.error);
}

/// Writes the plan of a classifier of digits that has not been trained, and its data.
void write_digits(const TemporaryFolder& folder) {
  esp::seed(1);
  const Tensor table = esp::data::read_csv(std::string(places::sample_tables) + "/digits.csv");
  const Tensor pixels = (esp::slice(table, 1, 0, 64) / 16).value();
  const Tensor labels = esp::cast(esp::slice(table, 1, 64, 65), esp::int64).value().reshape({-1});
  const auto [train, test] = esp::data::split({pixels, labels}, 0.8, 1);
  esp::data::write_npz(folder / "train.npz", {{"pixels", train[0]}, {"labels", train[1]}});
  esp::data::write_npz(folder / "test.npz", {{"labels", test[1]}, {"pixels", test[0].to(esp::float64)}});
  esp::data::write_npz(folder / "other.npz", {{"pixels", test[1]}});
  const esp::data::Distributor feed(train, {.batch_size = 64});
  const auto [x, y] = feed.get_output_graphs<2>();
  const esp::nn::Sequential network{esp::nn::Dense(96), esp::nn::Relu(), esp::nn::Dense(10)};
  const Variable logits = network(x);
  esp::nn::SoftmaxCrossEntropy()(logits, y)
      .get_executor({.optimizer = esp::optim::Adam(3e-3),
                     .outputs = {{"accuracy", esp::mean(esp::cast(esp::equal(esp::argmax(logits, 1), y),
                                                                  esp::float32))}}})
      .save(folder / "digits.plan", {.columns = {"pixels", "labels"}});
}

void write_small(const TemporaryFolder& folder) {
  esp::seed(3);
  const Variable x = esp::placeholder("x", {-1, 6}), hidden = plan_networks()[0].outputs(x);
  esp::softmax(hidden).get_executor({.outputs = {{"hidden", hidden}}}).save(folder / "small.plan");
  esp::data::write_npy(folder / "x.npy", reals_of({5, 6}, 7).to(esp::float64));
  esp::data::write_npy(folder / "narrow.npy", reals_of({5, 4}, 7));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(programs)

BOOST_AUTO_TEST_CASE(a_plan_runs_in_another_process) {
  const TemporaryFolder folder;
  write_small(folder);
  const esp::Executor executor = esp::load_executor(folder / "small.plan");
  const Tensor expected = executor.run({{"x", reals_of({5, 6}, 7)}});
  for (const std::string threads : {"1", "2"}) {
    const Outcome outcome = run(
        folder,
        "espalier-run small.plan --input x=x.npy --output y.npy --output hidden=h.npy --threads " + threads);
    BOOST_TEST(outcome.code == 0, outcome.error);
    BOOST_TEST(difference(esp::data::read_npy(folder / "y.npy"), expected) < 1e-6);
    BOOST_TEST(difference(esp::data::read_npy(folder / "h.npy"), executor.output("hidden")) < 1e-6);
  }
  BOOST_TEST(run(folder, "espalier-run --device cpu --device cpu --input x.npy small.plan").out ==
             "value float32 [5, 3]\n");
  for (const auto& [program, option] : {std::pair("espalier-run", "--input"),
                                        {"espalier-train", "--validation"},
                                        {"espalier-inspect", "--html"}}) {
    const Outcome help = run(folder, program + std::string(" --help"));
    BOOST_TEST(help.code == 0);
    BOOST_TEST(help.out.find(option) != std::string::npos, help.out);
  }
  BOOST_TEST(run(folder, "espalier-run --version").code == 0);
}

BOOST_AUTO_TEST_CASE(a_rank_outside_of_its_job_is_not_believed) {
  const TemporaryFolder folder;
  const std::string command = command_in(folder, "OMPI_COMM_WORLD_SIZE=-3 OMPI_COMM_WORLD_RANK=9") +
                              places::programs + "/espalier-run --version >out 2>error";
  BOOST_TEST(std::system(command.c_str()) == 0, text_of(folder / "error"));
  BOOST_TEST(text_of(folder / "out") != "");  // only the first process of a job writes
}

BOOST_AUTO_TEST_CASE(errors_are_one_line_and_a_code) {
  const TemporaryFolder folder;
  write_small(folder);
  folder.write("broken.plan", text_of(folder / "small.plan").substr(0, 900));
  check_fails(folder, "espalier-run", 64, "plan is required");
  check_fails(folder, "espalier-run small.plan --inputs x", 64, "--inputs");
  check_fails(folder, "espalier-run small.plan --input z=x.npy", 64, "no input 'z'; the plan has x");
  check_fails(folder, "espalier-run small.plan --input x=x.npy --device tpu", 64, "tpu");
  check_fails(folder, "espalier-run broken.plan --input x=x.npy", 65, "broken.plan is incomplete");
  check_fails(folder, "espalier-run x.npy --input x=x.npy", 65, "x.npy is no plan file");
  check_fails(folder, "espalier-run small.plan", 64, "--input gives no 'x'");
  check_fails(folder, "espalier-run small.plan --input x=x.npy --input x=x.npy", 64, "'x' twice");
  check_fails(folder, "espalier-run small.plan --input x=", 66, "an empty path cannot be opened");
  BOOST_REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  for (const char* arguments :
       {"pipe --input x=x.npy", "small.plan --input x=pipe", "small.plan --input x=."})
    check_fails(folder, std::string("espalier-run ") + arguments, 66, "it is no regular file");
  esp::data::write_npy(folder / "bytes.npy", esp::ones({5, 6}).to(esp::uint8));
  check_fails(folder, "espalier-run small.plan --input x=bytes.npy", 65, "takes float32, not uint8");
  check_fails(folder, "espalier-run small.plan --input x=x.npy --output nope=q.npy", 64,
              "no output 'nope'; the plan has value, hidden");
  check_fails(folder, "espalier-run small.plan --input x=x.npy --output a.npy --output hidden=./a.npy", 64,
              "a.npy is that of 'value'");
  for (const char* threads : {"0", "-1", "1.5", "4097", "100000"})
    check_fails(folder, std::string("espalier-run small.plan --input x=x.npy --threads ") + threads, 64,
                "is no whole number from 1 to 4096");
  check_fails(folder, "espalier-run small.plan --input x=narrow.npy", 65, "[5, 4]");
  check_fails(folder, "espalier-run none.plan --input x=x.npy", 66, "none.plan");
  check_fails(folder, "espalier-run small.plan --input x=none.npy", 66, "none.npy");
  check_fails(folder, "espalier-run small.plan --input x=x.npy --output none/y.npy", 73, "none/y.npy");
  check_fails(folder, "espalier-train small.plan --data x.npz --save y.plan", 65, "saved for inference");
  check_fails(folder, "espalier-inspect small.plan --html a.html", 64, "--shape");
  check_fails(folder, "espalier-inspect small.plan --shape y=8,6", 64, "--shape y=8,6");
  check_fails(folder, "espalier-inspect small.plan --shape x=8,7", 64, "'x' takes [-1, 6]");
  check_fails(folder, "espalier-inspect small.plan --shape x=8", 64, "'x' takes [-1, 6]");
}

BOOST_AUTO_TEST_CASE(a_training_that_cannot_be_written_does_not_begin) {
  const TemporaryFolder folder;
  write_digits(folder);
  const std::string train = "espalier-train digits.plan --data train.npz ", save = "--save a.plan ";
  const auto fails = [&](const std::string& arguments, int code, const std::string& said) {
    check_fails(folder, train + arguments, code, said);
    BOOST_TEST(text_of(folder / "out") == "", arguments);
    BOOST_TEST(!std::filesystem::exists(folder / "a.plan"), arguments);
  };
  std::filesystem::create_directory(folder / "taken");
  fails(save + "--history none/h.csv", 73, "none/h.csv");
  fails(save + "--history taken", 73, "taken");
  fails("--save taken", 73, "taken");
  fails(save + "--history a.plan", 64, "one file");
  fails(save + "--checkpoint /proc/ck", 73, "/proc/ck cannot be made");
  fails(save + "--checkpoint ck --resume", 66, "ck");
  for (const char* option : {"--checkpoint ck --checkpoint-every -5", "--checkpoint ck --checkpoint-every 0",
                             "--seed -1", "--seed 18446744073709551616", "--epochs 0", "--batch-size 0"})
    fails(save + option, 64, "is no whole number");
}

BOOST_AUTO_TEST_CASE(a_training_ends_or_goes_on_at_nan) {
  const TemporaryFolder folder;
  write_digits(folder);
  const auto arrays = esp::data::read_npz(folder / "train.npz");
  esp::data::write_npz(folder / "nan.npz", {{"pixels", (Variable(arrays[0].second) * NAN).value()},
                                            {"labels", arrays[1].second}});
  const std::string train = "espalier-train digits.plan --data nan.npz --quiet --save a.plan";
  check_fails(folder, train, 65, "--ignore-nan goes on");
  BOOST_TEST(!std::filesystem::exists(folder / "a.plan"));
  BOOST_TEST(run(folder, train + " --ignore-nan").code == 0);
  BOOST_TEST(std::filesystem::exists(folder / "a.plan"));
}

BOOST_AUTO_TEST_CASE(digits_are_learned_without_code) {
  const TemporaryFolder folder;
  write_digits(folder);
  const Outcome outcome = run(folder,
                              "espalier-train digits.plan --data train.npz --validation test.npz --epochs 20 "
                              "--save out.plan --history history.csv --checkpoint checkpoints --seed 2");
  BOOST_TEST(outcome.code == 0, outcome.error);
  BOOST_TEST(outcome.out.find("epoch 20/20 loss ") != std::string::npos, outcome.out);
  const size_t last = outcome.out.rfind("validation_accuracy ");
  BOOST_REQUIRE(last != std::string::npos);
  BOOST_TEST(std::stod(outcome.out.substr(last + 20)) >= 0.97, outcome.out);
  BOOST_TEST(text_of(folder / "history.csv").find("validation_accuracy") != std::string::npos);
  BOOST_TEST(!std::filesystem::is_empty(folder / "checkpoints"));
  // It goes on where it ended.
  const Outcome more = run(folder, "espalier-train out.plan --data train.npz --save out.plan");
  BOOST_TEST(more.code == 0, more.error);
  const auto loss_of = [](const std::string& text, size_t from) {
    return std::stod(text.substr(text.find("loss ", from) + 5));
  };
  BOOST_TEST(loss_of(more.out, 0) < 0.5 * loss_of(outcome.out, 0));
  check_fails(folder, "espalier-train digits.plan --data other.npz --save a.plan", 65, "--columns");
  check_fails(folder, "espalier-train digits.plan --data none.npz --save a.plan", 66, "none.npz");
  check_fails(folder, "espalier-train digits.plan --data train.npz --save none/a.plan", 73, "none/a.plan");
}

BOOST_AUTO_TEST_CASE(two_distributors_have_a_file_each) {
  const TemporaryFolder folder;
  esp::seed(4);
  const Tensor x = reals_of({12, 3}, 1), y = reals_of({12, 2}, 2);
  esp::data::write_npz(folder / "x.npz", {{"x", x}});
  esp::data::write_npz(folder / "y.npz", {{"target", y}});
  const esp::data::DistributorOptions batching{.batch_size = 4, .shuffle = true};
  const esp::data::Distributor inputs({x}, batching), targets({y}, batching);
  const Variable loss = esp::mean(
      esp::square(esp::nn::Dense(2)(inputs.get_output_graphs<1>()[0]) - targets.get_output_graphs<1>()[0]));
  const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Adam(0.05)});
  executor.save(folder / "two.plan", {.columns = {"x", "y"}});
  const std::string bare = "espalier-train two.plan --data x.npz --data y.npz --save out.plan --epochs 3 ",
                    train = bare + "--columns x,target ";
  const Outcome outcome = run(folder, train + "--threads 1");
  BOOST_TEST(outcome.code == 0, outcome.error);
  const double expected = executor.execute({.epochs = 3, .progress = false}).epochs.back().loss_mean;
  const auto last_loss = [](const std::string& out) {
    return std::stod(out.substr(out.rfind(" loss ") + 6));
  };
  BOOST_TEST(std::abs(last_loss(outcome.out) - expected) < 1e-5, outcome.out);
  BOOST_TEST(run(folder, "espalier-inspect out.plan").out.find("column y float32") != std::string::npos);
  // Without a learning rate nothing changes.
  const Outcome still = run(folder, train + "--in-order --set lr=0");
  BOOST_TEST(still.code == 0, still.error);
  BOOST_TEST(last_loss(still.out) > 1.05 * expected, still.out);
  check_fails(folder, train + "--set lr", 64, "lr=0.001");
  check_fails(folder, train + "--set rate=1", 65, "'rate'");
  check_fails(folder, train + "--data x.npz", 64, "2 Distributors");
  check_fails(folder, train + "--validation x.npz", 64, "--validation");
  check_fails(folder, bare, 65, "--columns");
  check_fails(folder, bare + "--columns x", 65, "--columns");
  check_fails(folder, "espalier-train two.plan --data x.npz --save out.plan", 64, "2 Distributors");
}

BOOST_AUTO_TEST_CASE(arrays_belong_to_columns_by_their_names) {
  const TemporaryFolder folder;
  const Tensor x = reals_of({8, 1}, 1), y = reals_of({8, 1}, 2);
  const esp::data::Distributor feed({x, y}, {.batch_size = 4});
  const auto [in, target] = feed.get_output_graphs<2>();
  const esp::Executor executor = esp::mean(esp::square(esp::nn::Dense(1)(in) - target))
                                     .get_executor({.optimizer = esp::optim::Sgd(0.1)});
  executor.save(folder / "named.plan", {.columns = {"x", "y"}});
  executor.save(folder / "numbered.plan");
  const auto train = [&](const std::string& plan) {
    return "espalier-train " + plan + " --data data.npz --save out.plan --quiet";
  };
  const auto write = [&](const esp::NamedTensors& arrays) {
    esp::data::write_npz(folder / "data.npz", arrays);
  };
  write({{"y", y}, {"z", y}, {"x", x}});
  BOOST_TEST(run(folder, train("named.plan")).code == 0);
  for (const auto& [first, second] : {std::pair("y", "X"), {"target", "input"}}) {
    write({{first, y}, {second, x}});
    check_fails(folder, train("named.plan"), 65, "--columns");
    BOOST_TEST(run(folder, train("named.plan") + " --columns " + second + "," + first).code == 0);
    BOOST_TEST(run(folder, train("numbered.plan")).code == 0);
  }
  write({{"column_1", y}, {"x", x}});
  check_fails(folder, train("numbered.plan"), 65, "--columns");
}

BOOST_AUTO_TEST_CASE(training_goes_on_in_another_process) {
  const TemporaryFolder folder;
  const std::string train = "espalier-train trained.plan --data data.npz --epochs 2 --quiet --save out.plan ";
  for (const PlanNetwork& network : plan_networks()) BOOST_TEST_CONTEXT(network.name) {
      esp::seed(8);
      const Tensor y = reals_of({network.x.shape()[0], 3}, 9);
      esp::data::write_npz(folder / "data.npz", {{"x", network.x}, {"y", y}});
      esp::data::write_npy(folder / "x.npy", network.x);
      const esp::data::Distributor feed({network.x, y}, {.batch_size = 6, .shuffle = true, .seed = 5});
      const auto [in, target] = feed.get_output_graphs<2>();
      const Variable outputs = network.outputs(in);
      const esp::Executor executor =
          esp::mean(esp::square(outputs - target))
              .get_executor(
                  {.optimizer = esp::optim::AdamW(
                       {.lr = 0.01, .weight_decay = 0.02, .schedule = esp::optim::cosine({.steps = 40})}),
                   .outputs = {{"outputs", outputs}}});
      executor.execute({.epochs = 1, .progress = false});
      executor.save(folder / "trained.plan", {.columns = {"x", "y"}});
      // The file has the random numbers, but not the seed of the batches.
      const auto goes_on = [&](const std::string& how, double tolerance) {
        const Outcome outcome = run(folder, train + "--in-order " + how);
        BOOST_TEST(outcome.code == 0, outcome.error);
        esp::LoadOptions same;
        same.data = {esp::data::Distributor({network.x, y}, {.batch_size = 6})};
        const esp::Executor here = esp::load_executor(folder / "trained.plan", same);
        here.execute({.epochs = 2, .progress = false});
        const esp::Executor there = esp::load_executor(folder / "out.plan", same);
        const auto ours = here.leaves(), theirs = there.leaves();
        BOOST_REQUIRE(ours.size() == theirs.size());
        for (size_t i = 0; i < ours.size(); ++i)
          BOOST_TEST(difference(ours[i].leaf.value(), theirs[i].leaf.value()) <= tolerance,
                     how << ", " << ours[i].name);
      };
      // The gradient of a bias in front of batch statistics is rounding errors, of which AdamW makes whole
      // steps.
      if (network.name != "convolutions") goes_on("--device cpu --device cpu", 1e-5);
      goes_on("--threads 2", 1e-5);
      // Inference by what it gave, in a further process, with other threads and on two replicas.
      const esp::Executor inference = esp::load_executor(folder / "out.plan", {.mode = esp::Mode::inference});
      (void)inference.run({{"x", network.x}, {"y", y}});
      const Tensor expected = inference.output("outputs");
      esp::data::write_npy(folder / "y.npy", y);
      for (const std::string how : {"--threads 1", "--threads 2", "--device cpu --device cpu"}) {
        const Outcome infer = run(
            folder, "espalier-run out.plan --input x=x.npy --input y=y.npy --output outputs=o.npy " + how);
        BOOST_TEST(infer.code == 0, infer.error);
        BOOST_TEST(difference(esp::data::read_npy(folder / "o.npy"), expected) < 1e-5, how);
        std::filesystem::remove(folder / "o.npy");
      }
      // What does not read the target needs none.
      const Outcome infer = run(folder, "espalier-run out.plan --input x=x.npy --output outputs=o.npy");
      BOOST_TEST(infer.code == 0, infer.error);
      BOOST_TEST(difference(esp::data::read_npy(folder / "o.npy"), expected) < 1e-5);
      for (const char* outputs : {"", " --output o.npy", " --output outputs=o.npy --output l.npy"})
        check_fails(
            folder, std::string("espalier-run out.plan --input x=x.npy") + outputs, 64,
            "no 'y', which is float32 [6, 3]; the plan has value, outputs, and --output name=file.npy");
    }
}

BOOST_AUTO_TEST_CASE(a_plan_is_shown) {
  const TemporaryFolder folder;
  write_small(folder);
  const Outcome open = run(folder, "espalier-inspect small.plan");
  BOOST_TEST(open.code == 0, open.error);
  for (const char* part : {"inference", "input x float32 [-1, 6]", "output value float32 [-1, 3]",
                           "output hidden", "parameters: ", "weight", "matmul"})
    BOOST_TEST(open.out.find(part) != std::string::npos, part << " in " << open.out);
  const Outcome page = run(folder, "espalier-inspect small.plan --shape x=8,6 --html a.html");
  BOOST_TEST(page.code == 0, page.error);
  BOOST_TEST(page.out.find("bytes of leaves") != std::string::npos, page.out);
  BOOST_TEST(text_of(folder / "a.html").find("<html") != std::string::npos);
  // Shapes without open axes need not be told.
  const Variable x = esp::placeholder("x", {-1, 4}), scale = esp::placeholder("scale", {}),
                 fixed = esp::placeholder("fixed", {4});
  (x * scale + fixed).get_executor().save(folder / "scaled.plan");
  const Outcome scaled = run(folder, "espalier-inspect scaled.plan --shape x=3,4");
  BOOST_TEST(scaled.code == 0, scaled.error);
  BOOST_TEST(scaled.out.find("bytes of leaves") != std::string::npos, scaled.out);
  check_fails(folder, "espalier-inspect scaled.plan --shape scale= --steps", 64, "'x' of shape [-1, 4]");
  write_digits(folder);
  const Outcome training = run(folder, "espalier-inspect digits.plan --steps --shape pixels=64,64");
  BOOST_TEST(training.code == 0, training.error);
  BOOST_TEST(training.out.find("bytes of leaves") != std::string::npos, training.out);
  check_fails(folder, "espalier-inspect digits.plan --shape pixels=5,64", 64, "'pixels' takes [64, 64]");
}

BOOST_AUTO_TEST_CASE(a_program_in_c_runs_trains_and_saves) {
  const TemporaryFolder folder;
  write_small(folder);
  esp::seed(6);
  const Variable x = esp::placeholder("x", {-1, 6}), y = esp::placeholder("y", {-1, 3});
  const Variable outputs = esp::nn::Sequential{esp::nn::Dense(9), esp::nn::Tanh(), esp::nn::Dense(3)}(x);
  esp::mean(esp::square(outputs - y))
      .get_executor({.optimizer = esp::optim::Adam(0.03), .outputs = {{"prediction", outputs}}})
      .save(folder / "step.plan");
  const std::string command = command_in(folder) + places::c_program + " small.plan step.plan . 2>error";
  BOOST_TEST(std::system(command.c_str()) == 0, text_of(folder / "error"));
  if (!*places::shared_library) return;
  const std::string python = "cd " + folder.path().string() + " && ESPALIER_CACHE=off python3 " +
                             places::run_plan + " " + places::shared_library + " small.plan 2>error";
  BOOST_TEST(std::system(python.c_str()) == 0, text_of(folder / "error"));
}

BOOST_AUTO_TEST_CASE(plug_ins_run_plans_side_by_side) {
  if (!*places::c_plugin) return;
  const TemporaryFolder folder;
  write_small(folder);
  const Variable x = esp::placeholder("x", {-1, 3});
  esp::softmax(esp::nn::Dense(3)(x) * 2.0).get_executor().save(folder / "second.plan");
  // A second file, so that it is loaded as another library.
  std::filesystem::copy_file(places::c_plugin, folder / "again.so");
  const std::string command = command_in(folder) + places::c_host + " small.plan second.plan " +
                              places::c_plugin + " ./again.so 2>error";
  BOOST_TEST(std::system(command.c_str()) == 0, text_of(folder / "error"));
}

BOOST_AUTO_TEST_SUITE_END()
