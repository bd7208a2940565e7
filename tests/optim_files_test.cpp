// The state of an optimizer in a file, for loops of one's own.
#include <boost/test/unit_test.hpp>

#include <limits>

#include "espalier/core/error.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/serialize.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/groups.h"
#include "espalier/optim/serialize.h"
#include "file_errors.h"
#include "temporary_folder.h"
#include "training_runs.h"

namespace esp = espalier;
namespace nn = espalier::nn;
namespace optim = espalier::optim;
using namespace espalier::testing;

namespace {

struct Program {
  nn::Sequential net{nn::Dense(3, 4, {.dtype = esp::float64}), nn::Tanh(),
                     nn::Dense(4, 2, {.dtype = esp::float64})};
  esp::Tensor x = numbers({5, 3}, -1, 1, 1);

  void train(const optim::Optimizer& rule, int steps) const {
    for (int i = 0; i < steps; ++i) esp::mean(esp::square(net(x) - 1.0)).backward().update(rule);
  }
  Trace values() const {
    Trace trace;
    for (const auto& [path, parameter] : net.parameters()) trace.push_back(parameter.value().clone());
    return trace;
  }
  optim::Optimizer rule(uint32_t which) const {
    if (which < optimizers) return optimizer_of(which);
    const auto all = net.parameters();
    return optim::Groups({{optim::NamedParameters(all.begin(), all.begin() + 2), optimizer_of(5)},
                          {optim::NamedParameters(all.begin() + 2, all.end()), optimizer_of(9)}});
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(optim_files)

BOOST_AUTO_TEST_CASE(a_loop_goes_on_bit_by_bit) {
  const TemporaryFolder folder;
  for (uint32_t which = 0; which <= optimizers; ++which) {
    const Program first;
    optim::Optimizer rule = first.rule(which);
    first.train(rule, 3);
    rule.set(which < optimizers ? "lr" : "1.lr", 0.003);
    nn::save(first.net, folder / "net");
    optim::save(rule, first.net.parameters(), folder / "rule");
    first.train(rule, 3);
    for (const int before : {0, 2}) {  // an optimizer that is new, or has other states
      const Program second;
      const optim::Optimizer other = second.rule(which);
      second.train(other, before);
      nn::load(second.net, folder / "net");
      optim::load(other, second.net.parameters(), folder / "rule");
      second.train(other, 3);
      BOOST_TEST(difference_of(second.values(), first.values()) == 0, which);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_new_optimizer_takes_states_of_16_bit_parameters) {
  const TemporaryFolder folder;
  for (const esp::DType dtype : {esp::float16, esp::bfloat16}) {
    const esp::Variable p = esp::parameter(esp::tensor({0.5f, -2.0f}).to(dtype));
    const auto train = [&](const optim::Optimizer& rule) { esp::sum(esp::square(p)).update(rule); };
    const optim::Adam first(0.125), second(0.125);
    train(first);
    const esp::Tensor before = p.value().clone();
    optim::save(first, {{"p", p}}, folder / "rule");
    train(first);
    const esp::Tensor after = p.value().clone();
    esp::set_value(p, before);
    optim::load(second, {{"p", p}}, folder / "rule");
    for (const auto& [name, leaf] : second.state_of(p)) BOOST_TEST((leaf.dtype() == esp::float32), name);
    train(second);
    BOOST_TEST(difference(p.value(), after) == 0, esp::name(dtype));
  }
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_changes_nothing) {
  const TemporaryFolder folder;
  const Program program;
  const optim::Adam adam({.lr = 0.01, .schedule = optim::exponential(0.5)});
  program.train(adam, 2);
  const auto all = program.net.parameters();
  optim::save(adam, all, folder / "f");
  const auto refused = [&](const optim::Optimizer& rule, const optim::NamedParameters& parameters) {
    return file_error([&] { optim::load(rule, parameters, folder / "f"); });
  };
  optim::Adam fresh({.lr = 0.5, .schedule = optim::exponential(0.5)});
  const std::string kind = refused(optim::Sgd(0.1), all);
  BOOST_TEST((has(kind, "'Adam'") && has(kind, "Sgd") && has(kind, "optim_files_test.cpp")), kind);
  BOOST_TEST(has(refused(optim::Adam(0.1), all), "'own/schedule_step'"));
  BOOST_TEST(has(refused(fresh, {all[0]}), "belongs to no parameter"));
  BOOST_TEST(has(refused(fresh, {all[0], all[1], {"2.weight", all[3].second}, {"2.bias", all[2].second}}),
                 "'state/2.weight/"));
  BOOST_TEST(fresh.learning_rate() == 0.5);
  BOOST_TEST(fresh.state_of(all[0].second).empty());
  optim::save(adam, {all[0]}, folder / "f");
  BOOST_TEST(has(refused(adam, all), "which the optimizer has"));
  optim::load(fresh, all, folder / "f");
  BOOST_TEST(fresh.learning_rate() == 0.01);
  BOOST_TEST(fresh.state()[0].second.item() == 2);
  BOOST_TEST(fresh.state_of(all[0].second).size() == 3u);
  BOOST_TEST(fresh.state_of(all[1].second).empty());
}

BOOST_AUTO_TEST_CASE(a_file_of_parameters_is_named_as_such) {
  const TemporaryFolder folder;
  const Program program;
  nn::save(program.net, folder / "net");
  const std::string error =
      file_error([&] { optim::load(program.rule(0), program.net.parameters(), folder / "net"); });
  BOOST_TEST(has(error, "no state of an optimizer"), error);
  BOOST_TEST(has(error, "nn::load"), error);
}

BOOST_AUTO_TEST_CASE(a_state_is_set) {
  optim::Sgd rule({.lr = 0.1, .momentum = 0.5});
  const esp::Variable p = esp::parameter(esp::ones({2}));
  rule.set_state(p, "momentum", esp::full({2}, 4));
  esp::sum(p * 0.0).update(rule);
  BOOST_TEST(std::abs(p.value().at<float>({0}) - 0.8f) < 1e-6f);
  BOOST_CHECK_THROW(rule.set_state(p, "momentum", esp::ones({3})), esp::ShapeError);
  BOOST_CHECK_THROW(rule.set_state(p, "momentum", esp::ones({2}, esp::float64)), esp::TypeError);
  BOOST_CHECK_THROW(rule.set_state(esp::ones({2}), "momentum", esp::ones({2})), esp::Error);
}

BOOST_AUTO_TEST_CASE(settings_that_no_optimizer_has_are_refused) {
  const TemporaryFolder folder;
  const Program program;
  const optim::Sgd rule(0.5);
  optim::save(rule, program.net.parameters(), folder / "rule");
  for (const double rate : {std::numeric_limits<double>::quiet_NaN(), -1.0}) {
    esp::FileNotes notes;
    esp::NamedTensors tensors = esp::read_safetensors(folder / "rule", &notes);
    for (auto& [name, tensor] : tensors)
      if (name == "setting/lr") tensor = esp::full({}, rate, esp::float64);
    esp::write_safetensors(folder / "other", tensors, notes);
    BOOST_CHECK_THROW(optim::load(rule, program.net.parameters(), folder / "other"), esp::FileError);
    BOOST_TEST(rule.learning_rate() == 0.5);
  }
}

BOOST_AUTO_TEST_SUITE_END()
