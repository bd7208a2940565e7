// Wrong values, shapes and types given to functions, layers and figures: each mistake is an error of its type
// that names what was called, and the line of the call.
#include <boost/test/unit_test.hpp>

#include <limits>

#include "espalier/espalier.h"
#include "mistakes.h"
#include "testing.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using namespace espalier::testing;
using esp::Variable;

namespace {

const esp::Tensor row = numbers({3}), matrix = numbers({3, 4}), image = numbers({2, 3, 4, 4}),
                  labels = esp::zeros({3}, esp::int64);

}  // namespace

BOOST_AUTO_TEST_SUITE(argument_errors)

BOOST_AUTO_TEST_CASE(shapes_of_operands) {
  check<esp::ShapeError>({
      {"cosine_similarity", [] { esp::cosine_similarity(matrix, row.slice(0, 0, 1), 1); }, "[3, 4] and [1]"},
      {"pairwise_distance", [] { esp::pairwise_distance(esp::tensor(1.0), esp::tensor(2.0)); }, "scalars"},
      {"einsum",
       [] {
         esp::einsum("ii->i", {Variable(row.reshape({1, 3}))});
       },
       "sizes 1 and 3 of 'i'"},
      {"bilinear",
       [] {
         esp::bilinear(matrix, matrix, numbers({2, 4, 4}), row);
       },
       "a bias of [3]"},
      {"ctc_loss", [] { esp::ctc_loss(matrix, labels, labels, labels); }, "[3, 4]"},
      {"pack_padded", [] { esp::data::pack_padded(row, {1}); }, "[3]"},
      {"fractional_max_pool",
       [] {
         esp::fractional_max_pool(image, {.kernel = 2, .parts = 2}, numbers({2, 3, 3}, 0, 1));
       },
       "samples of shape [2, 3, 3]"},
      {"perplexity", [] { esp::perplexity(row, esp::tensor(1)); }, "[3]"},
  });
}

BOOST_AUTO_TEST_CASE(types_of_operands) {
  check<esp::TypeError>({
      {"fractional_max_pool",
       [] {
         esp::fractional_max_pool(image, {.kernel = 2, .parts = 2},
                                  numbers({2, 3, 2}, 0, 1).to(esp::float32));
       },
       "samples are float32"},
      {"repeat_interleave", [] { esp::repeat_interleave(matrix, row, 0); }, "float64"},
      {"roi_align",
       [] {
         esp::roi_align(image, esp::zeros({1, 5}, esp::int64), {.size = 2});
       },
       "int64"},
      {"roi_align",
       [] {
         esp::roi_align(image, numbers({1, 4}), numbers({1}), {.size = 2});
       },
       "float64"},
      {"r2_score", [] { esp::r2_score(row, labels); }, "int64"},
      {"randint", [] { esp::randint(0, 300, {2}, esp::uint8); }, "uint8"},
      {"randint", [] { esp::randint(-129, 0, {2}, esp::int8); }, "int8"},
      {"randint", [] { esp::randint(0, 3, {2}, esp::float32); }, "float32"},
  });
}

BOOST_AUTO_TEST_CASE(numbers_of_functions) {
  constexpr int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  check<esp::Error>({
      {"roll", [] { esp::roll(row, least, 0); }, "64 bits"},
      {"max_pool", [] { esp::max_pool(image, {.kernel = 3, .dilation = 1 << 29}); }, "dilation 536870912"},
      {"poisson_nll_loss", [] { esp::poisson_nll_loss(row, row, {.epsilon = -1}); }, "epsilon is -1"},
  });
  check<esp::ShapeError>({{"pad", [] { esp::pad(row, {{most, 1}}); }, "[3]"}});
}

BOOST_AUTO_TEST_CASE(layers) {
  check<esp::Error>({
      {"KvCache", [] { nn::KvCache(-1); }, "-1 steps"},
      {"Bilinear", [] { nn::Bilinear(0, 2, 3); }, "widths 0 and 2"},
      {"InstanceNorm", [] { nn::InstanceNorm({.epsilon = 0}); }, "epsilon is 0"},
      {"MultiHeadAttention", [] { nn::MultiHeadAttention(4, 2, {.key_width = -1}); }, "-1"},
      {"TransformerEncoder",
       [] {
         std::vector<nn::KvCache> caches(3);
         nn::TransformerEncoder(2, 4, 2).step(esp::ones({1, 1, 4}), caches);
       },
       "3 caches for 2 layers"},
  });
  check<esp::ShapeError>({
      {"GroupNorm", [] { nn::GroupNorm(1)(row.to(esp::float32)); }, "[3]"},
      {"KvCache", [] { nn::KvCache().append(matrix, matrix); }, "[3, 4]"},
      {"KvCache",
       [] {
         nn::KvCache().append(image, numbers({2, 3, 5, 4}));
       },
       "[2, 3, 5, 4]"},
  });
  check<esp::TypeError>({
      {"Bilinear", [] { nn::Bilinear(2, 2, 3, {.dtype = esp::int64}); }, "int64"},
      {"MultiHeadAttention", [] { nn::MultiHeadAttention(4, 2, {.dtype = esp::int64}); }, "int64"},
      {"AdaptiveLogSoftmax", [] { nn::AdaptiveLogSoftmax(4, 6, {2}, {.dtype = esp::int64}); }, "int64"},
      {"EmbeddingBag",
       [] {
         nn::EmbeddingBag(5, 2, {.mode = nn::BagMode::sum})(esp::zeros({1, 3}, esp::int64), numbers({1, 3}));
       },
       "weights are float64 and the parameter float32"},
      {"KvCache",
       [] {
         nn::KvCache cache;
         cache.append(image, image);
         cache.append(image.to(esp::float32), image.to(esp::float32));
       },
       "float32"},
      {"ChildSumTreeLstm",
       [] {
         const esp::nn::ChildSumTreeLstm tree(4, 4);
         tree(esp::ones({3, 4}), {nn::LSTMState{matrix, matrix}});
       },
       "float64"},
  });
}

BOOST_AUTO_TEST_CASE(gradients_by_integers) {
  const Variable count = labels, flags = esp::zeros({3}, esp::boolean);
  const Variable y = esp::sum(esp::Variable(row) * esp::cast(count, esp::float64) +
                              esp::cast(flags, esp::float64) * esp::cast(count + int64_t{1}, esp::float64));
  const Variable inner = count + int64_t{1};
  const Variable z = esp::sum(esp::cast(inner, esp::float64));
  check<esp::TypeError>({{"gradient", [&] { (void)y.gradient(count); }, "int64 of shape [3]"},
                         {"gradient", [&] { (void)y.gradient(flags); }, "bool of shape [3]"},
                         {"gradient", [&] { (void)z.gradient(inner); }, "int64 of shape [3]"}});
}

BOOST_AUTO_TEST_CASE(figures_and_callbacks) {
  check<esp::Error>({
      {"ReduceLROnPlateau", [] { esp::ReduceLROnPlateau({.patience = 0}); }, "patience is 0"},
      {"ReduceLROnPlateau", [] { esp::ReduceLROnPlateau({.cooldown = -1}); }, "cooldown"},
      {"ReduceLROnPlateau", [] { esp::ReduceLROnPlateau({.minimum = -1}); }, "minimum"},
      {"generate",
       [] {
         nn::generate(
             [](const Variable& tokens, const nn::DecodingState&) {
               return nn::NextTokens{tokens, {}};
             },
             {1}, {}, {.most_tokens = -1});
       },
       "most_tokens is -1"},
  });
  check<esp::TypeError>({{"auc", [] { esp::Auc().add(labels, labels); }, "int64"}});
  check<esp::ShapeError>({{"predict",
                           [] {
                             const nn::Lambda net([](const Variable& x) { return esp::sum(x, 0); });
                             (void)esp::predict(net, esp::ones({4, 2}));
                           },
                           "[2] of 4 rows"}});
}

BOOST_AUTO_TEST_CASE(places_of_elements) {
  const Variable x = numbers({3, 4}), one = numbers({1}), two = numbers({2});
  const auto at = [](std::vector<int64_t> list) { return Variable(esp::tensor_from(list, {1, 2})); };
  const auto lengths = [](std::vector<int64_t> list) { return Variable(esp::tensor_from(list, {3})); };
  check<esp::IndexError>({
      {"gather_nd",
       [=] {
         esp::gather_nd(x, at({5, 0}));
       },
       "index 5 is outside an axis of size 3"},
      {"gather_nd",
       [=] {
         esp::gather_nd(x, at({0, -9}));
       },
       "index -9 is outside an axis of size 4"},
      {"scatter_nd",
       [=] {
         esp::scatter_nd(x, at({5, 0}), one);
       },
       "index 5"},
      {"scatter_nd_add",
       [=] {
         esp::scatter_nd_add(x, at({0, 4}), one);
       },
       "index 4"},
      {"reverse_sequence",
       [=] {
         esp::reverse_sequence(x, lengths({5, 1, 1}), 1, 0);
       },
       "axis of size 4"},
      {"reverse_sequence",
       [=] {
         esp::reverse_sequence(x, lengths({-1, 1, 1}), 1, 0);
       },
       "axis of size 4"},
  });
  check<esp::ShapeError>({
      {"scatter_nd",
       [=] {
         esp::scatter_nd(x, at({0, 0}), two);
       },
       "[2] cannot be repeated to [1]"},
      {"scatter_nd_add",
       [=] {
         esp::scatter_nd_add(x, at({0, 0}), two);
       },
       "[2] cannot be repeated to [1]"},
  });
  check<esp::TypeError>({
      {"scatter_nd_add",
       [=] {
         esp::scatter_nd_add(x, at({0, 0}), esp::cast(one, esp::float32));
       },
       "float32"},
      {"scatter_nd_add",
       [=] {
         esp::scatter_nd_add(esp::greater(x, 0.0), at({0, 0}), esp::greater(one, 0.0));
       },
       "bool"},
  });
}

BOOST_AUTO_TEST_SUITE_END()
