// Where executors keep the leaves that they have in common.
#include "espalier/executor/runtime/parameter_arena.h"

#include <boost/test/unit_test.hpp>

#include <thread>

#include "espalier/espalier.h"
#include "testing.h"

namespace esp = espalier;
using esp::ParameterArena;
using esp::Variable;
using esp::testing::difference;
using esp::testing::numbers;

namespace {

Variable leaf(int seed) { return esp::parameter(numbers({32}, -1, 1, static_cast<uint64_t>(seed)), "p"); }

const void* address_of(const Variable& leaf) { return leaf.node()->outputs[0].value.address(); }

/// What a plan would do to the memory of a leaf.
void write(ParameterArena& arena, size_t slot, const esp::Tensor& values) {
  esp::Tensor there = arena.tensor(slot);
  copy_elements(values, there);
  const size_t written[] = {slot};
  arena.mark_assigned(written);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(parameter_arena)

BOOST_AUTO_TEST_CASE(a_leaf_stays_in_its_buffer) {
  const Variable p = leaf(1);
  const void* before = address_of(p);
  ParameterArena arena(esp::cpu());
  arena.add(p);
  BOOST_TEST(!arena.bind());
  BOOST_TEST(arena.tensor(0).address() == before);
  BOOST_TEST(address_of(p) == before);
}

BOOST_AUTO_TEST_CASE(a_buffer_that_a_user_holds_is_not_written) {
  const Variable p = leaf(1), q = leaf(2);
  const esp::Tensor held = p.value(), copy = held.clone();
  const Variable view = esp::reshape(q, {4, 8});
  const esp::Tensor viewed = view.value().clone();
  ParameterArena arena(esp::cpu());
  arena.add(p), arena.add(q);
  BOOST_TEST(arena.bind());
  write(arena, 0, numbers({32}, -1, 1, 7));
  write(arena, 1, numbers({32}, -1, 1, 8));
  BOOST_TEST(difference(held, copy) == 0);
  BOOST_TEST(difference(view.value(), viewed) == 0);
  BOOST_TEST(difference(p.value(), numbers({32}, -1, 1, 7)) == 0);
  BOOST_TEST(difference(q.value(), numbers({32}, -1, 1, 8)) == 0);
}

BOOST_AUTO_TEST_CASE(executors_in_turn_use_one_memory) {
  const Variable p = leaf(1), q = leaf(2);
  ParameterArena first(esp::cpu()), second(esp::cpu());
  first.add(p);
  second.add(q), second.add(p);
  first.bind();
  second.bind();
  BOOST_TEST(first.tensor(0).address() == second.tensor(1).address());
  for (int turn = 0; turn < 3; ++turn) {
    write(first, 0, numbers({32}, -1, 1, 10 + turn));
    BOOST_TEST(!second.bind());
    BOOST_TEST(difference(second.tensor(1), numbers({32}, -1, 1, 10 + turn)) == 0);
    BOOST_TEST(!first.bind());
  }
  // Assigned once, copied once.
  set_value(p, numbers({32}, -1, 1, 20));
  BOOST_TEST(second.bind());
  BOOST_TEST(!first.bind());
  BOOST_TEST(difference(first.tensor(0), numbers({32}, -1, 1, 20)) == 0);
}

BOOST_AUTO_TEST_CASE(a_value_is_a_copy_as_long_as_an_executor_has_the_leaf) {
  const Variable p = leaf(1);
  const auto is_copy = [&] { return p.value().address() != address_of(p); };
  BOOST_TEST(!is_copy());
  {
    ParameterArena first(esp::cpu());
    first.add(p);
    first.bind();
    BOOST_TEST(is_copy());
    {
      ParameterArena second(esp::cpu());
      second.add(p);
      second.bind();
    }
    BOOST_TEST(is_copy());
  }
  BOOST_TEST(!is_copy());
  BOOST_TEST(difference(p.value(), numbers({32}, -1, 1, 1)) == 0);
}

BOOST_AUTO_TEST_CASE(leaves_side_by_side) {
  const Variable p = leaf(1), q = leaf(2);
  const auto arena_of = [&](ParameterArena& arena) {
    arena.arrange(ParameterArena::Order::needed);
    arena.add(p), arena.add(q);
    arena.bind();
    const esp::Tensor both = arena.range(0, 1);
    BOOST_TEST(both.elements() == 2 * 256);
    BOOST_TEST(both.address() == arena.tensor(0).address());
    BOOST_TEST(static_cast<char*>(arena.tensor(1).address()) - static_cast<char*>(both.address()) == 256);
  };
  {
    ParameterArena first(esp::cpu()), second(esp::cpu());
    arena_of(first);
    arena_of(second);  // they lie side by side already
    BOOST_TEST(first.tensor(1).address() == second.tensor(1).address());
  }
  // Settled apart: the second one has mirrors.
  ParameterArena first(esp::cpu()), second(esp::cpu());
  first.add(q), first.add(p);
  first.bind();
  arena_of(second);
  BOOST_TEST(first.tensor(0).address() != second.tensor(1).address());
  write(second, 1, numbers({32}, -1, 1, 5));
  BOOST_TEST(first.bind());
  BOOST_TEST(difference(first.tensor(0), numbers({32}, -1, 1, 5)) == 0);
  BOOST_TEST(difference(q.value(), numbers({32}, -1, 1, 5)) == 0);
  BOOST_TEST(!second.bind());
  write(first, 1, numbers({32}, -1, 1, 6));
  BOOST_TEST(second.bind());
  BOOST_TEST(difference(second.tensor(0), numbers({32}, -1, 1, 6)) == 0);
}

BOOST_AUTO_TEST_CASE(executors_come_and_go_in_several_threads) {
  esp::nn::Dense shared(8);
  const esp::Tensor input = numbers({4, 16}, -1, 1, 3).to(esp::float32);
  const esp::Tensor expected = shared(Variable(input)).value();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const Variable x = esp::placeholder("x", {4, 16});
        const esp::Executor executor = shared(x).get_executor();
        wrong += difference(executor.run({{"x", input}}), expected) > 1e-6;
      }
    });
  for (std::thread& thread : threads) thread.join();
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_CASE(training_and_inference_take_turns) {
  const auto train = [](bool with_inference) {
    esp::seed(4);
    esp::nn::Dense dense(1);
    const Variable x = esp::placeholder("x", {4, 3}), again = esp::placeholder("x", {4, 3});
    const esp::Executor trainer =
        esp::mean(esp::square(dense(x) - 1)).get_executor({.optimizer = esp::optim::Adam({.lr = 0.01})});
    const esp::Executor reader = dense(again).get_executor();
    std::vector<esp::Tensor> seen;
    for (int step = 0; step < 5; ++step) {
      const esp::Tensor batch = numbers({4, 3}, -1, 1, static_cast<uint64_t>(step)).to(esp::float32);
      (void)trainer.run({{"x", batch}});
      seen.push_back(with_inference ? reader.run({{"x", batch}}) : dense(Variable(batch)).value());
    }
    return seen;
  };
  const std::vector<esp::Tensor> frozen = train(true), eager = train(false);
  for (size_t i = 0; i < frozen.size(); ++i) BOOST_TEST(difference(frozen[i], eager[i]) < 1e-6);
  BOOST_TEST(difference(frozen[0], frozen[4]) > 1e-3);
}

BOOST_AUTO_TEST_SUITE_END()
