// Packed sequences: their order, unpacking, padding, time steps, gradients, errors.
#include "espalier/ops/recurrent/packed_sequence.h"

#include <boost/test/unit_test.hpp>

#include <functional>

#include "espalier/core/error.h"
#include "espalier/nn/recurrent.h"
#include "espalier/ops/ops.h"
#include "layer_figures.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;
using esp::data::pack;
using esp::data::pack_padded;

namespace {

using Numbers = std::vector<int64_t>;

std::vector<Variable> sequences() {
  return {numbers({2, 3}, -1, 1, 0), numbers({4, 3}, -1, 1, 1), numbers({1, 3}, -1, 1, 2),
          numbers({4, 3}, -1, 1, 3)};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(packed_sequences)

BOOST_AUTO_TEST_CASE(the_longest_come_first_and_all_come_back) {
  const auto given = sequences();
  const auto packed = pack(given);
  BOOST_TEST(packed.batch_sizes == (Numbers{4, 3, 2, 2}));
  BOOST_TEST(packed.sorted_indices == (Numbers{1, 3, 0, 2}));
  BOOST_TEST(packed.unsorted_indices == (Numbers{2, 0, 3, 1}));
  BOOST_TEST(packed.lengths() == (Numbers{2, 4, 1, 4}));
  const auto back = packed.unpack();
  BOOST_TEST_REQUIRE(back.size() == given.size());
  for (size_t i = 0; i < given.size(); ++i) BOOST_TEST(difference(back[i].value(), given[i].value()) == 0);
}

BOOST_AUTO_TEST_CASE(padded_sequences_pack_and_come_back) {
  const auto packed = pack(sequences());
  for (const bool batch_first : {false, true}) {
    const auto padded = packed.pad({.value = 7, .batch_first = batch_first, .length = 5});
    BOOST_TEST(padded.values.shape() == (batch_first ? esp::Shape({4, 5, 3}) : esp::Shape({5, 4, 3})));
    BOOST_TEST(padded.lengths == (Numbers{2, 4, 1, 4}));
    const esp::Tensor& values = padded.values.value();
    BOOST_TEST((batch_first ? values.at<double>({0, 2, 1}) : values.at<double>({2, 0, 1})) == 7);
    const auto again = pack_padded(padded.values, padded.lengths, {.batch_first = batch_first});
    BOOST_TEST(again.batch_sizes == packed.batch_sizes);
    BOOST_TEST(difference(again.data.value(), packed.data.value()) == 0);
    for (const esp::DType dtype : {esp::int32, esp::int64}) {
      const esp::Tensor lengths = esp::tensor({2, 4, 1, 4}).to(dtype);
      BOOST_TEST(difference(pack_padded(padded.values, lengths, {.batch_first = batch_first}).data.value(),
                            packed.data.value()) == 0);
    }
  }
  BOOST_TEST(packed.pad().values.shape() == esp::Shape({4, 4, 3}));
}

BOOST_AUTO_TEST_CASE(time_steps_have_the_rows_of_what_still_runs) {
  const auto packed = pack(sequences());
  std::vector<Variable> steps;
  for (const Variable step : esp::rnn_view(packed)) steps.push_back(step);
  BOOST_TEST_REQUIRE(steps.size() == 4u);
  BOOST_TEST(steps[0].shape() == esp::Shape({4, 3}));
  BOOST_TEST(steps[3].shape() == esp::Shape({2, 3}));
  BOOST_TEST(difference(esp::concat(steps, 0).value(), packed.data.value()) == 0);
}

BOOST_AUTO_TEST_CASE(gradients_reach_the_sequences) {
  const Variable x = esp::variable(numbers({2, 3}, -1, 1)), y = esp::variable(numbers({3, 3}, -1, 1));
  const auto packed = pack({x, y});
  const Variable loss = weighed(packed.with(packed.data * packed.data).pad().values);
  const Variable whole = esp::pad(x * x, {{0, 1}, {0, 0}});
  const Variable expected = weighed(esp::stack({whole, y * y}, 1));
  BOOST_TEST(difference(loss.gradient(x).value(), expected.gradient(x).value()) < 1e-15);
  BOOST_TEST(difference(loss.gradient(y).value(), expected.gradient(y).value()) < 1e-15);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_packed) {
  const Variable x = esp::ones({2, 3});
  BOOST_CHECK_EXCEPTION(pack({}), esp::Error, says({"pack", "no sequences", "packed_sequence_test.cpp"}));
  BOOST_CHECK_EXCEPTION(pack({x, esp::ones({0, 3})}), esp::ShapeError, says({"pack", "[0, 3]"}));
  BOOST_CHECK_EXCEPTION(pack({x, esp::ones({2, 4})}), esp::ShapeError, says({"pack: ", "[2, 3]", "[2, 4]"}));
  BOOST_CHECK_EXCEPTION(pack({x, esp::ones({2})}), esp::ShapeError, says({"pack: ", "[2]"}));
  BOOST_CHECK_EXCEPTION(pack({x, esp::ones({2, 3}, esp::float64)}), esp::TypeError,
                        says({"pack: ", "float64"}));
  const auto here = "packed_sequence_test.cpp";
  const Variable open = esp::placeholder("x", {-1, 2, 3}), open_batch = esp::placeholder("x", {4, -1, 3});
  BOOST_CHECK_EXCEPTION(pack({x, open}), esp::UnsupportedError, says({"pack: ", "open axis", here}));
  for (const Variable& each : {open, open_batch})
    BOOST_CHECK_EXCEPTION(pack_padded(each, {1, 2}), esp::UnsupportedError,
                          says({"pack_padded: ", "open", here}));
  BOOST_CHECK_EXCEPTION(pack_padded(x, esp::tensor({1.0, 1.0, 1.0})), esp::TypeError,
                        says({"pack_padded: ", here}));
  BOOST_CHECK_EXCEPTION(pack_padded(x, esp::tensor({{1, 1, 1}})), esp::ShapeError,
                        says({"pack_padded: ", here}));
  BOOST_CHECK_EXCEPTION(pack_padded(x, esp::tensor({1, 1, 3})), esp::ShapeError,
                        says({"pack_padded: ", here}));
  BOOST_CHECK_EXCEPTION(pack_padded(x, {1}), esp::ShapeError, says({"pack_padded", "1 lengths", "3"}));
  BOOST_CHECK_EXCEPTION(pack_padded(x, {1, 2, 3}), esp::ShapeError, says({"pack_padded", "3", "2 steps"}));
  const auto packed = pack({x});
  BOOST_CHECK_EXCEPTION(packed.pad({.length = 1}), esp::Error, says({"pad", "1", "2"}));
  BOOST_CHECK_EXCEPTION(packed.with(esp::ones({3, 3})), esp::ShapeError, says({"3 rows", "2"}));
}

BOOST_AUTO_TEST_CASE(each_sequence_begins_with_its_own_state) {
  const esp::nn::Lstm lstm(2, 3, {.dtype = esp::float64});
  const Variable h = numbers({1, 3, 3}, -1, 1, 7), c = numbers({1, 3, 3}, -1, 1, 8);
  std::vector<Variable> sequences;
  for (const int64_t length : {1, 3, 2})
    sequences.push_back(numbers({length, 2}, -1, 1, static_cast<uint64_t>(length)));
  const auto packed = pack(sequences);  // in the order 1, 2, 0, which is not its own inverse
  const auto all = lstm(packed, {h, c});
  for (int64_t i = 0; i < 3; ++i) {
    const Variable& one = sequences[static_cast<size_t>(i)];
    const auto of = [&](const Variable& state) { return esp::slice(state, 1, i, i + 1); };
    const auto alone = lstm(esp::reshape(one, {one.shape()[0], 1, 2}), {of(h), of(c)});
    BOOST_TEST(difference(of(all.state.h).value(), alone.state.h.value()) < 1e-14);
    BOOST_TEST(difference(of(all.state.c).value(), alone.state.c.value()) < 1e-14);
  }
}

BOOST_AUTO_TEST_CASE(edited_packings_are_refused) {
  const auto packed = pack({numbers({3, 2}, -1, 1, 0), numbers({2, 2}, -1, 1, 1)});
  BOOST_TEST(packed.batch_sizes == (Numbers{2, 2, 1}));
  const esp::nn::Lstm lstm(2, 2, {.dtype = esp::float64});
  const auto refused = [&](const std::function<void(esp::data::PackedSequence&)>& edit) {
    auto edited = packed;
    edit(edited);
    BOOST_CHECK_EXCEPTION((void)lstm(edited), esp::ShapeError,
                          says({"Lstm: a packing", "packed_sequence_test.cpp"}));
    BOOST_CHECK_THROW((void)edited.unpack(), esp::ShapeError);
    BOOST_CHECK_THROW((void)edited.pad(), esp::ShapeError);
    BOOST_CHECK_EXCEPTION((void)edited.lengths(), esp::ShapeError,
                          says({"lengths", "packed_sequence_test.cpp"}));
  };
  for (const Numbers& sizes :
       {Numbers{2, 3}, Numbers{1, 4}, Numbers{2, 2}, Numbers{2, 2, 0, 1}, Numbers{2, 2, -1, 2},
        Numbers{2, 2, 1, 0}, Numbers{2, 1, 2}, Numbers{5}, Numbers{}})
    refused([&](auto& p) { p.batch_sizes = sizes; });
  refused([](auto& p) { p.sorted_indices = {0, 7}; });
  refused([](auto& p) { p.sorted_indices = {0, 0}; });
  refused([](auto& p) { p.unsorted_indices = {-1, 0}; });
  refused([](auto& p) { p.unsorted_indices.clear(); });
  refused([](auto& p) { p.data = numbers({4, 2}, -1, 1, 0); });
  refused([](auto& p) { p.batch_sizes = {1, 1, 1, 1, 1}; });  // nothing of the second sequence
  (void)lstm(packed);
}

BOOST_AUTO_TEST_CASE(variational_dropout_of_a_sequence_is_that_of_all_its_steps) {
  constexpr int64_t width = 64;
  for (const bool variational : {false, true}) {
    // The first layer gives ones, of which the second one gives what dropout has left.
    const esp::nn::Rnn net(3, width,
                           {.nonlinearity = esp::nn::Nonlinearity::relu,
                            .layers = 2,
                            .dropout = 0.5,
                            .variational = variational,
                            .dtype = esp::float64});
    for (const auto& [name, p] : net.parameters()) esp::set_value(p, esp::zeros(p.shape(), esp::float64));
    esp::set_value(net.parameter("bias_ih_l0"), esp::ones({width}, esp::float64));
    esp::set_value(net.parameter("weight_ih_l1"), esp::eye(width, esp::float64));
    const std::vector<Variable> left = net(pack(sequences())).outputs.unpack();
    for (const Variable& steps : left) {
      const Variable mean = esp::mean(steps);
      BOOST_TEST(std::abs(mean.item() - 1) < 0.5);
      if (steps.shape()[0] == 1) continue;
      const Variable again = steps - esp::slice(steps, 0, 0, 1);
      BOOST_TEST((esp::sum(esp::abs(again)).item() == 0) == variational);
    }
    BOOST_TEST(difference(left[1].value(), left[3].value()) > 0);  // each sequence has its own
  }
}

BOOST_AUTO_TEST_SUITE_END()
