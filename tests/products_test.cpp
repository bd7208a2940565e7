// Products of tensors as sums over named axes, against plain loops.
#include <boost/test/unit_test.hpp>

#include <map>

#include "espalier/core/error.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/products.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/products/contract.h"
#include "espalier/ops/views/axis_views.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Shape;
using esp::Tensor;
using esp::Variable;

namespace {

/// An equation without dots, whose operands are `inputs`, by a loop over all letters.
Array summed(const std::string& equation, const std::vector<Array>& inputs) {
  const size_t arrow = equation.find("->");
  const std::string result = equation.substr(arrow + 2);
  std::vector<std::string> terms(1);
  for (const char c : equation.substr(0, arrow))
    c == ',' ? terms.emplace_back() : (terms.back() += c, terms.back());
  std::map<char, size_t> place;
  Index sizes;
  for (size_t k = 0; k < terms.size(); ++k)
    for (size_t i = 0; i < terms[k].size(); ++i) {
      const auto [at, is_new] = place.try_emplace(terms[k][i], sizes.size());
      if (is_new) sizes.push_back(1);
      if (const int64_t size = inputs[k].shape.dims()[i]; size != 1) sizes[at->second] = size;
    }
  std::vector<int64_t> of_result;
  for (const char c : result) of_result.push_back(sizes[place.at(c)]);
  return Array(Shape(of_result), [&](const Index& at) {
    double sum = 0;
    each_index(Shape(sizes), [&](const Index& letters) {
      for (size_t i = 0; i < result.size(); ++i)
        if (letters[place.at(result[i])] != at[i]) return;
      double product = 1;
      for (size_t k = 0; k < terms.size(); ++k) {
        Index index;
        for (const char c : terms[k]) index.push_back(letters[place.at(c)]);
        product *= inputs[k](index);
      }
      sum += product;
    });
    return sum;
  });
}

void check_einsum(const std::string& equation, const std::vector<Tensor>& inputs) {
  check_op({.name = "einsum " + equation,
            .op = [&](const Variables& x) { return esp::einsum(equation, x); },
            .inputs = inputs,
            .reference = [&](const std::vector<Array>& in) { return summed(equation, in); },
            .tolerance32 = 1e-5,
            .roundings = inputs.size() == 1 ? 2 : 8});
}

/// Of the sums of einsum, the one with the same letters.
Reference by_equation(const std::string& equation) {
  return [=](const std::vector<Array>& in) { return summed(equation, in); };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(products)

BOOST_AUTO_TEST_CASE(einsum_of_one_operand) {
  check_einsum("ij->ji", {numbers({3, 4})});
  check_einsum("ij->i", {numbers({3, 4})});
  check_einsum("ij->", {numbers({3, 4})});
  check_einsum("ii->i", {numbers({4, 4})});
  check_einsum("ii->", {numbers({4, 4})});
  check_einsum("iji->ij", {numbers({3, 2, 3})});
  check_einsum("ijk->kij", {numbers({3, 2, 4})});
}

BOOST_AUTO_TEST_CASE(einsum_of_two_operands) {
  check_einsum("ij,jk->ik", {numbers({3, 4}), numbers({4, 2}, -1, 1, 1)});
  check_einsum("ij,jk->ki", {numbers({3, 4}), numbers({4, 2}, -1, 1, 1)});
  check_einsum("ji,jk->ik", {numbers({4, 3}), numbers({4, 2}, -1, 1, 1)});
  check_einsum("bij,bjk->bik", {numbers({2, 3, 4}), numbers({2, 4, 2}, -1, 1, 1)});
  check_einsum("ibj,jbk->bik", {numbers({3, 2, 4}), numbers({4, 2, 2}, -1, 1, 1)});
  check_einsum("i,i->", {numbers({5}), numbers({5}, -1, 1, 1)});
  check_einsum("bi,bi->b", {numbers({3, 5}), numbers({3, 5}, -1, 1, 1)});
  check_einsum("i,j->ij", {numbers({3}), numbers({4}, -1, 1, 1)});
  check_einsum("i,i->i", {numbers({3}), numbers({3}, -1, 1, 1)});
  check_einsum("ij,j->i", {numbers({3, 4}), numbers({4}, -1, 1, 1)});
  check_einsum("j,ij->i", {numbers({4}), numbers({3, 4}, -1, 1, 1)});
  check_einsum("ij,kl->", {numbers({3, 4}), numbers({2, 2}, -1, 1, 1)});
  check_einsum("ijkl,jlm->mik", {numbers({2, 3, 2, 4}), numbers({3, 4, 2}, -1, 1, 1)});
  check_einsum("iij,jk->ik", {numbers({3, 3, 2}), numbers({2, 2}, -1, 1, 1)});
  check_einsum(",i->i", {numbers({}), numbers({4}, -1, 1, 1)});
  check_einsum("bhqd,bhkd->bhqk", {numbers({2, 2, 3, 2}), numbers({2, 2, 2, 2}, -1, 1, 1)});
  check_einsum("ij,jk->ik", {numbers({0, 4}), numbers({4, 2})});
  check_einsum("ij,jk->ik", {numbers({3, 0}), numbers({0, 2})});
}

BOOST_AUTO_TEST_CASE(einsum_of_several_operands) {
  check_einsum("ij,jk,kl->il", {numbers({3, 4}), numbers({4, 2}, -1, 1, 1), numbers({2, 3}, -1, 1, 2)});
  check_einsum("i,ij,j->", {numbers({3}), numbers({3, 4}, -1, 1, 1), numbers({4}, -1, 1, 2)});
  check_einsum("bi,oij,bj->bo", {numbers({2, 3}), numbers({2, 3, 2}, -1, 1, 1), numbers({2, 2}, -1, 1, 2)});
  std::vector<Tensor> chain;
  std::string equation;
  for (int k = 0; k < 10; ++k) {  // more than are searched for the best order
    chain.push_back(numbers({2, 2}, -1, 1, static_cast<uint64_t>(k)));
    equation += std::string(k ? "," : "") + static_cast<char>('a' + k) + static_cast<char>('b' + k);
  }
  const Variable y = esp::einsum(equation + "->ak", {chain.begin(), chain.end()});
  std::vector<Array> arrays;
  for (const Tensor& x : chain) arrays.emplace_back(x);
  BOOST_TEST(difference(summed(equation + "->ak", arrays), y.value()) < 1e-12);
}

BOOST_AUTO_TEST_CASE(einsum_with_dots_spaces_and_axes_of_size_one) {
  const auto check = [](const std::string& equation, const std::string& same, const std::vector<Tensor>& x) {
    std::vector<Array> arrays;
    for (const Tensor& input : x) arrays.emplace_back(input);
    const Variable y = esp::einsum(equation, {x.begin(), x.end()});
    BOOST_TEST_CONTEXT(equation) BOOST_TEST(difference(summed(same, arrays), y.value()) < 1e-12);
  };
  check("...ij, ...jk -> ...ik", "abij,abjk->abik", {numbers({2, 3, 2, 4}), numbers({2, 3, 4, 2})});
  check("...i->...", "abi->ab", {numbers({2, 3, 4})});
  check("i...->...", "iab->ab", {numbers({2, 3, 4})});
  check("...", "ab->ab", {numbers({2, 3})});
  check("...i->i", "abi->i", {numbers({2, 3, 4})});
  check("...i->i...", "abi->iab", {numbers({2, 3, 4})});
  check("...ij->j...i", "abij->jabi", {numbers({2, 3, 4, 5})});
  check("ba", "ba->ab", {numbers({2, 3})});
  check("ij,jk", "ij,jk->ik", {numbers({2, 3}), numbers({3, 4})});
  check("Ab,bc", "Ab,bc->Ac", {numbers({2, 3}), numbers({3, 4})});
  check("...ij,jk->...ik", "aij,jk->aik", {numbers({2, 3, 4}), numbers({4, 2})});
  // What has fewer axes for the dots has the last ones.
  check("...ij,...jk->...ik", "bij,abjk->abik", {numbers({3, 2, 4}), numbers({2, 3, 4, 2})});
  check("...ij,...jk->...ik", "abij,bjk->abik", {numbers({2, 3, 2, 4}), numbers({3, 4, 2})});
  check("...,...,...", "c,bc,abc->abc", {numbers({2}), numbers({2, 2}), numbers({2, 2, 2})});
  // Axes of size 1 are repeated.
  const Variable one = numbers({1, 3, 4}), many = numbers({2, 4, 2});
  BOOST_TEST(difference(esp::matmul(one, many).value(), esp::einsum("bij,bjk->bik", {one, many}).value()) <
             1e-12);
  BOOST_TEST(difference(esp::matmul(one, many).value(),
                        esp::einsum("...ij,...jk->...ik", {one, many}).value()) < 1e-12);
}

// A chain of products is multiplied from its narrow end.
BOOST_AUTO_TEST_CASE(the_order_has_the_fewest_multiplications) {
  const std::vector<esp::AxisLabels> chain{{0, 1}, {1, 2}, {2, 3}};
  const auto narrow_end = esp::contraction_path(chain, {0, 3}, {100, 100, 100, 1});
  BOOST_TEST((narrow_end[0].first == 1 && narrow_end[0].second == 2));
  const auto narrow_begin = esp::contraction_path(chain, {0, 3}, {1, 100, 100, 100});
  BOOST_TEST((narrow_begin[0].first == 0 && narrow_begin[0].second == 1));
  BOOST_TEST((narrow_begin[1].first == 2 || narrow_begin[1].second == 2));
}

// Products of matrices are one matmul, and take what lies transposed as it is.
BOOST_AUTO_TEST_CASE(einsum_copies_no_matrix) {
  const Variable a = numbers({30, 40}), b = numbers({30, 20}, -1, 1, 1);
  const int64_t before = esp::memory_stats().allocations;
  const Variable y = esp::einsum("ki,kj->ij", {a, b});
  BOOST_TEST(esp::memory_stats().allocations == before + 1);
}

BOOST_AUTO_TEST_CASE(einsum_errors_name_equation_shapes_and_line) {
  const Variable a = esp::ones({2, 3}), b = esp::ones({4, 5});
  BOOST_CHECK_EXCEPTION(esp::einsum("ij,jk->ik", {a, b}), esp::ShapeError,
                        says({"ij,jk->ik", "[2, 3]", "[4, 5]", "3 and 4", "'j'", here()}));
  BOOST_CHECK_EXCEPTION(esp::einsum("ijk->ik", {a}), esp::ShapeError, says({"[2, 3]", "3 axes", here()}));
  BOOST_CHECK_EXCEPTION(esp::einsum("...ijk->ik", {a}), esp::ShapeError, says({"at least 3", here()}));
  BOOST_CHECK_EXCEPTION(esp::einsum("ii->i", {a}), esp::ShapeError, says({"2 and 3", here()}));
  BOOST_CHECK_EXCEPTION(esp::einsum("ij->ik", {a}), esp::Error, says({"'k'", "no operand", here()}));
  BOOST_CHECK_EXCEPTION(esp::einsum("ij->ii", {a}), esp::Error, says({"'i'", "twice", here()}));
  BOOST_CHECK_EXCEPTION(esp::einsum("ij,jk->ik", {a}), esp::Error, says({"2 operands", "1", here()}));
  BOOST_CHECK_EXCEPTION(esp::einsum("i-j->i", {a}), esp::Error, says({"i-j", here()}));
  BOOST_CHECK_EXCEPTION(esp::einsum("i.j->i", {a}), esp::Error, says({"i.j", here()}));
  BOOST_CHECK_EXCEPTION(esp::einsum("ij,jk", {a, esp::cast(b, esp::float64)}), esp::TypeError,
                        says({"float32", "float64", here()}));
  BOOST_CHECK_EXCEPTION(esp::einsum("i", {esp::arange(3, esp::int64)}), esp::TypeError,
                        says({"int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::einsum("ij", {Variable()}), esp::Error, says({"undefined", here()}));
}

BOOST_AUTO_TEST_CASE(the_table_of_products) {
  const Tensor u = numbers({4}), v = numbers({4}, -1, 1, 1), w = numbers({3}, -1, 1, 2);
  check_op(
      {"outer", [](const Variables& x) { return esp::outer(x[0], x[1]); }, {u, w}, by_equation("i,j->ij")});
  check_op({"dot", [](const Variables& x) { return esp::dot(x[0], x[1]); }, {u, v}, by_equation("i,i->")});
  const Tensor m = numbers({2, 3, 4}, -1, 1, 3), n = numbers({5, 4}, -1, 1, 4);
  check_op({"inner",
            [](const Variables& x) { return esp::inner(x[0], x[1]); },
            {numbers({2, 3, 4}), u},
            by_equation("abi,i->ab")});
  check_op({.name = "inner",
            .op = [](const Variables& x) { return esp::inner(x[0], x[1]); },
            .inputs = {m, n},
            .reference = by_equation("abi,ci->abc"),
            .tolerance32 = 1e-5,
            .roundings = 4});
  check_op({"vecdot",
            [](const Variables& x) { return esp::vecdot(x[0], x[1]); },
            {numbers({3, 4}), u},
            by_equation("ai,i->a")});
  check_op({"vecdot along the first axis",
            [](const Variables& x) { return esp::vecdot(x[0], x[1], 0); },
            {numbers({3, 2}), numbers({3, 2}, -1, 1, 1)},
            by_equation("ia,ia->a")});
  check_op({.name = "tensordot",
            .op = [](const Variables& x) { return esp::tensordot(x[0], x[1]); },
            .inputs = {m, numbers({3, 4, 2})},
            .reference = by_equation("aij,ijb->ab"),
            .tolerance32 = 1e-5,
            .roundings = 4});
  check_op({.name = "tensordot over pairs of axes",
            .op =
                [](const Variables& x) {
                  return esp::tensordot(x[0], x[1], {0, -1}, {1, 0});
                },
            .inputs = {m, numbers({4, 2, 2})},
            .reference = by_equation("iaj,jib->ab"),
            .tolerance32 = 1e-5,
            .roundings = 4});
  check_op({"tensordot over no axis",
            [](const Variables& x) { return esp::tensordot(x[0], x[1], 0); },
            {w, u},
            by_equation("i,j->ij")});
  check_op({"cross",
            [](const Variables& x) { return esp::cross(x[0], x[1]); },
            {numbers({2, 3}), w},
            [](const std::vector<Array>& in) {
              return Array({2, 3}, [&](const Index& i) {
                const int64_t j = (i[1] + 1) % 3, k = (i[1] + 2) % 3;
                return in[0]({i[0], j}) * in[1]({k}) - in[0]({i[0], k}) * in[1]({j});
              });
            },
            2,
            {},
            1e-12,
            2e-6,
            4});
  check_op({"kron",
            [](const Variables& x) { return esp::kron(x[0], x[1]); },
            {numbers({2, 3}), numbers({2, 2, 2})},
            [](const std::vector<Array>& in) {
              return Array({2, 4, 6}, [&](const Index& i) {
                return in[0]({i[1] / 2, i[2] / 2}) * in[1]({i[0], i[1] % 2, i[2] % 2});
              });
            }});
  check_op(
      {.name = "bilinear",
       .op = [](const Variables& x) { return esp::bilinear(x[0], x[1], x[2], x[3]); },
       .inputs = {numbers({3, 4}), numbers({3, 2}, -1, 1, 1), numbers({2, 4, 2}, -1, 1, 2), numbers({2})},
       .reference =
           [](const std::vector<Array>& in) {
             const Array product = summed("ai,aj,oij->ao", {in[0], in[1], in[2]});
             return Array({3, 2}, [&](const Index& i) { return product(i) + in[3]({i[1]}); });
           },
       .tolerance32 = 1e-5,
       .roundings = 8});
}

/// 181 · 181 − 181 · 180, where each product has no 16-bit number near it.
BOOST_AUTO_TEST_CASE(products_of_halves_are_added_before_they_are_rounded) {
  using Sum = std::function<Variable(const Variable&, const Variable&)>;
  const std::vector<Sum> sums{
      [](const Variable& x, const Variable& y) { return esp::dot(x, y); },
      [](const Variable& x, const Variable& y) { return esp::inner(x, y); },
      [](const Variable& x, const Variable& y) { return esp::vecdot(x, y); },
      [](const Variable& x, const Variable& y) { return esp::tensordot(x, y, 1); },
      [](const Variable& x, const Variable& y) {
        return esp::einsum("i,i->", {x, y});
      },
  };
  for (const esp::DType dtype : {esp::float16, esp::bfloat16}) {
    const Tensor x = esp::tensor({181.0, 181.0}).to(dtype), y = esp::tensor({181.0, -180.0}).to(dtype);
    for (const Sum& sum : sums) {
      const Variable eager = sum(x, y);
      BOOST_TEST(eager.dtype() == dtype);
      BOOST_TEST(eager.item() == 181);
      const Variable in = esp::placeholder("x", {2}, dtype);
      BOOST_TEST(sum(in, y).get_executor({.mode = esp::Mode::inference}).run({{"x", x}}).item() == 181);
    }
  }
  BOOST_CHECK_THROW(esp::dot(esp::ones({2}, esp::float16), esp::ones({2})), esp::TypeError);
}

BOOST_AUTO_TEST_CASE(views_of_axes) {
  check_op(
      {"merge_axes",
       [](const Variables& x) {
         return esp::merge_axes(x[0], {1, 2, 1});
       },
       {numbers({2, 3, 2, 2})},
       [](const std::vector<Array>& in) {
         return Array({2, 6, 2}, [&](const Index& i) { return in[0]({i[0], i[1] / 2, i[1] % 2, i[2]}); });
       }});
}

BOOST_AUTO_TEST_CASE(products_refuse_what_does_not_fit) {
  const Variable v = esp::ones({3}), m = esp::ones({3, 4}), k = esp::arange(3, esp::int64);
  BOOST_CHECK_EXCEPTION(esp::outer(v, m), esp::ShapeError, says({"outer", "[3]", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::dot(v, esp::ones({4})), esp::ShapeError, says({"dot", "[3]", "[4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::inner(v, m), esp::ShapeError, says({"inner", "[3]", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::vecdot(v, m), esp::ShapeError, says({"vecdot", "[3]", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::tensordot(m, m, 1), esp::ShapeError, says({"tensordot", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::tensordot(m, m, 3), esp::ShapeError, says({"tensordot", "3 axes", here()}));
  BOOST_CHECK_EXCEPTION(esp::tensordot(m, m, {0}, {0, 1}), esp::ShapeError, says({"tensordot", here()}));
  BOOST_CHECK_EXCEPTION(esp::tensordot(m, k, 0), esp::TypeError, says({"tensordot", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::cross(v, m), esp::ShapeError, says({"cross", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::bilinear(m, m, m), esp::ShapeError, says({"bilinear", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::kron(Variable(), m), esp::Error, says({"kron", "undefined", here()}));
  BOOST_TEST(difference(esp::inner(v, 2.0f).value(), (v * 2.0f).value()) == 0);
}

// Sizes of a batch are those of the step: the last one is short.
BOOST_AUTO_TEST_CASE(batches_of_any_size_eagerly_and_in_plans) {
  const Tensor rows = numbers({7, 2, 6}), others = numbers({7, 3, 2}, -1, 1, 1);
  const auto run = [&](bool planned, std::vector<esp::Device> devices = {}) {
    const esp::data::Distributor feed({rows, others}, {.batch_size = 3});
    const Variable w = esp::parameter(numbers({2, 3, 4, 2}, -1, 1, 2)), x = feed.get_output_graphs()[0],
                   y = feed.get_output_graphs()[1];
    const Variable h = esp::einsum("bik,ijlm,bjm->bkl", {x, w, y});
    const Variable loss =
        esp::mean(esp::square(h)) +
        esp::mean(esp::bilinear(esp::flatten(x, 1), esp::flatten(y, 1), esp::parameter(numbers({2, 12, 6}))));
    const esp::optim::Sgd sgd(0.05);
    if (planned) {
      loss.get_executor({.optimizer = sgd, .devices = std::move(devices)}).execute({.progress = false});
    } else {
      for (int64_t step = 0; step < feed.steps(); ++step) loss.forward().update(sgd);
    }
    return w.value();
  };
  const Tensor eager = run(false);
  BOOST_TEST(difference(eager, run(true)) < 1e-12);
  BOOST_TEST(difference(eager, run(true, {esp::cpu(), esp::cpu()})) < 1e-12);
}

/// Eager sums of products and cross products of more elements than a block has, also in other orders.
BOOST_AUTO_TEST_CASE(of_many_elements) {
  for (const esp::DType dtype : {esp::float32, esp::float64}) {
    const double bound = dtype == esp::float32 ? 1e-5 : 1e-13;
    const auto values = [&](const Shape& shape, uint64_t which) {
      return numbers(shape, -1, 1, which).to(dtype);
    };
    const auto plain = [](const Tensor& x) { return Array(x.to(esp::float64)); };
    for (const int64_t n : {1, 31, 2047, 2049, 50'001}) {
      const Tensor x = values({n}, 1), y = values({n}, 2);
      double expected = 0, size = 0;
      const Array a = plain(x), b = plain(y);
      for (size_t i = 0; i < a.values.size(); ++i) {
        expected += a.values[i] * b.values[i];
        size += std::abs(a.values[i] * b.values[i]);
      }
      BOOST_TEST(std::abs(esp::dot(x, y).item() - expected) <= bound * size, n);
      const Tensor turned = esp::flip(x, 0).value(), other = esp::flip(y, 0).value();
      BOOST_TEST(std::abs(esp::dot(turned, other).item() - expected) <= bound * size, n);
    }
    const Tensor p = values({5, 4100}, 3), q = values({5, 4100}, 4);
    const Tensor rows = esp::vecdot(p, q).value(),
                 columns = esp::vecdot(esp::transpose(p), esp::transpose(q), 0).value();
    BOOST_TEST(difference(rows, esp::sum(esp::multiply(p, q), -1).value()) <= 4100 * bound);
    BOOST_TEST(difference(rows, columns) <= 4100 * bound);
    for (const auto& [shape, axis] :
         std::vector<std::pair<Shape, int64_t>>{{{9001, 3}, 1}, {{3, 9001}, 0}, {{7, 3, 900}, 1}}) {
      const Tensor u = values(shape, 5), v = values(shape, 6), z = esp::cross(u, v, axis).value();
      const auto along = [&](const Tensor& t) {
        return plain(esp::movedim(t, axis, 0).value().contiguous_copy());
      };
      const Array a = along(u), b = along(v), c = along(z);
      const size_t count = c.values.size() / 3;
      double worst = 0;
      for (size_t k = 0; k < 3; ++k)
        for (size_t i = 0; i < count; ++i) {
          const size_t next = (k + 1) % 3 * count + i, last = (k + 2) % 3 * count + i;
          worst = std::max(worst, std::abs(a.values[next] * b.values[last] - a.values[last] * b.values[next] -
                                           c.values[k * count + i]));
        }
      BOOST_TEST(worst <= 4 * bound);
    }
  }
  BOOST_TEST(esp::dot(esp::zeros({0}), esp::zeros({0})).item() == 0);
}

BOOST_AUTO_TEST_SUITE_END()
