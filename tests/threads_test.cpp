// Executors and parameters in several threads: what runs at the same time, what waits, and what is refused.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <functional>
#include <latch>
#include <thread>

#include "espalier/core/leaf_use.h"
#include "espalier/espalier.h"
#include "file_errors.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::LeafUse;
using esp::Variable;

namespace {

/// Calls `f(thread)` in so many threads and waits for them.
void in_threads(int count, const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) threads.emplace_back([&, t] { f(t); });
  for (std::thread& thread : threads) thread.join();
}

/// Calls `f` in another thread, and returns the text of the Error that it throws.
std::string error_elsewhere(const std::function<void()>& f) {
  std::string text = "none";
  std::thread([&] {
    try {
      f();
    } catch (const esp::Error& error) {
      text = error.what();
    }
  }).join();
  return text;
}

/// A node whose kernel calls a function.
Variable with_call(const Variable& x, std::function<void()> f) {
  const auto op = esp::custom_op({.name = "call",
                                  .forward =
                                      [f](const auto& inputs) {
                                        f();
                                        return inputs[0].clone();
                                      },
                                  .infer = [](const auto& specs) { return specs[0]; }});
  return op({x});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(threads)

BOOST_AUTO_TEST_CASE(one_thread_at_a_time_evaluates_below_a_feed) {
  const esp::data::Distributor feed({numbers({4, 2})}, {.batch_size = 2});
  const auto [x] = feed.get_output_graphs<1>();
  const Variable other = x * 2.0;
  std::string text;
  const Variable y = with_call(x, [&] { text = error_elsewhere([&] { other.forward(); }); });
  y.forward();
  BOOST_TEST(text.find("another thread") != std::string::npos, text);
  BOOST_TEST(text.find("threads_test.cpp") != std::string::npos, text);
  BOOST_TEST(error_elsewhere([&] { other.forward(); }) == "none");
  BOOST_TEST(difference(other.value(), (numbers({4, 2}).slice(0, 0, 2) * 2.0).value()) == 0);
}

BOOST_AUTO_TEST_CASE(a_thread_that_is_refused_one_feed_leaves_the_others_free) {
  const esp::data::Distributor first({numbers({4, 2})}, {.batch_size = 2}),
      second({numbers({4, 2})}, {.batch_size = 2});
  const auto [a] = first.get_output_graphs<1>();
  const auto [b] = second.get_output_graphs<1>();
  const Variable sum = a + b;
  for (const auto& [busy, other] : {std::pair(a, b), {b, a}}) {
    std::string refused;
    const Variable y = with_call(busy, [&] { refused = error_elsewhere([&] { sum.forward(); }); });
    y.forward();
    BOOST_TEST(refused.find("another thread") != std::string::npos, refused);
    const Variable free = other * 2.0;
    BOOST_CHECK_NO_THROW(free.forward());
  }
}

BOOST_AUTO_TEST_CASE(one_executor_serves_many_threads) {
  esp::seed(3);
  const esp::nn::Sequential net{esp::nn::Dense(32), esp::nn::Relu(), esp::nn::Dense(3)};
  const Variable x = esp::placeholder("x", {1, 20});
  const esp::Executor executor = net(x).get_executor({.mode = esp::Mode::inference});
  std::vector<esp::Tensor> inputs, expected;
  for (int64_t rows = 1; rows <= 4; ++rows) {
    inputs.push_back(numbers({rows, 20}, -1, 1, static_cast<uint64_t>(rows)).to(esp::float32));
    expected.push_back(net(Variable(inputs.back())).value());
  }
  std::atomic<int> wrong = 0;
  in_threads(8, [&](int t) {
    esp::set_num_threads(1);
    for (int i = 0; i < 200; ++i) {
      const auto k = static_cast<size_t>((t + i) % 4);
      const esp::Tensor out = executor.run({{"x", inputs[k]}});
      wrong += !(out.shape() == expected[k].shape()) || difference(out, expected[k]) > 1e-5;
    }
  });
  BOOST_TEST(wrong == 0);
  BOOST_CHECK_EXCEPTION(executor.value(), esp::Error,
                        [](const esp::Error& e) { return has(e.what(), "several threads have run"); });
}

BOOST_AUTO_TEST_CASE(runs_do_not_wait_for_each_other) {
  // Each run waits inside a kernel until the other is there, too.
  std::atomic<int> inside = 0;
  const Variable x = esp::placeholder("x", {1});
  const Variable p = esp::parameter(esp::ones({1}));
  const Variable meeting = with_call(x * p, [&] {
    const int mine = ++inside;
    while (inside < mine + mine % 2) std::this_thread::yield();
  });
  const esp::Executor executor = meeting.get_executor({.mode = esp::Mode::inference});
  std::atomic<int> wrong = 0;
  in_threads(2, [&](int t) {
    for (int i = 0; i < 20; ++i)
      wrong += executor.run({{"x", esp::full({1}, t)}}).item() != static_cast<double>(t);
  });
  BOOST_TEST(wrong == 0);
  BOOST_TEST(inside == 40);
}

BOOST_AUTO_TEST_CASE(the_value_of_one_thread) {
  const Variable x = esp::placeholder("x", {2});
  const esp::Executor executor = (x * 2).get_executor({.mode = esp::Mode::inference});
  std::thread([&] {
    (void)executor.run({{"x", esp::tensor({1.0f, 2.0f})}});
    BOOST_TEST(executor.value().at<float>({1}) == 4);
  }).join();
  BOOST_TEST(executor.value().at<float>({0}) == 2);  // still of the only thread that has run it
}

BOOST_AUTO_TEST_CASE(outputs_of_several_threads) {
  const Variable x = esp::placeholder("x", {3});
  const esp::Executor executor = esp::sum(x).get_executor(
      {.mode = esp::Mode::inference, .outputs = {{"double", x * 2}, {"half", x / 2}}});
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  std::latch all_live(static_cast<std::ptrdiff_t>(wrong.size()));
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      all_live.arrive_and_wait();
      for (int i = 0; i < 20; ++i) {
        const float number = static_cast<float>(100 * t) + static_cast<float>(i);
        const esp::StepValues all = executor.run_outputs({{"x", esp::full({3}, number)}});
        wrong[t] += all.value.item() != 3 * number || all.outputs.at("double").at<float>({2}) != 2 * number ||
                    all.outputs.at("half").at<float>({0}) != number / 2;
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const int each : wrong) BOOST_TEST(each == 0);
  BOOST_CHECK_EXCEPTION(executor.output("half"), esp::Error, says({"run_outputs"}));
}

BOOST_AUTO_TEST_CASE(what_is_made_for_one_thread_is_refused_to_others) {
  const Variable x = esp::placeholder("x", {1});
  const Variable p = esp::parameter(esp::ones({1}));
  std::vector<std::string> errors;
  std::unique_ptr<esp::Executor> executor;
  const Variable loss =
      esp::sum(with_call(x * 2,
                         [&] {
                           if (!executor || !errors.empty()) return;
                           const auto refused = [&](const std::function<void()>& f) {
                             errors.push_back(error_elsewhere(f));
                           };
                           refused([&] { (void)executor->run({{"x", esp::ones({1})}}); });
                           refused([&] { (void)executor->value(); });
                           refused([&] { executor->on(esp::Event::step_finish, [](const auto&) {}); });
                           refused([&] { executor->checkpoint("nowhere"); });
                           refused([&] { executor->resume("nowhere"); });
                           refused([&] { (void)executor->plan(); });
                           refused([&] { executor->profile(); });
                           refused([&] { executor->report("nowhere"); });
                           refused([&] { (void)executor->loss_scale(); });
                         })) *
      esp::sum(p);
  executor = std::make_unique<esp::Executor>(loss.get_executor({.optimizer = esp::optim::Sgd(0.1)}));
  BOOST_TEST(executor->run({{"x", esp::ones({1})}}).item() == 2);
  BOOST_TEST(errors.size() == 9u);
  const char* const calls[] = {"run",  "value",   "on",     "checkpoint", "resume",
                               "plan", "profile", "report", "loss_scale"};
  for (size_t i = 0; i < errors.size(); ++i) {
    BOOST_TEST(has(errors[i], std::string(calls[i]) + ": another thread is inside run()"), errors[i]);
  }
  // Afterwards other threads may use it.
  BOOST_TEST(error_elsewhere([&] { (void)executor->run({{"x", esp::ones({1})}}); }) == "none");
}

BOOST_AUTO_TEST_CASE(execute_and_step_are_for_one_thread) {
  const esp::Tensor data = esp::ones({4, 1});
  esp::data::Distributor feed({data}, {.batch_size = 1});
  const auto [x] = feed.get_output_graphs<1>();
  const Variable p = esp::parameter(esp::ones({1}));
  const esp::Executor executor =
      esp::mean(esp::square(x * p)).get_executor({.optimizer = esp::optim::Sgd(0.1)});
  std::string execute, step, own;
  int steps = 0;
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo&) {
    if (steps++) return;
    execute = error_elsewhere([&] { executor.execute(); });
    step = error_elsewhere([&] { executor.step(); });
    try {
      (void)executor.run({});
    } catch (const esp::Error& error) {
      own = error.what();
    }
    std::thread([&] { executor.stop(); }).join();
  });
  executor.execute({.epochs = 3, .progress = false});
  BOOST_TEST(has(execute, "execute: another thread is inside execute()"), execute);
  BOOST_TEST(has(step, "step: another thread is inside execute()"), step);
  BOOST_TEST(has(own, "run: the executor is in the middle of a step"), own);
  BOOST_TEST(steps == 1);
}

BOOST_AUTO_TEST_CASE(serving_beside_training) {
  // A step moves all parameters by the same amount, so a run that sees parts of one gives unequal numbers.
  const int64_t width = 4000;
  const Variable p = esp::parameter(esp::zeros({width})), q = esp::parameter(esp::zeros({width}));
  const Variable x = esp::placeholder("x", {1}), y = esp::placeholder("y", {1});
  const esp::Executor trainer =
      (esp::sum(p + q) * esp::sum(x)).get_executor({.optimizer = esp::optim::Sgd(1.0)});
  const esp::Executor server = (esp::concat({p, q}) * y).get_executor({.mode = esp::Mode::inference});
  std::atomic<bool> done = false;
  std::atomic<int> torn = 0, runs = 0;
  std::vector<std::thread> serving;
  for (int t = 0; t < 3; ++t)
    serving.emplace_back([&] {
      esp::set_num_threads(1);
      double before = 1;
      while (!done || runs == 0) {
        const esp::Tensor out = server.run({{"y", esp::ones({1})}});
        const float first = out.at<float>({0});
        for (const float v : out.span<float>()) torn += v != first;
        torn += first > before;  // steps are seen in their order
        before = first;
        ++runs;
      }
    });
  esp::set_num_threads(1);
  for (int step = 0; step < 300; ++step) (void)trainer.run({{"x", esp::ones({1})}});
  done = true;
  for (std::thread& thread : serving) thread.join();
  BOOST_TEST(torn == 0);
  BOOST_TEST(runs > 0);
  BOOST_TEST(p.value().at<float>({5}) == -300);
  BOOST_TEST(server.run({{"y", esp::ones({1})}}).at<float>({width}) == -300);
}

BOOST_AUTO_TEST_CASE(serving_beside_assignments_and_eager_updates) {
  const int64_t width = 3000;
  const Variable p = esp::parameter(esp::zeros({width})), q = esp::parameter(esp::zeros({width}));
  const Variable y = esp::placeholder("y", {1});
  const esp::Executor server = ((p + 1) * y - (q + 1) * 1).get_executor({.mode = esp::Mode::inference});
  const esp::Executor single = (p * y).get_executor({.mode = esp::Mode::inference});
  std::atomic<bool> done = false;
  std::atomic<int> torn = 0;
  std::vector<std::thread> serving;
  for (int t = 0; t < 2; ++t)
    serving.emplace_back([&] {
      esp::set_num_threads(1);
      while (!done) {
        const esp::Tensor both = server.run({{"y", esp::ones({1})}});
        for (const float v : both.span<float>()) torn += v != 0;
        const esp::Tensor one = single.run({{"y", esp::ones({1})}});
        for (const float v : one.span<float>()) torn += v != one.at<float>({0});
      }
    });
  // An eager update assigns all parameters at once.
  for (int step = 0; step < 100; ++step) {
    const Variable loss = esp::sum(p + q);
    loss.update(esp::optim::Sgd(1.0));
  }
  done = true;
  for (std::thread& thread : serving) thread.join();
  BOOST_TEST(torn == 0);
  done = false;
  std::thread reader([&] {
    while (!done) {
      const esp::Tensor one = single.run({{"y", esp::ones({1})}});
      for (const float v : one.span<float>()) torn += v != one.at<float>({0});
    }
  });
  for (int i = 0; i < 100; ++i) set_value(p, esp::full({width}, i));
  done = true;
  reader.join();
  BOOST_TEST(torn == 0);
  BOOST_TEST(single.run({{"y", esp::ones({1})}}).at<float>({7}) == 99);
}

BOOST_AUTO_TEST_CASE(two_trainers_of_one_parameter) {
  // Steps of one wait for steps of the other, so that none is lost.
  const Variable p = esp::parameter(esp::zeros({2000}));
  std::vector<esp::Executor> trainers;
  for (int t = 0; t < 2; ++t)
    trainers.push_back((esp::sum(p) * esp::sum(esp::placeholder("x", {1})))
                           .get_executor({.optimizer = esp::optim::Sgd(1.0)}));
  in_threads(2, [&](int t) {
    esp::set_num_threads(1);
    for (int step = 0; step < 200; ++step)
      (void)trainers[static_cast<size_t>(t)].run({{"x", esp::ones({1})}});
  });
  const esp::Tensor value = p.value();
  for (const float v : value.span<float>()) BOOST_REQUIRE(v == -400);
}

BOOST_AUTO_TEST_CASE(uses_of_leaves) {
  const Variable p = esp::parameter(esp::ones({1})), q = esp::parameter(esp::ones({1}));
  const std::vector<Variable> both{p, q}, one{q};
  LeafUse writer, reader, other;
  writer.add(both, {p.node()});
  reader.add(both, {});
  other.add(one, {});
  BOOST_TEST(writer.has_conflicts());
  BOOST_TEST(reader.has_conflicts());
  BOOST_TEST(!other.has_conflicts());
  std::atomic<int> entered = 0;
  std::thread waiting;
  {
    const esp::LeafScope step(writer, LeafUse::Access::step);
    { const esp::LeafScope beside(other, LeafUse::Access::read); }  // only reads what the step reads
    waiting = std::thread([&] {
      const esp::LeafScope scope(reader, LeafUse::Access::read);
      ++entered;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    BOOST_TEST(entered == 0);
    // A use that comes later waits, too.
    LeafUse late;
    late.add(both, {});
    BOOST_CHECK_EXCEPTION(late.enter(LeafUse::Access::read), esp::Error,
                          [](const esp::Error& e) { return has(e.what(), "inside a step of another one"); });
  }
  waiting.join();
  BOOST_TEST(entered == 1);
  // A writer sleeps until the last reader has left.
  std::thread writing;
  {
    const esp::LeafScope reading(reader, LeafUse::Access::read);
    writing = std::thread([&] {
      const esp::LeafScope scope(writer, LeafUse::Access::step);
      ++entered;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    BOOST_TEST(entered == 1);
  }
  writing.join();
  BOOST_TEST(entered == 2);
  const esp::LeafScope scope(reader, LeafUse::Access::read);
  BOOST_CHECK_THROW(writer.enter(LeafUse::Access::step), esp::Error);
  BOOST_CHECK_THROW(other.enter(LeafUse::Access::alone), esp::Error);
  const esp::LeafScope beside(other, LeafUse::Access::read);  // what failed has left no claims
}

BOOST_AUTO_TEST_SUITE_END()
