// Groups of parameters: an optimizer for each, updates of a part, and frozen parameters.
#include "espalier/optim/groups.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/layer_norm.h"
#include "espalier/nn/losses.h"
#include "espalier/nn/module_state.h"
#include "replica_programs.h"

namespace esp = espalier;
namespace nn = espalier::nn;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// A network over a feed; `body` and `head` are groups, `rest` is a parameter of neither.
struct Parts {
  Parts() {
    const auto [x, y] = feed.get_output_graphs<2>();
    Variable h = esp::tanh(esp::matmul(x, w) + b);
    loss = esp::mean(esp::square(esp::matmul(h, out) + rest - y)) * 10.0;
  }
  Trace values() const {
    Trace trace;
    for (const Variable& v : {w, b, out, rest}) trace.push_back(v.value().clone());
    return trace;
  }
  optim::Groups groups() const {
    return {{{optim::ParameterList{w, b},
              optim::Adam({.lr = 0.01, .clip_norm = 0.5, .schedule = optim::exponential(0.9)})},
             {optim::ParameterList{out},
              optim::Sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .clip_value = 0.2})}}};
  }

  esp::data::Distributor feed{{numbers({28, 6}, -1, 1, 4), numbers({28, 2}, -1, 1, 5)},
                              {.batch_size = 7, .shuffle = true, .seed = 9}};
  Variable w = esp::parameter(numbers({6, 5}, -1, 1, 1), "w"),
           b = esp::parameter(numbers({5}, -1, 1, 2), "b"),
           out = esp::parameter(numbers({5, 2}, -1, 1, 3), "out"),
           rest = esp::parameter(numbers({2}, -1, 1, 6), "rest");
  Variable loss;
};

Trace planned(esp::ExecutorOptions how, int64_t epochs = 3) {
  Parts parts;
  how.optimizer = parts.groups();
  (void)parts.loss.get_executor(how).execute({.epochs = epochs, .progress = false});
  return parts.values();
}

Trace eagerly() {
  Parts parts;
  const optim::Groups groups = parts.groups();
  for (int epoch = 0; epoch < 3; ++epoch, parts.feed.reset())
    for (int step = 0; step < 4; ++step) parts.loss.forward().update(groups);
  return parts.values();
}

bool same(const esp::Tensor& a, const esp::Tensor& b) { return difference(a, b) == 0; }

}  // namespace

BOOST_AUTO_TEST_SUITE(optim_groups)

BOOST_AUTO_TEST_CASE(each_group_has_its_own_optimizer) {
  // The same by two optimizers, each for its part.
  Parts parts;
  const Trace before = parts.values();
  const optim::Adam adam({.lr = 0.01, .clip_norm = 0.5, .schedule = optim::exponential(0.9)});
  const optim::Sgd sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .clip_value = 0.2});
  for (int epoch = 0; epoch < 3; ++epoch, parts.feed.reset())
    for (int step = 0; step < 4; ++step) {
      parts.loss.forward().backward();
      const Variable of_out = parts.loss.gradient(parts.out);  // before the others change
      const esp::Tensor w = parts.w.value().clone(), b = parts.b.value().clone();
      parts.loss.update(adam, {parts.w, parts.b});
      const esp::Tensor w1 = parts.w.value().clone(), b1 = parts.b.value().clone();
      esp::set_value(parts.w, w), esp::set_value(parts.b, b);
      parts.loss.update(sgd, {parts.out});
      esp::set_value(parts.w, w1), esp::set_value(parts.b, b1);
    }
  const Trace eager = eagerly();
  BOOST_TEST(difference_of(eager, parts.values()) < 1e-12);
  BOOST_TEST(same(eager[3], before[3]));  // in no group
  for (size_t i : {0u, 1u, 2u}) BOOST_TEST(!same(eager[i], before[i]));
}

BOOST_AUTO_TEST_CASE(plans_replicas_and_parts_of_a_batch_agree) {
  const Trace eager = eagerly();
  BOOST_TEST(difference_of(planned({}), eager) < 1e-12);
  BOOST_TEST(difference_of(planned({.devices = cpus(2)}), eager) < 1e-9);
  BOOST_TEST(difference_of(planned({.devices = cpus(3), .replicas = {.shard_states = true}}), eager) < 1e-9);
  BOOST_TEST(difference_of(planned({.accumulate = 3}), eager) < 1e-9);
  BOOST_TEST(difference_of(planned({.without = {"simplify", "group_updates", "fuse_pointwise"}}), eager) <
             1e-12);
}

BOOST_AUTO_TEST_CASE(float16_scales_the_loss_of_all_groups) {
  const auto train = [](esp::Precision precision) {
    const esp::data::Distributor feed({numbers({16, 6}, -1, 1, 4).to(esp::float32)}, {.batch_size = 4});
    const Variable w = esp::parameter(numbers({6, 8}, -1, 1, 1).to(esp::float32), "w"),
                   v = esp::parameter(numbers({8, 2}, -1, 1, 2).to(esp::float32), "v"),
                   rest = esp::parameter(esp::ones({2}), "rest");
    const Variable h = esp::matmul(esp::tanh(esp::matmul(feed.get_output_graphs()[0], w)), v) * rest;
    const esp::Executor executor =
        esp::mean(esp::square(h))
            .get_executor({.optimizer = optim::Groups({{optim::ParameterList{w}, optim::Adam(1e-2)},
                                                       {optim::ParameterList{v}, optim::Sgd(0.1)}}),
                           .precision = precision});
    (void)executor.execute({.epochs = 2, .progress = false});
    BOOST_TEST(same(rest.value(), esp::ones({2})));
    return Trace{w.value().clone(), v.value().clone()};
  };
  const Trace halves = train(esp::Precision::float16), floats = train(esp::Precision::float32);
  BOOST_TEST(difference_of(halves, floats) < 1e-2);
  BOOST_TEST(difference_of(halves, floats) > 0);
}

BOOST_AUTO_TEST_CASE(checkpoints_have_all_groups) {
  const TemporaryFolder folder;
  const auto run = [&](int64_t epochs, bool resume) {
    Parts parts;
    const optim::Groups groups = parts.groups();
    const esp::Executor executor = parts.loss.get_executor({.optimizer = groups});
    if (resume) executor.resume(folder.path());
    if (!resume) groups.state_of(parts.w);
    (void)executor.execute({.epochs = epochs, .progress = false, .checkpoint = folder.path()});
    return parts.values();
  };
  const Trace whole = run(4, false);
  std::filesystem::remove_all(folder.path());
  (void)run(2, false);
  BOOST_TEST(difference_of(run(4, true), whole) == 0);
  const Parts other;
  const esp::Executor executor = other.loss.get_executor(
      {.optimizer = optim::Groups({{optim::ParameterList{other.w, other.b}, optim::Adam(0.01)},
                                   {optim::ParameterList{other.out}, optim::Sgd(0.1)}})});
  BOOST_CHECK_THROW(executor.resume(folder.path()), esp::FileError);
}

BOOST_AUTO_TEST_CASE(settings_and_states_are_those_of_the_groups) {
  Parts parts;
  optim::Adam adam({.lr = 0.5, .schedule = optim::exponential(0.5)});
  optim::Groups groups(
      {{optim::ParameterList{parts.w}, adam}, {optim::ParameterList{parts.b}, optim::Sgd(0.25)}});
  BOOST_TEST(groups.name() == "Groups(Adam, Sgd)");
  BOOST_TEST(groups.setting("0.lr") == 0.5);
  BOOST_TEST(groups.setting("1.lr") == 0.25);
  groups.set("0.lr", 1);
  BOOST_TEST(adam.learning_rate() == 1);
  BOOST_CHECK_EXCEPTION(groups.learning_rate(), esp::Error, says({"Groups(Adam, Sgd)", "'lr'", "'0.lr'"}));
  BOOST_CHECK_EXCEPTION(groups.set("2.lr", 1), esp::Error,
                        says({"'2.lr'", "0 to 1", "optim_groups_test.cpp"}));
  BOOST_CHECK_EXCEPTION(groups.set("1.speed", 1), esp::Error, says({"Sgd", "'speed'", "optim_groups_test"}));
  BOOST_CHECK_EXCEPTION(groups.set("1.lr", -1), esp::Error,
                        says({"Groups", "1.lr", "-1", "optim_groups_test"}));
  parts.loss.forward().update(groups);
  BOOST_TEST(groups.state_of(parts.w).size() == 3u);
  BOOST_TEST(groups.state_of(parts.b).empty());
  BOOST_REQUIRE(groups.state().size() == 1u);
  BOOST_TEST(groups.state()[0].first == "0.schedule_step");
  BOOST_TEST(groups.state()[0].second.item() == 1);
}

BOOST_AUTO_TEST_CASE(groups_that_make_no_sense_are_refused) {
  Parts parts;
  const optim::Sgd sgd(0.1);
  const nn::Dense lazy(3);
  using optim::Groups;
  using optim::ParameterList;
  BOOST_CHECK_EXCEPTION(Groups(std::vector<optim::Group>{}), esp::Error, says({"at least one group"}));
  BOOST_CHECK_EXCEPTION(Groups({{lazy.parameters(), sgd}}), esp::Error,
                        says({"group 0", "input width", "optim_groups_test.cpp"}));
  BOOST_CHECK_EXCEPTION(
      Groups({{ParameterList{parts.w, parts.b}, sgd}, {ParameterList{parts.b}, optim::Sgd(0.2)}}), esp::Error,
      says({"'b'", "[5]", "group 0", "group 1"}));
  BOOST_CHECK_EXCEPTION(Groups({{ParameterList{parts.w}, sgd}, {ParameterList{parts.b}, sgd}}), esp::Error,
                        says({"group 1", "Sgd"}));
  BOOST_CHECK_EXCEPTION(Groups({{ParameterList{parts.loss}, sgd}}), esp::Error,
                        says({"group 0", "not a parameter"}));
  const Groups elsewhere({{ParameterList{esp::parameter(esp::ones({2}))}, sgd}});
  BOOST_CHECK_EXCEPTION(parts.loss.get_executor({.optimizer = elsewhere}), esp::Error,
                        says({"get_executor", "none of the parameters", "optim_groups_test.cpp"}));
  BOOST_CHECK_EXCEPTION(parts.loss.forward().update(elsewhere), esp::Error, says({"update", "none of the"}));
}

BOOST_AUTO_TEST_CASE(a_part_is_updated) {
  Parts parts;
  const Trace before = parts.values();
  const optim::Sgd rule({.lr = 0.1, .momentum = 0.9});
  parts.loss.forward().update(rule, {parts.out});
  for (size_t i : {0u, 1u, 3u}) BOOST_TEST(same(parts.values()[i], before[i]));
  BOOST_TEST(!same(parts.values()[2], before[2]));
  BOOST_TEST(rule.state_of(parts.w).empty());
  // Others of the same tree by the same optimizer; those that are not in the tree are ignored.
  const Trace after = parts.values();
  parts.loss.update(rule, {parts.w, esp::parameter(esp::ones({2}))});
  BOOST_TEST(same(parts.values()[2], after[2]));
  BOOST_TEST(!same(parts.values()[0], after[0]));
  BOOST_CHECK_EXCEPTION(parts.loss.update(rule, {esp::parameter(esp::ones({2}))}), esp::Error,
                        says({"update", "none of the parameters", "optim_groups_test.cpp"}));
  BOOST_CHECK_EXCEPTION(parts.loss.get_executor({.mode = esp::Mode::training}), esp::Error,
                        says({"different parameters"}));
  // An executor takes up the update in the tree, on replicas too.
  for (const int replicas : {1, 2}) {
    const Parts part;
    part.loss.update(rule, {part.out});
    const Trace start = part.values();
    (void)part.loss.get_executor({.mode = esp::Mode::training, .devices = cpus(replicas)})
        .execute({.progress = false});
    BOOST_TEST(same(part.values()[0], start[0]));
    BOOST_TEST(!same(part.values()[2], start[2]));
  }
}

BOOST_AUTO_TEST_CASE(frozen_parameters_stay) {
  const auto train = [](int replicas) {  // none: an eager loop
    Parts parts;
    const Trace before = parts.values();
    const optim::AdamW rule({.lr = 0.1, .weight_decay = 0.5});
    const auto epoch = [&] {
      if (replicas)
        return void(parts.loss.get_executor({.optimizer = rule, .devices = cpus(replicas)})
                        .execute({.progress = false}));
      for (int step = 0; step < 4; ++step) parts.loss.forward().backward().update(rule);
      parts.feed.reset();
    };
    esp::set_trainable(parts.w, false);
    epoch();
    BOOST_TEST(same(parts.w.value(), before[0]));
    BOOST_TEST(!same(parts.out.value(), before[2]));
    BOOST_TEST(rule.state_of(parts.w).empty());
    esp::set_trainable(parts.w, true), esp::set_trainable(parts.out, false);
    const esp::Tensor out = parts.out.value().clone();
    epoch();
    BOOST_TEST(!same(parts.w.value(), before[0]));
    BOOST_TEST(same(parts.out.value(), out));
    esp::set_trainable(parts.out, true);
    epoch();
    BOOST_TEST(!same(parts.out.value(), out));
    return parts.values();
  };
  const Trace eager = train(0);
  BOOST_TEST(difference_of(train(1), eager) < 1e-12);
  BOOST_TEST(difference_of(train(2), eager) < 1e-9);
}

BOOST_AUTO_TEST_CASE(plans_have_no_gradients_of_frozen_parameters) {
  const auto steps = [](bool frozen) {
    nn::Sequential body{nn::Dense(6), nn::Tanh(), nn::Dense(6)};
    const nn::Dense head(1);
    if (frozen) body.trainable(false);  // before its parameters are made
    const esp::data::Distributor feed({numbers({8, 3}, -1, 1, 4).to(esp::float32)}, {.batch_size = 4});
    const Variable loss = esp::mean(esp::square(head(body(feed.get_output_graphs()[0]))));
    const esp::Plan plan = loss.get_executor({.optimizer = optim::Sgd(0.1)}).plan();
    return std::pair(plan.steps(), plan.str());
  };
  const auto [all, text] = steps(false);
  const auto [few, frozen] = steps(true);
  BOOST_TEST(few + 4 < all, frozen);
}

BOOST_AUTO_TEST_CASE(modules_freeze_their_parameters) {
  nn::Sequential net{nn::Dense(4), nn::LayerNorm(), nn::Dense(1)};
  const nn::Sequential body{nn::Dense(2)};
  net.append(body);
  BOOST_TEST(net.trainable());
  net.trainable(false);
  BOOST_TEST(!net.trainable());
  const Variable x(numbers({3, 2}, -1, 1, 1).to(esp::float32));
  const Variable y = esp::sum(net(x));
  const auto before = net.parameter("0.weight").value().clone();
  BOOST_CHECK_EXCEPTION(y.update(optim::Sgd(0.1)), esp::Error,
                        says({"all parameters", "frozen", "trainable(true)"}));
  BOOST_CHECK_EXCEPTION(y.get_executor({.optimizer = optim::Sgd(0.1)}), esp::Error, says({"frozen"}));
  BOOST_TEST(y.gradient(net.parameter("0.weight")).shape() == before.shape());  // asked for by name
  const nn::Sequential copy = net.clone();
  BOOST_TEST(!copy.trainable());
  BOOST_CHECK_THROW(esp::sum(copy(x)).update(optim::Sgd(0.1)), esp::Error);
  body.state()->set_trainable(true);
  esp::sum(net(x)).update(optim::Sgd(0.1));
  BOOST_TEST(same(net.parameter("0.weight").value(), before));
  net.trainable(true);
  esp::sum(net(x)).update(optim::Sgd(0.1));
  BOOST_TEST(!same(net.parameter("0.weight").value(), before));
  BOOST_CHECK_THROW(esp::set_trainable(x, false), esp::Error);
}

BOOST_AUTO_TEST_CASE(vectors_need_not_decay) {
  const auto decayed = [](const optim::Optimizer& rule) {
    const Variable w = esp::parameter(esp::ones({2, 2})), b = esp::parameter(esp::ones({2}));
    (esp::sum(w * 0.0) + esp::sum(b * 0.0)).update(rule);
    return std::pair(esp::sum(w).item() < 4, esp::sum(b).item() < 2);
  };
  const std::pair both(true, true), matrices(true, false);
  for (const bool vectors : {true, false}) {
    const auto expected = vectors ? both : matrices;
    BOOST_TEST((decayed(optim::Sgd({.lr = 0.1, .weight_decay = 0.5, .decay_vectors = vectors})) == expected));
    BOOST_TEST(
        (decayed(optim::Adam({.lr = 0.1, .weight_decay = 0.5, .decay_vectors = vectors})) == expected));
    BOOST_TEST(
        (decayed(optim::AdamW({.lr = 0.1, .weight_decay = 0.5, .decay_vectors = vectors})) == expected));
    BOOST_TEST(
        (decayed(optim::RmsProp({.lr = 0.1, .weight_decay = 0.5, .decay_vectors = vectors})) == expected));
    BOOST_TEST(
        (decayed(optim::Adagrad({.lr = 0.1, .weight_decay = 0.5, .decay_vectors = vectors})) == expected));
  }
}

BOOST_AUTO_TEST_CASE(what_cannot_be_trained_is_said) {
  const Variable p = esp::parameter(esp::ones({2}), "p");
  const Variable flat = esp::sum(esp::sign(p)), none = esp::sum(esp::variable({1.0f}));
  const optim::Sgd rule(0.1);
  const auto update = [&](const Variable& v) { return [&] { v.update(rule); }; };
  const auto freeze = [&](const Variable& v) { return [&] { (void)v.get_executor({.optimizer = rule}); }; };
  for (const std::function<void()>& run :
       {std::function<void()>(update(flat)), std::function<void()>(freeze(flat))})
    BOOST_CHECK_EXCEPTION(run(), esp::Error,
                          says({"no gradient reaches", "'p'", "sign()", "optim_groups_test.cpp"}));
  for (const std::function<void()>& run :
       {std::function<void()>(update(none)), std::function<void()>(freeze(none))})
    BOOST_CHECK_EXCEPTION(run(), esp::Error, says({"no parameter in the tree"}));
}

BOOST_AUTO_TEST_CASE(updates_are_not_evaluated_by_hand) {
  const Variable p = esp::parameter(esp::ones({2}), "p"), loss = esp::sum(esp::square(p));
  const auto nodes = optim::Sgd(0.1).build({{p, loss.gradient(p)}});
  BOOST_REQUIRE(nodes.size() == 1u);
  BOOST_CHECK_EXCEPTION(nodes[0].forward(), esp::Error, says({"assign", "Variable::update", "set_value()"}));
  BOOST_CHECK_EXCEPTION(optim::assignment(p, p * 2.0), esp::Error, says({"assign", "set_value()"}));
}

BOOST_AUTO_TEST_CASE(penalties_of_groups_in_groups_add_up) {
  const Variable p = esp::parameter(esp::tensor({2.0, -4.0}, esp::float64));
  const optim::ParameterList list{p};
  const optim::Groups inner({{list, optim::Sgd(0.5), {.gradient_scale = 2, .l1 = 1, .l2 = 0.25}}}),
      outer({{list, inner, {.gradient_scale = 3, .l1 = 3, .l2 = 0.5}}});
  esp::sum(p * 0.1).update(outer);
  // p - 0.5 (0.1 * 6 + 4 sign(p) + 0.75 p)
  BOOST_TEST(difference(p.value(), esp::tensor({-1.05, -0.8}, esp::float64)) < 1e-14);
}

BOOST_AUTO_TEST_SUITE_END()
