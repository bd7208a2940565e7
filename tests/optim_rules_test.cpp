// What rules have in common with each other: settings that are refused, schedules, decay, rows of tables. The
// values of each are in optim_peers_test.cpp.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/optim/muon.h"
#include "espalier/optim/plateau.h"
#include "optimizer_cases.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

using Numbers = std::vector<double>;

struct SettingCase {
  const char* name;
  std::function<optim::Optimizer(double)> make;
  Numbers bad, good;
};

/// Settings of optimizers that have these members.
template <class Optimizer, class Options>
std::vector<SettingCase> with_common_settings(const char* lr, const char* decay) {
  const auto with = [](double Options::*member) {
    return [member](double value) {
      Options options;
      options.*member = value;
      return Optimizer(options);
    };
  };
  const Numbers below{-1, -1e-9, NAN, INFINITY};
  std::vector<SettingCase> cases{{lr, with(&Options::lr), below, {0, 2}}};
  if constexpr (requires { &Options::weight_decay; })
    cases.push_back({decay, with(&Options::weight_decay), below, {0, 1}});
  return cases;
}

std::vector<SettingCase> setting_cases() {
  using namespace optim;
  std::vector<SettingCase> all;
  const auto add = [&](std::vector<SettingCase> cases) { all.insert(all.end(), cases.begin(), cases.end()); };
  add(with_common_settings<Adadelta, AdadeltaOptions>("Adadelta: lr", "Adadelta: weight_decay"));
  add(with_common_settings<Adamax, AdamaxOptions>("Adamax: lr", "Adamax: weight_decay"));
  add(with_common_settings<NAdam, NAdamOptions>("NAdam: lr", "NAdam: weight_decay"));
  add(with_common_settings<RAdam, RAdamOptions>("RAdam: lr", "RAdam: weight_decay"));
  add(with_common_settings<Asgd, AsgdOptions>("Asgd: lr", "Asgd: weight_decay"));
  add(with_common_settings<Eg, EgOptions>("Eg: lr", ""));
  add(with_common_settings<Lion, LionOptions>("Lion: lr", "Lion: weight_decay"));
  add(with_common_settings<Lamb, LambOptions>("Lamb: lr", "Lamb: weight_decay"));
  add(with_common_settings<Lars, LarsOptions>("Lars: lr", "Lars: weight_decay"));
  add(with_common_settings<Adafactor, AdafactorOptions>("Adafactor: lr", "Adafactor: weight_decay"));
  add(with_common_settings<Muon, MuonOptions>("Muon: lr", "Muon: weight_decay"));
  const Numbers below{-1, NAN, INFINITY}, shares{-0.1, 1, NAN}, above{0, -1, NAN, INFINITY};
  add({
      {"Sgd: dampening",
       [](double v) { return Sgd({.momentum = 0.9, .dampening = v}); },
       {-0.1, 1.1, NAN},
       {0, 1}},
      {"Sgd with nesterov: dampening",
       [](double v) { return Sgd({.momentum = 0.9, .nesterov = true, .dampening = v}); },
       {0.1},
       {0}},
      {"Sgd with momentum_schedule: momentum",
       [](double v) { return Sgd({.momentum = v, .momentum_schedule = exponential(0.9)}); },
       {0},
       {0.5}},
      {"Adagrad: initial_accumulator",
       [](double v) { return Adagrad({.initial_accumulator = v}); },
       below,
       {0, 1}},
      {"Muon: momentum", [](double v) { return Muon({.momentum = v}); }, shares, {0, 0.9}},
      {"Muon: epsilon", [](double v) { return Muon({.epsilon = v}); }, above, {1e-9}},
      {"Muon: iterations",
       [](double v) { return Muon({.iterations = static_cast<int64_t>(v)}); },
       {0, -1, 101},
       {1, 100}},
      {"Adadelta: rho", [](double v) { return Adadelta({.rho = v}); }, shares, {0, 0.9}},
      {"Adadelta: epsilon", [](double v) { return Adadelta({.epsilon = v}); }, above, {1e-9}},
      {"Adamax: beta1", [](double v) { return Adamax({.beta1 = v}); }, shares, {0, 0.9}},
      {"Adamax: beta2", [](double v) { return Adamax({.beta2 = v}); }, shares, {0, 0.9}},
      {"Adamax: epsilon", [](double v) { return Adamax({.epsilon = v}); }, above, {1e-9}},
      {"NAdam: beta1", [](double v) { return NAdam({.beta1 = v}); }, shares, {0, 0.9}},
      {"NAdam: beta2", [](double v) { return NAdam({.beta2 = v}); }, shares, {0, 0.9}},
      {"NAdam: epsilon", [](double v) { return NAdam({.epsilon = v}); }, above, {1e-9}},
      {"NAdam: momentum_decay", [](double v) { return NAdam({.momentum_decay = v}); }, below, {0}},
      {"RAdam: beta1", [](double v) { return RAdam({.beta1 = v}); }, shares, {0, 0.9}},
      {"RAdam: beta2", [](double v) { return RAdam({.beta2 = v}); }, shares, {0, 0.9}},
      {"RAdam: epsilon", [](double v) { return RAdam({.epsilon = v}); }, above, {1e-9}},
      {"Asgd: lambda", [](double v) { return Asgd({.lambda = v}); }, below, {0}},
      {"Asgd: alpha", [](double v) { return Asgd({.alpha = v}); }, below, {0}},
      {"Asgd: t0", [](double v) { return Asgd({.t0 = v}); }, below, {0}},
      {"Rprop: lr", [](double v) { return Rprop(v); }, above, {1}},
      {"Rprop: shrink", [](double v) { return Rprop({.shrink = v}); }, {0, 1, -1, NAN}, {0.5}},
      {"Rprop: grow", [](double v) { return Rprop({.grow = v}); }, {1, 0.5, NAN, INFINITY}, {1.1}},
      {"Rprop: smallest", [](double v) { return Rprop({.smallest = v}); }, above, {1e-9}},
      {"Rprop: largest", [](double v) { return Rprop({.largest = v}); }, {1e-9, -1, NAN, INFINITY}, {1}},
      {"Eg: momentum", [](double v) { return Eg({.momentum = v}); }, below, {0, 0.9}},
      {"Lion: beta1", [](double v) { return Lion({.beta1 = v}); }, shares, {0, 0.9}},
      {"Lion: beta2", [](double v) { return Lion({.beta2 = v}); }, shares, {0, 0.9}},
      {"Lamb: beta1", [](double v) { return Lamb({.beta1 = v}); }, shares, {0, 0.9}},
      {"Lamb: beta2", [](double v) { return Lamb({.beta2 = v}); }, shares, {0, 0.9}},
      {"Lamb: epsilon", [](double v) { return Lamb({.epsilon = v}); }, above, {1e-9}},
      {"Lars: momentum", [](double v) { return Lars({.momentum = v}); }, below, {0}},
      {"Lars: trust", [](double v) { return Lars({.trust = v}); }, above, {1}},
      {"Adafactor: beta2_decay",
       [](double v) { return Adafactor({.beta2_decay = v}); },
       {0.1, NAN, -INFINITY},
       {0}},
      {"Adafactor: epsilon1", [](double v) { return Adafactor({.epsilon1 = v}); }, below, {0}},
      {"Adafactor: epsilon2", [](double v) { return Adafactor({.epsilon2 = v}); }, below, {0}},
      {"Adafactor: threshold", [](double v) { return Adafactor({.threshold = v}); }, above, {0.5}},
  });
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(optim_rules)

BOOST_AUTO_TEST_CASE(settings_that_make_no_sense) {
  for (const SettingCase& c : setting_cases()) BOOST_TEST_CONTEXT(c.name) {
      for (const double value : c.bad)
        BOOST_CHECK_EXCEPTION(c.make(value), esp::Error, says({c.name, "cannot be", "optim_rules_test.cpp"}));
      for (const double value : c.good) BOOST_CHECK_NO_THROW(c.make(value));
    }
}

BOOST_AUTO_TEST_CASE(schedules_scale_every_rate) {
  const auto once = [](int64_t step) { return step == 0 ? 1.0 : 0.0; };
  using namespace optim;
  const std::vector<Optimizer> rules{Adadelta({.schedule = once}),
                                     Adamax({.schedule = once}),
                                     NAdam({.schedule = once}),
                                     RAdam({.schedule = once}),
                                     Asgd({.schedule = once}),
                                     Eg({.momentum = 0, .schedule = once}),
                                     Lion({.schedule = once}),
                                     Lamb({.schedule = once}),
                                     Lars({.momentum = 0, .schedule = once}),
                                     Adafactor({.schedule = once}),
                                     Muon({.weight_decay = 0, .schedule = once})};
  for (const Optimizer& rule : rules) {
    const Variable p = esp::parameter(esp::tensor({{0.25, 0.25}, {0.125, 0.375}}, esp::float64));
    const auto update = [&] { esp::sum(esp::square(p)).update(rule); };
    const esp::Tensor start = p.value().clone();
    update();
    const esp::Tensor before = p.value().clone();
    BOOST_TEST(difference(before, start) > 0, rule.name());
    update();
    BOOST_TEST(difference(p.value(), before) < 1e-15, rule.name());
  }
}

BOOST_AUTO_TEST_CASE(vectors_need_not_decay) {
  const auto decayed = [](const optim::Optimizer& rule) {
    const Variable w = esp::parameter(esp::ones({2, 2})), b = esp::parameter(esp::ones({2}));
    (esp::sum(w * 0.0) + esp::sum(b * 0.0)).update(rule);
    return std::pair(esp::sum(w).item() < 4, esp::sum(b).item() < 2);
  };
  using namespace optim;
  for (const bool vectors : {true, false}) {
    const std::vector<Optimizer> rules{
        Adadelta({.weight_decay = 0.5, .decay_vectors = vectors}),
        Adamax({.weight_decay = 0.5, .decay_vectors = vectors}),
        NAdam({.weight_decay = 0.5, .decay_vectors = vectors}),
        NAdam({.weight_decay = 0.5, .decay_vectors = vectors, .decoupled_weight_decay = true}),
        RAdam({.weight_decay = 0.5, .decay_vectors = vectors}),
        RAdam({.weight_decay = 0.5, .decay_vectors = vectors, .decoupled_weight_decay = true}),
        Asgd({.lambda = 0, .weight_decay = 0.5, .decay_vectors = vectors}),
        Lion({.weight_decay = 0.5, .decay_vectors = vectors}),
        Lamb({.weight_decay = 0.5, .decay_vectors = vectors}),
        Lars({.weight_decay = 0.5, .decay_vectors = vectors}),
        Adafactor({.weight_decay = 0.5, .decay_vectors = vectors})};
    for (const Optimizer& rule : rules)
      BOOST_TEST((decayed(rule) == std::pair(true, vectors)), rule.name() << vectors);
  }
}

// Rows that a step does not look up stay as they are, with their states; the others are as in a table of
// their own.
BOOST_AUTO_TEST_CASE(sparse_rules_change_rows_alone) {
  using namespace optim;
  const auto rules = [](bool sparse) {
    return std::vector<Optimizer>{Adadelta({.weight_decay = 0.1, .sparse = sparse}),
                                  Adamax({.weight_decay = 0.1, .sparse = sparse}),
                                  NAdam({.weight_decay = 0.1, .sparse = sparse}),
                                  RAdam({.weight_decay = 0.1, .sparse = sparse}),
                                  Rprop({.sparse = sparse}),
                                  Lion({.weight_decay = 0.1, .sparse = sparse}),
                                  Adam({.amsgrad = true, .sparse = sparse}),
                                  RmsProp({.centered = true, .sparse = sparse}),
                                  Sgd({.momentum = 0.9, .dampening = 0.1, .sparse = sparse})};
  };
  const auto some = rules(true), whole = rules(false);
  for (size_t i = 0; i < some.size(); ++i)
    for (const bool frozen : {false, true}) BOOST_TEST_CONTEXT(some[i].name() << " frozen " << frozen) {
        const esp::Tensor start = numbers({8, 2}, 0.5, 1, 3), looked_up = esp::tensor({1, 2}, esp::int64);
        const Variable table = esp::parameter(start.clone()),
                       own = esp::parameter(start.slice(0, 1, 3).clone());
        const auto steps = [&](const auto& loss, const Optimizer& rule) {
          if (frozen)
            (void)loss().get_executor({.optimizer = rule}).execute({.epochs = 3, .progress = false});
          else
            for (int step = 0; step < 3; ++step) loss().update(rule);
        };
        steps([&] { return esp::sum(esp::square(esp::gather(table, looked_up))); }, rules(true)[i]);
        steps([&] { return esp::sum(esp::square(own)); }, rules(false)[i]);
        BOOST_TEST(difference(table.value().slice(0, 1, 3), own.value()) < 1e-14);
        BOOST_TEST(difference(table.value().slice(0, 3, 8), start.slice(0, 3, 8)) == 0);
        BOOST_TEST(difference(own.value(), start.slice(0, 1, 3)) > 0);
      }
}

BOOST_AUTO_TEST_CASE(trust_ratios_of_vectors) {
  using namespace optim;
  for (const bool adapts : {true, false}) {
    const Variable w = esp::parameter(esp::tensor({{3.0, 4.0}}, esp::float64)),
                   b = esp::parameter(esp::tensor({3.0, 4.0}, esp::float64));
    (esp::sum(w) + esp::sum(b)).update(Lars({.lr = 1, .trust = 0.1, .adapt_vectors = adapts}));
    const double adapted = 3 - 0.1 * 5 / std::sqrt(2.0);
    BOOST_TEST(std::abs(Array(w.value()).values[0] - adapted) < 1e-14);
    BOOST_TEST(std::abs(Array(b.value()).values[0] - (adapts ? adapted : 2)) < 1e-14);
    const Variable v = esp::parameter(esp::tensor({3.0, 4.0}, esp::float64));
    esp::sum(v).update(Lamb({.lr = 0.1, .epsilon = 1e-12, .adapt_vectors = adapts}));
    BOOST_TEST(std::abs(Array(v.value()).values[0] - (3 - 0.1 * (adapts ? 5 / std::sqrt(2.0) : 1))) < 1e-10);
  }
}

BOOST_AUTO_TEST_CASE(adafactor_moves_what_starts_as_zeros) {
  // By lr times the least size of a parameter, against the sign of the gradient.
  const Variable p = esp::parameter(esp::zeros({2}, esp::float64));
  esp::sum(p * esp::tensor({3.0, -0.5}, esp::float64))
      .update(optim::Adafactor({.lr = 0.5, .epsilon2 = 0.25}));
  BOOST_TEST(difference(p.value(), esp::tensor({-0.125, 0.125}, esp::float64)) < 1e-15);
}

BOOST_AUTO_TEST_CASE(rmsprop_takes_gradients_that_stay_the_same) {
  // Their variance falls to 0, and rounding could bring it below.
  for (const esp::DType dtype : {esp::float64, esp::float32})
    for (const bool frozen : {false, true}) {
      const Variable p = esp::parameter(esp::zeros({64}, dtype));
      const Variable loss = esp::sum(p * numbers({64}, 0.1, 2).to(dtype));
      const optim::RmsProp rule({.lr = 1e-3, .alpha = 0.5, .centered = true});
      if (frozen)
        (void)loss.get_executor({.optimizer = rule}).execute({.epochs = 100, .progress = false});
      else
        for (int step = 0; step < 100; ++step) loss.update(rule);
      for (const double value : Array(p.value()).values)
        BOOST_TEST((std::isfinite(value) && value < 0), value << " in " << esp::name(dtype) << ' ' << frozen);
    }
}

BOOST_AUTO_TEST_CASE(probabilities_stay_probabilities) {
  const Variable p = esp::parameter(esp::tensor({0.5, 0.0, 0.25, 0.25}, esp::float64), "odds");
  const optim::Eg eg(0.5);
  for (int i = 0; i < 50; ++i) esp::sum(esp::square(p - 0.3)).update(eg);
  const std::vector<double> values = Array(p.value()).values;
  double sum = 0;
  for (const double value : values) sum += value;
  BOOST_TEST(std::abs(sum - 1) < 1e-14);
  BOOST_TEST(values[1] == 0);
  const Variable negative = esp::parameter(esp::tensor({0.5, -0.25}, esp::float64), "odds");
  BOOST_CHECK_EXCEPTION(esp::sum(negative).update(eg), esp::Error,
                        says({"Eg", "'odds'", "[2]", "-0.25", "optim_rules_test.cpp"}));
  BOOST_TEST(eg.state_of(negative).empty());
}

BOOST_AUTO_TEST_CASE(the_first_step_of_rprop_is_no_setting) {
  optim::Rprop rprop(0.5);
  const Variable p = esp::parameter(esp::tensor(0.0, esp::float64));
  (p * 1.0).update(rprop);
  BOOST_TEST(p.item() == -0.5);
  BOOST_CHECK_EXCEPTION(rprop.set_learning_rate(1), esp::Error, says({"Rprop", "'lr'"}));
  BOOST_CHECK_EXCEPTION(optim::ReduceOnPlateau{rprop}, esp::Error, says({"Rprop", "'lr'"}));
}

BOOST_AUTO_TEST_CASE(schedules_that_make_no_sense) {
  using namespace optim;
  const std::vector<std::pair<const char*, std::function<void()>>> bad{
      {"multi_step: a milestone",
       [] {
         (void)multi_step({.milestones = {3, -1}});
       }},
      {"multi_step: factor", [] { (void)multi_step({.milestones = {3}, .factor = NAN}); }},
      {"polynomial: steps", [] { (void)polynomial({.steps = 0}); }},
      {"polynomial: power", [] { (void)polynomial({.power = -1}); }},
      {"polynomial: last", [] { (void)polynomial({.last = INFINITY}); }},
      {"cosine_restarts: steps", [] { (void)cosine_restarts({.steps = 0}); }},
      {"cosine_restarts: multiplier", [] { (void)cosine_restarts({.multiplier = 0.5}); }},
      {"one_cycle: steps", [] { (void)one_cycle({.steps = 1}); }},
      {"one_cycle: steps", [] { (void)one_cycle({.steps = 3}); }},
      {"one_cycle: rise", [] { (void)one_cycle({.steps = 100, .rise = 1}); }},
      {"one_cycle_momentum: low", [] { (void)one_cycle_momentum({.steps = 100}, -0.1); }},
      {"one_cycle_momentum: low", [] { (void)one_cycle_momentum({.steps = 100}, 1.1); }},
      {"one_cycle_momentum: steps", [] { (void)one_cycle_momentum({.steps = 1}); }},
      {"one_cycle: rise", [] { (void)one_cycle({.steps = 100, .rise = 0.5, .three_phases = true}); }},
      {"cyclical: low", [] { (void)cyclical({.low = 2}); }},
      {"cyclical: up", [] { (void)cyclical({.up = 0}); }},
      {"cyclical: down", [] { (void)cyclical({.down = -1}); }},
      {"cyclical: decay", [] { (void)cyclical({.decay = -1}); }},
      {"warm_up: steps", [] { (void)warm_up({.steps = 0}); }},
      {"warm_up: first", [] { (void)warm_up({.first = -1}); }},
      {"chained: there must be at least one", [] { (void)chained({}); }},
      {"sequential: there must be at least one", [] { (void)sequential({}, {}); }},
      {"between 2 schedules there are 1 milestones, not 0",
       [] {
         (void)sequential({Schedule(), Schedule()}, {});
       }},
      {"sequential: a milestone",
       [] {
         (void)sequential({Schedule(), Schedule(), Schedule()}, {5, 5});
       }},
  };
  for (const auto& [message, make] : bad)
    BOOST_CHECK_EXCEPTION(make(), esp::Error, says({message, "optim_rules_test.cpp"}));
  // A constant schedule is one of a sequence and of a product.
  BOOST_TEST(sequential({Schedule(), exponential(0.5)}, {3}).at(4) == 0.5);
  BOOST_TEST(chained({Schedule(), exponential(0.5)}).at(2) == 0.25);
}

BOOST_AUTO_TEST_SUITE_END()
