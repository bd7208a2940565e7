// The forms in which arguments can be written, handles that were moved from, and values as other types.
#include <boost/test/unit_test.hpp>

#include <array>
#include <climits>
#include <utility>
#include <vector>

#include "espalier/espalier.h"
#include "testing.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

double apart(const Variable& a, const Variable& b) { return difference(a.value(), b.value()); }

}  // namespace

BOOST_AUTO_TEST_SUITE(argument_forms)

BOOST_AUTO_TEST_CASE(options_of_executors_stand_in_their_order) {
  const nn::Dense dense(1);
  const esp::data::Distributor feed({esp::ones({4, 2})}, {.batch_size = 2});
  const auto [x] = feed.get_output_graphs<1>();
  const Variable y = dense(x), loss = esp::mean(y);
  const esp::Executor executor = loss.get_executor({.mode = esp::Mode::training,
                                                    .optimizer = esp::optim::Sgd(0.1),
                                                    .devices = {esp::cpu()},
                                                    .validation = feed,
                                                    .precision = esp::Precision::bfloat16,
                                                    .outputs = {{"y", y}}});
  int steps = 0, infos = 0;
  executor.on(esp::Event::step_finish, [&] { ++steps; });
  executor.on(esp::Event::step_finish, [&](const auto& info) { infos += info.step >= 0; });
  executor.execute({.progress = false});
  BOOST_TEST(steps == 2);
  BOOST_TEST(infos == 2);
}

BOOST_AUTO_TEST_CASE(windows_of_pooling) {
  const Variable x = numbers({2, 3, 6, 6});
  const esp::PoolOptions both{.kernel = {2, 3}, .stride = {1, 2}, .padding = {1, 1}};
  const Variable most = esp::max_pool(x, {.kernel = {2, 3}, .stride = {1, 2}, .padding = {1, 1}});
  BOOST_TEST(apart(nn::MaxPool2d({.kernel = {2, 3}, .stride = {1, 2}, .padding = 1})(x), most) == 0);
  BOOST_TEST(apart(nn::MaxPool2d(both)(x), most) == 0);
  BOOST_TEST(apart(esp::max_pool(x, both), most) == 0);
  const Variable mean = esp::avg_pool(x, {.kernel = {2, 3}, .stride = {1, 2}, .padding = {1, 1}});
  BOOST_TEST(apart(nn::AvgPool2d(both)(x), mean) == 0);
  BOOST_TEST(apart(esp::avg_pool(x, both), mean) == 0);
  const Variable side_by_side = esp::avg_pool(x, {.kernel = 2});
  BOOST_TEST(apart(esp::avg_pool(x, {.kernel = 2, .stride = {}}), side_by_side) == 0);
  BOOST_TEST(apart(esp::avg_pool(x, {.kernel = 2, .stride = {2}}), side_by_side) == 0);
  BOOST_TEST(apart(esp::avg_pool(x, {.kernel = 2, .stride = std::vector<int64_t>{2, 2}}), side_by_side) == 0);
  BOOST_TEST(apart(esp::avg_pool(x, {.kernel = 2, .stride = std::nullopt}), side_by_side) == 0);
}

BOOST_AUTO_TEST_CASE(layers_of_pooling_refuse_sizes_where_they_are_made) {
  std::string mistake;
  BOOST_CHECK_EXCEPTION((mistake = here(), nn::MaxPool2d({.kernel = 2, .padding = 2})), esp::Error,
                        says({"MaxPool2d: a padding of 2", mistake}));
  BOOST_CHECK_EXCEPTION((mistake = here(), nn::AvgPool1d({.kernel = 0})), esp::Error,
                        says({"AvgPool1d", "kernel", "0", mistake}));
  BOOST_CHECK_EXCEPTION((mistake = here(), nn::MaxPool3d({.kernel = {2, 2}})), esp::Error,
                        says({"MaxPool3d", "kernel", mistake}));
}

BOOST_AUTO_TEST_CASE(lists_of_tensors) {
  const std::vector<Tensor> parts{numbers({2, 3}), numbers({2, 3}, 1)};
  BOOST_TEST(apart(esp::concat(parts, 1), esp::concat({parts[0], parts[1]}, 1)) == 0);
  BOOST_TEST(apart(esp::stack(parts), esp::stack({parts[0], parts[1]})) == 0);
  BOOST_TEST(apart(esp::data::pack(parts).data, esp::data::pack({parts[0], parts[1]}).data) == 0);
}

BOOST_AUTO_TEST_CASE(tensors_of_lists) {
  const Tensor planes = esp::tensor({{{1.0f, 2.0f}}, {{3.0f, 4.0f}}, {{5.0f, 6.0f}}});
  BOOST_TEST((planes.shape() == esp::Shape{3, 1, 2}));
  BOOST_TEST(planes.at<float>({2, 0, 1}) == 6);
  BOOST_TEST(apart(planes, esp::tensor_from({1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}, {3, 1, 2})) == 0);
  BOOST_TEST(
      difference(planes, esp::tensor_from(std::array{1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}, {3, 1, 2})) == 0);
  BOOST_CHECK_THROW(esp::tensor({{{1, 2}}, {{3}}}), esp::ShapeError);
  BOOST_CHECK_THROW(esp::tensor({{{1, 2}}, {{3, 4}, {5, 6}}}), esp::ShapeError);
}

BOOST_AUTO_TEST_CASE(rows_of_tensors) {
  Tensor x = numbers({3, 4});
  const Tensor turned = Variable(x).transpose().value();
  BOOST_TEST(apart(x[1], x.slice(0, 1, 2).reshape({4})) == 0);
  BOOST_TEST(apart(x[-1], x[2]) == 0);
  BOOST_TEST(apart(turned[1], x.slice(1, 1, 2).reshape({3})) == 0);
  BOOST_TEST(x[2][3].item() == x.at<double>({2, 3}));
  x[0].at<double>({1}) = 50;
  BOOST_TEST(x.at<double>({0, 1}) == 50);
  BOOST_CHECK_EXCEPTION(x[3], esp::IndexError, says({"[3]", "[3, 4]", "argument_forms_test.cpp"}));
  BOOST_CHECK_EXCEPTION(x[-4], esp::IndexError, says({"[-4]"}));
  BOOST_CHECK_EXCEPTION(esp::tensor(1)[0], esp::ShapeError, says({"scalar"}));
}

BOOST_AUTO_TEST_CASE(variables_as_other_types) {
  const Variable x = esp::tensor(2.75);
  static_assert(std::is_same_v<decltype(x.item<float>()), float>);
  BOOST_TEST(x.to(esp::float64).item<double>() == 2.75);
  BOOST_TEST((x.to(esp::int64).dtype() == esp::int64));
  BOOST_CHECK_EXCEPTION(esp::Variable(esp::ones({2})).item<float>(), esp::ShapeError,
                        says({"argument_forms_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(what_is_moved_from_stays_valid) {
  const Variable w = esp::parameter(esp::ones({2}));
  esp::Executor executor = esp::sum(w).get_executor();
  const esp::Executor executor_too = std::move(executor);
  BOOST_TEST(executor.run({}).item() == 2);
  BOOST_TEST(!executor.plan().str().empty());
  esp::Plan plan = executor.plan();
  const esp::Plan plan_too = std::move(plan);
  BOOST_TEST(plan.str() == plan_too.str());
  esp::data::Distributor feed({esp::ones({4, 1})}, {.batch_size = 2});
  const esp::data::Distributor feed_too = std::move(feed);
  BOOST_TEST(feed.steps() == 2);
  BOOST_TEST(feed.get_output_graphs().size() == 1);
  esp::optim::Sgd sgd(0.25);
  const esp::optim::Optimizer sgd_too = std::move(sgd);
  BOOST_TEST(sgd.learning_rate() == 0.25);
  esp::sum(w).update(sgd);
  BOOST_TEST(w.value().at<float>({0}) == 0.75f);
  auto op = esp::custom_op(
      {.name = "same", .forward = [](const std::vector<Tensor>& in) { return in[0].clone(); }});
  const auto op_too = std::move(op);
  BOOST_TEST(op({w}).rank() == 1u);
  auto batches = esp::data::batches<1>({esp::ones({2, 1})});
  const auto batches_too = std::move(batches);
  BOOST_TEST(batches.steps() == batches_too.steps());
}

BOOST_AUTO_TEST_CASE(waiting_nodes_written_without_gradients_are_leaves) {
  const esp::Deferred deferred;
  const Variable w = esp::variable({2.0f});
  {
    const esp::NoGrad no_grad;
    const Variable y = w * 2;
    BOOST_TEST(y.depth() == 0);
    BOOST_TEST(y.item() == 4);
    BOOST_TEST(y.depth() == 0);
  }
  BOOST_TEST((w * 2).depth() == 1);
}

BOOST_AUTO_TEST_CASE(leaves_of_numbers) {
  BOOST_TEST(apart(esp::parameter({1.0f, 2.0f}, "w"), esp::tensor({1.0f, 2.0f})) == 0);
  BOOST_TEST(apart(esp::parameter({{1.0f, 2.0f}, {3.0f, 4.0f}}), esp::tensor({{1.0f, 2.0f}, {3.0f, 4.0f}})) ==
             0);
  BOOST_TEST(esp::parameter(0.5f).shape() == esp::Shape());
  BOOST_TEST(esp::state(0.25f, "momentum").item() == 0.25);
  BOOST_TEST(esp::state({0.0f, 1.0f}).shape() == esp::Shape({2}));
  BOOST_TEST(esp::variable({{1.0f}, {2.0f}}).shape() == esp::Shape({2, 1}));
  BOOST_TEST(esp::variable({{{1.0f, 2.0f}, {3.0f, 4.0f}}}).shape() == esp::Shape({1, 2, 2}));
  BOOST_TEST(esp::parameter({{{1.0}}, {{2.0}}}).shape() == esp::Shape({2, 1, 1}));
  std::string mistake;
  BOOST_CHECK_EXCEPTION((mistake = here(), esp::parameter({1, 2})), esp::TypeError, says({"int", mistake}));
  BOOST_CHECK_EXCEPTION((mistake = here(), esp::variable({{1.0f}, {2.0f, 3.0f}})), esp::ShapeError,
                        says({mistake}));
}

BOOST_AUTO_TEST_CASE(tensors_of_other_integers) {
  const std::vector<size_t> sizes{1, 2, 3};
  BOOST_TEST(esp::tensor_from(sizes, {3}).dtype() == esp::int64);
  BOOST_TEST(esp::tensor_from(sizes, {3}).at<int64_t>({2}) == 3);
  BOOST_TEST(esp::tensor_from(std::vector<long long>{-5}, {1}).item() == -5);
  BOOST_TEST(esp::tensor_from(std::array<uint16_t, 2>{7, 65535}, {2}).at<int64_t>({1}) == 65535);
  std::string mistake;
  BOOST_CHECK_EXCEPTION((mistake = here(), esp::tensor_from(std::vector<uint64_t>{UINT64_MAX}, {1})),
                        esp::TypeError, says({"18446744073709551615", mistake}));
  BOOST_CHECK_EXCEPTION((mistake = here(), esp::tensor_from(sizes, {4})), esp::ShapeError, says({mistake}));
  BOOST_CHECK_EXCEPTION((mistake = here(), esp::set_num_threads(0)), esp::Error, says({"0", mistake}));
  BOOST_CHECK_EXCEPTION((mistake = here(), esp::set_num_threads(INT_MAX)), esp::Error,
                        says({"2147483647", "4096", mistake}));
}

BOOST_AUTO_TEST_CASE(small_vectors_grow_by_doubling) {
  esp::SmallVector<int64_t, 2> list;
  const std::array<int64_t, 3> more{1, 2, 3};
  int moves = 0;
  for (int i = 0; i < 10000; ++i) {
    const int64_t* before = list.data();
    list.append(more.begin(), more.end());
    moves += list.data() != before;
  }
  BOOST_TEST(list.size() == 30000u);
  BOOST_TEST(moves < 20);
}

template <class Optimizer>
void check_defaults(double learning_rate) {
  Optimizer none, braces({});
  BOOST_TEST(Optimizer().learning_rate() == learning_rate);
  BOOST_TEST(none.learning_rate() == learning_rate);
  BOOST_TEST(braces.learning_rate() == learning_rate);
  BOOST_TEST(Optimizer({.lr = 0.5}).learning_rate() == 0.5);
}

BOOST_AUTO_TEST_CASE(optimizers_without_settings) {
  check_defaults<esp::optim::Sgd>(0.01);
  check_defaults<esp::optim::Adam>(0.001);
  check_defaults<esp::optim::AdamW>(0.001);
  check_defaults<esp::optim::RmsProp>(0.01);
}

BOOST_AUTO_TEST_CASE(executors_assigned_later) {
  struct Trainer {
    esp::Executor executor;
  } trainer;
  std::string mistake;
  BOOST_CHECK_EXCEPTION((mistake = here(), trainer.executor.step()), esp::Error, says({"empty", mistake}));
  BOOST_CHECK_EXCEPTION((mistake = here(), trainer.executor.mode()), esp::Error, says({"empty", mistake}));
  BOOST_CHECK_EXCEPTION((mistake = here(), trainer.executor.on(esp::Event::step_finish, [] {})), esp::Error,
                        says({"empty", mistake}));
  const Variable w = esp::parameter({1.0f});
  trainer.executor = esp::sum(w * w).get_executor({.optimizer = esp::optim::Sgd(0.25)});
  trainer.executor.step();
  BOOST_TEST(w.item() == 0.5);
}

BOOST_AUTO_TEST_CASE(why_there_is_no_gradient) {
  const Variable w = esp::parameter({1.0f});
  Variable y;
  {
    const esp::NoGrad no_grad;
    y = w * w;
  }
  BOOST_CHECK_EXCEPTION(y.gradient(w), esp::Error, says({"NoGrad", here()}));
}

BOOST_AUTO_TEST_CASE(names_that_do_not_exist) {
  std::string mistake;
  const esp::optim::Sgd sgd(0.1);
  BOOST_CHECK_EXCEPTION((mistake = here(), sgd.setting("speed")), esp::Error, says({"speed", mistake}));
  BOOST_CHECK_EXCEPTION((mistake = here(), esp::placeholder("", {2})), esp::Error, says({"empty", mistake}));
}

BOOST_AUTO_TEST_CASE(maxout_is_told_its_input_width) {
  const nn::Maxout maxout(4, 3, 2, {.dtype = esp::float64});
  BOOST_TEST(maxout.parameter("maps.weight").shape() == esp::Shape({6, 4}));
  BOOST_TEST(maxout(esp::ones({2, 5, 4}, esp::float64)).shape() == esp::Shape({2, 5, 3}));
  BOOST_CHECK_EXCEPTION(maxout(esp::ones({2, 5}, esp::float64)), esp::ShapeError, says({"[2, 5]", here()}));
  BOOST_CHECK_EXCEPTION(nn::Maxout(0, 3, 2), esp::Error, says({"0 inputs", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
