// Tensors: buffers with a shape, strides and a dtype.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <iomanip>
#include <sstream>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/core/tensor.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Shape;
using esp::Tensor;

namespace {

std::string text(const esp::Tensor& t) {
  std::ostringstream out;
  out << t;
  return out.str();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tensors)

BOOST_AUTO_TEST_CASE(shapes) {
  const esp::Shape shape{2, 3, 4};
  BOOST_TEST(shape.rank() == 3u);
  BOOST_TEST(shape.elements() == 24);
  BOOST_TEST(shape[-1] == 4);
  BOOST_TEST(shape[0] == 2);
  BOOST_TEST(shape.str() == "[2, 3, 4]");
  BOOST_TEST(esp::Shape().elements() == 1);
  BOOST_TEST(esp::Shape().str() == "[]");
  BOOST_TEST((esp::Shape{3, 0, int64_t{1} << 62, 4}.elements() == 0));
  BOOST_CHECK_THROW(shape[3], esp::ShapeError);
  BOOST_CHECK_THROW(shape[-4], esp::ShapeError);
  BOOST_CHECK_EXCEPTION((esp::Shape{2, -3}.elements()), esp::ShapeError, says({"[2, -3]"}));
  BOOST_CHECK_EXCEPTION((esp::Shape{int64_t{1} << 40, int64_t{1} << 40}.elements()), esp::ShapeError,
                        says({"1099511627776"}));
  BOOST_TEST(esp::broadcast({2, 1, 3}, {4, 1}, "op") == esp::Shape({2, 4, 3}));
  BOOST_CHECK_EXCEPTION(esp::broadcast({2, 3}, {4}, "op"), esp::ShapeError, says({"op", "[2, 3]", "[4]"}));
}

BOOST_AUTO_TEST_CASE(making_them) {
  BOOST_TEST(esp::zeros({2, 2}).at<float>({1, 1}) == 0);
  BOOST_TEST(esp::ones({2}, esp::int32).at<int32_t>({1}) == 1);
  BOOST_TEST(esp::full({}, 2.5, esp::float64).item() == 2.5);
  BOOST_TEST(esp::arange(5).dtype() == esp::float32);
  BOOST_TEST(esp::arange(5, esp::int64).at<int64_t>({4}) == 4);
  BOOST_TEST(esp::arange(0).elements() == 0);
  BOOST_TEST(difference(esp::eye(2), esp::tensor({{1.0f, 0.0f}, {0.0f, 1.0f}})) == 0);
  BOOST_TEST(esp::tensor(3).dtype() == esp::int64);
  BOOST_TEST(esp::tensor(3.0).dtype() == esp::float32);
  BOOST_TEST(esp::tensor(true).dtype() == esp::boolean);
  BOOST_TEST(esp::tensor({{1, 2, 3}, {4, 5, 6}}).shape() == esp::Shape({2, 3}));
  BOOST_TEST(esp::tensor_from(std::vector<bool>{true, false}, {2}).at<bool>({0}));
  BOOST_TEST(esp::tensor_from(std::vector<int32_t>{}, {0, 3}).shape() == esp::Shape({0, 3}));
  BOOST_CHECK_EXCEPTION(esp::tensor_from(std::vector<float>{1, 2, 3}, {2, 2}), esp::ShapeError,
                        says({"3", "[2, 2]", here()}));
  BOOST_CHECK_EXCEPTION(esp::tensor_from(std::vector<bool>{true}, {2}), esp::ShapeError, says({here()}));
  BOOST_CHECK_EXCEPTION(esp::tensor({{1, 2}, {3}}), esp::ShapeError, says({"differ", here()}));
  // Numbers of several types.
  const int64_t many = (int64_t{1} << 53) + 1;
  BOOST_TEST(difference(esp::tensor({1, 2.5}), esp::tensor({1.0f, 2.5f})) == 0);
  BOOST_TEST(difference(esp::tensor({{1, 2.5f}, {3.0, -4}}), esp::tensor({{1.0f, 2.5f}, {3.0f, -4.0f}})) ==
             0);
  BOOST_TEST(esp::tensor({1, many}).at<int64_t>({1}) == many);
  BOOST_TEST(esp::tensor({1.0, many}, esp::int64).at<int64_t>({1}) == many);
  BOOST_TEST((esp::tensor({true, 2}).dtype() == esp::int64));
  BOOST_TEST((esp::tensor({{1, size_t{2}}}, esp::float64).dtype() == esp::float64));
  BOOST_TEST((esp::tensor({{1.0}, {2.0}}).shape() == esp::Shape{2, 1}));
  BOOST_TEST(difference(esp::tensor({{1}, {2.5}}), esp::tensor({{1.0f}, {2.5f}})) == 0);
  BOOST_TEST((esp::tensor({{1}, {2.5}}, esp::float64).spec() == esp::Spec{esp::float64, {2, 1}}));
  BOOST_TEST(difference(esp::variable({1, 2.5}), esp::tensor({1.0f, 2.5f})) == 0);
  BOOST_TEST(difference(esp::state({{1}, {2.5}}), esp::tensor({{1.0f}, {2.5f}})) == 0);
  BOOST_TEST(difference(esp::parameter({{1, 2.5}, {3, 4}}), esp::tensor({{1.0f, 2.5f}, {3.0f, 4.0f}})) == 0);
  BOOST_TEST(difference(esp::tensor({{{1, 2.5}}, {{3, 4}}}), esp::tensor({{{1.0f, 2.5f}}, {{3.0f, 4.0f}}})) ==
             0);
  BOOST_TEST((esp::tensor({{{1, 2.5}, {3, 4}}}, esp::float64).spec() == esp::Spec{esp::float64, {1, 2, 2}}));
  BOOST_TEST(difference(esp::variable({{{1, 2.5}}}), esp::tensor({{{1.0f, 2.5f}}})) == 0);
  BOOST_CHECK_EXCEPTION(esp::tensor({{1, 2.5}, {3}}), esp::ShapeError, says({"differ", here()}));
  BOOST_CHECK_EXCEPTION(esp::tensor({{{1, 2.5}, {3, 4}}, {{5, 6}}}), esp::ShapeError,
                        says({"differ", here()}));
  BOOST_CHECK_EXCEPTION(esp::tensor({{{1, 2.5}, {3}}}), esp::ShapeError, says({"differ", here()}));
  BOOST_CHECK_EXCEPTION(esp::tensor({1, 2.5}, esp::int64), esp::TypeError, says({"2.5", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::tensor({1, UINT64_MAX}), esp::TypeError, says({"int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::variable({{1.0, 2.0}, {3.0}}), esp::ShapeError, says({"differ", here()}));
  BOOST_CHECK_EXCEPTION(esp::tensor(0.5, esp::int64), esp::TypeError, says({"0.5", here()}));
  BOOST_CHECK_EXCEPTION(esp::tensor({1.0, 1e40}), esp::TypeError, says({"1e+40", here()}));
  BOOST_CHECK_EXCEPTION(esp::tensor({UINT64_MAX}), esp::TypeError, says({"int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::variable({1e40}), esp::TypeError, says({"1e+40", here()}));
  BOOST_CHECK_EXCEPTION(esp::variable(1e40), esp::TypeError, says({"1e+40", here()}));
  BOOST_CHECK_EXCEPTION(esp::eye(-1), esp::ShapeError, says({"-1", here()}));
  BOOST_CHECK_THROW(esp::tensor(300'000'000'000, esp::int32), esp::TypeError);
  BOOST_CHECK_THROW(esp::arange(-1), esp::ShapeError);
  BOOST_CHECK_THROW(esp::zeros({-1}), esp::ShapeError);
  BOOST_CHECK_EXCEPTION(esp::zeros({int64_t{1} << 62}, esp::float64), esp::ShapeError,
                        says({"4611686018427387904"}));
  BOOST_CHECK_THROW(esp::randn({2}, esp::int64), esp::TypeError);
}

BOOST_AUTO_TEST_CASE(elements) {
  esp::Tensor t = esp::arange(6).reshape({2, 3});
  BOOST_TEST(t.at<float>({1, 0}) == 3);
  BOOST_TEST(t.at<float>({-1, -1}) == 5);
  t.at<float>({0, 1}) = 9;
  BOOST_TEST(t.span<float>()[1] == 9);
  BOOST_TEST(t.data<float>()[1] == 9);
  BOOST_CHECK_EXCEPTION(t.at<float>({2, 0}), esp::IndexError, says({"2", "axis 0"}));
  BOOST_CHECK_EXCEPTION(t.at<float>({0, -4}), esp::IndexError, says({"-4", "axis 1"}));
  BOOST_CHECK_EXCEPTION(t.at<float>({1}), esp::IndexError, says({"1 ind", "[2, 3]"}));
  BOOST_CHECK_EXCEPTION(t.at<double>({0, 0}), esp::TypeError, says({"float64", "float32"}));
  BOOST_CHECK_THROW(t.span<int32_t>(), esp::TypeError);
  BOOST_CHECK_THROW(t.data<double>(), esp::TypeError);
  BOOST_CHECK_EXCEPTION(t.slice(1, 0, 2).span<float>(), esp::ShapeError, says({"gaps", "[2, 2]"}));
  BOOST_CHECK_EXCEPTION(t.item(), esp::ShapeError, says({"[2, 3]", "6"}));
  BOOST_TEST(t.slice(0, 1, 2).slice(1, 2, 3).item() == 5);
  BOOST_TEST(esp::tensor(7).item<int64_t>() == 7);
  BOOST_TEST(esp::tensor(7.9f).item<int32_t>() == 7);
}

BOOST_AUTO_TEST_CASE(slices) {
  const esp::Tensor t = esp::arange(12).reshape({3, 4});
  const auto sum_of = [](const esp::Tensor& x) {
    const esp::Tensor copy = x.clone();
    double sum = 0;
    for (const float v : copy.span<float>()) sum += v;
    return sum;
  };
  BOOST_TEST(sum_of(t.slice(1, 1, 3)) == 1 + 2 + 5 + 6 + 9 + 10);
  BOOST_TEST(sum_of(t.slice(-1, 1, -1)) == 1 + 2 + 5 + 6 + 9 + 10);
  BOOST_TEST(sum_of(t.slice(0, -2, 3)) == 4 + 5 + 6 + 7 + 8 + 9 + 10 + 11);
  BOOST_TEST(sum_of(t.slice(0, -3, -2)) == 0 + 1 + 2 + 3);
  BOOST_TEST(sum_of(t.slice(0, 1, 3).slice(1, -1, 4).slice(0, 1, 2)) == 11);
  BOOST_TEST(t.slice(1, 2, 2).elements() == 0);
  BOOST_TEST(t.slice(0, 3, 3).shape() == esp::Shape({0, 4}));
  for (const auto& [begin, end] :
       std::vector<std::pair<int64_t, int64_t>>{{-5, 2}, {0, 5}, {3, 2}, {4, 3}, {-1, -2}})
    BOOST_CHECK_EXCEPTION(t.slice(1, begin, end), esp::IndexError,
                          says({"slice", "axis 1 of size 4", here()}));
  BOOST_CHECK_THROW(t.slice(2, 0, 1), esp::Error);
}

BOOST_AUTO_TEST_CASE(undefined_ones) {
  esp::Tensor none;
  BOOST_TEST(!none.defined());
  BOOST_CHECK_THROW(none.data<float>(), esp::TypeError);
  BOOST_CHECK_THROW(none.span<float>(), esp::TypeError);
  BOOST_CHECK_THROW(none.at<float>({}), esp::TypeError);
  BOOST_CHECK_THROW(none.item(), esp::TypeError);
  BOOST_TEST(!none.clone().defined());
  BOOST_TEST(!none.to(esp::float64).defined());
  BOOST_TEST(!none.contiguous_copy().defined());
  BOOST_TEST(!text(none).empty());
}

BOOST_AUTO_TEST_CASE(views_share_and_copies_do_not) {
  esp::Tensor t = esp::arange(12).reshape({3, 4});
  esp::Tensor part = t.slice(1, 1, 3), copy = part.clone(), flat = t.reshape({-1});
  BOOST_TEST(part.shape() == esp::Shape({3, 2}));
  BOOST_TEST(!part.contiguous());
  BOOST_TEST(copy.contiguous());
  part.at<float>({2, 1}) = 100;
  BOOST_TEST(t.at<float>({2, 2}) == 100);
  BOOST_TEST(flat.at<float>({10}) == 100);
  BOOST_TEST(copy.at<float>({2, 1}) == 10);
  BOOST_TEST(part.reshape({6}).at<float>({5}) == 100);  // a copy, since strides cannot express it
  BOOST_TEST(t.contiguous_copy().storage().get() == t.storage().get());
  BOOST_TEST(t.slice(0, 1, 1).elements() == 0);
  BOOST_CHECK_THROW(t.slice(0, 2, 1), esp::IndexError);
  BOOST_CHECK_THROW(t.slice(0, 0, 4), esp::IndexError);
  BOOST_CHECK_THROW(t.slice(2, 0, 1), esp::ShapeError);
  BOOST_CHECK_EXCEPTION(t.reshape({-1, 5}), esp::ShapeError, says({"12", "[-1, 5]"}));
}

BOOST_AUTO_TEST_CASE(other_dtypes) {
  const esp::Tensor t = esp::tensor({-1.7f, 0.0f, NAN, 1e20f});
  const esp::Tensor whole = t.to(esp::int64), flags = t.to(esp::boolean);
  BOOST_TEST(whole.at<int64_t>({0}) == -1);
  BOOST_TEST(whole.at<int64_t>({2}) == 0);
  BOOST_TEST(whole.at<int64_t>({3}) == INT64_MAX);
  BOOST_TEST(flags.at<bool>({0}));
  BOOST_TEST(!flags.at<bool>({1}));
  BOOST_TEST(t.to(esp::float32).storage().get() == t.storage().get());
  const esp::Tensor wide = numbers({2, 3});
  for (const esp::Tensor& strided : {laid_out_in_reverse(wide), sliced_from_larger(wide)}) {
    BOOST_TEST(strided.to(esp::float32).contiguous());
    BOOST_TEST(difference(strided.to(esp::float32), wide.to(esp::float32)) == 0);
  }
}

BOOST_AUTO_TEST_CASE(devices) {
  BOOST_TEST(esp::cpu().str() == "cpu:0");
  BOOST_TEST(esp::gpu(1).str() == "cuda:1");
  if (esp::all_gpus().empty())
    BOOST_CHECK_EXCEPTION(esp::ones({1}).to(esp::gpu()), esp::DeviceError, says({"cuda:0"}));
  const esp::Tensor there = esp::arange(3).to(esp::cpu(1));
  BOOST_TEST(there.device().str() == "cpu:1");
  BOOST_TEST(there.to(esp::cpu()).at<float>({2}) == 2);
}

BOOST_AUTO_TEST_CASE(printing) {
  BOOST_TEST(text(esp::tensor({{1.0f, 2.5f}, {-3.0f, 4.0f}})).find("2.5") != std::string::npos);
  BOOST_TEST(text(esp::tensor({1, 2, 3})) == "[1, 2, 3]");
  BOOST_TEST(text(esp::tensor(5)) == "5");
  BOOST_TEST(text(esp::tensor({1.0 / 3, -2e-9}, esp::float64)) == "[0.3333333333, -2e-09]");
  BOOST_TEST(text(esp::tensor({1.0 / 3}, esp::float16)) == "[0.3333]");
  BOOST_TEST(text(esp::zeros({0})) == "[]");
  BOOST_TEST(text(esp::tensor({true, false})).find("true") != std::string::npos);
  BOOST_TEST(text(esp::arange(100'000)).size() < 1000u);
  BOOST_TEST(text(esp::arange(5000, esp::int64)) == "[0, 1, 2, …, 4997, 4998, 4999]");
  BOOST_TEST(text(esp::zeros({1000, 1000, 10})).size() < 20'000u);
  // Only axes of more than six elements are shortened.
  BOOST_TEST(text(esp::zeros({1000, 6}, esp::int64)).starts_with("[[0, 0, 0, 0, 0, 0],\n"));
  BOOST_TEST(text(esp::zeros({1000, 7}, esp::int64)).starts_with("[[0, 0, 0, …, 0, 0, 0],\n"));
  // As the stream says.
  const auto with = [](auto... manipulators) {
    std::ostringstream out;
    (out << ... << manipulators) << esp::tensor({1.0 / 3, 20.0}, esp::float64);
    return out.str();
  };
  BOOST_TEST(with() == "[0.3333333333, 20]");
  BOOST_TEST(with(std::setprecision(3)) == "[0.333, 20]");
  BOOST_TEST(with(std::fixed, std::setprecision(2)) == "[0.33, 20.00]");
  BOOST_TEST(with(std::scientific) == "[3.333333e-01, 2.000000e+01]");
}

BOOST_AUTO_TEST_CASE(writing_elements) {
  Tensor t = esp::zeros({2, 3});
  t[0].fill(1);
  t.slice(1, 2, 3).copy_from(esp::tensor({{5.0f}, {6.0f}}));
  BOOST_TEST((t.to_vector<float>() == std::vector<float>{1, 1, 5, 0, 0, 6}));
  t.copy_from(esp::tensor({7.0f, 8.0f, 9.0f}));  // for each row
  BOOST_TEST((t.to_vector<int64_t>() == std::vector<int64_t>{7, 8, 9, 7, 8, 9}));
  Tensor square = esp::arange(4).reshape({2, 2});
  square.slice(0, 1, 2).copy_from(square.slice(0, 0, 1));
  BOOST_TEST((square.to_vector<double>() == std::vector<double>{0, 1, 0, 1}));
  square.copy_from(square[1]);  // a part of itself
  BOOST_TEST((square.to_vector<bool>() == std::vector<bool>{false, true, false, true}));
  for (const esp::Device gpu : gpus_to_test()) {
    Tensor there = esp::zeros({2, 2}).to(gpu);
    there[1].fill(3);
    there[0].copy_from(esp::tensor({1.0f, 2.0f}));
    BOOST_TEST((there.to_vector<float>() == std::vector<float>{1, 2, 3, 3}));
  }
  BOOST_CHECK_EXCEPTION(t.copy_from(esp::ones({2, 3, 1})), esp::ShapeError,
                        says({"copy_from", "[2, 3]", here()}));
  BOOST_CHECK_EXCEPTION(t.copy_from(esp::ones({2})), esp::ShapeError, says({"copy_from", "[2]", here()}));
  BOOST_CHECK_EXCEPTION(t.copy_from(esp::ones({3}, esp::int64)), esp::TypeError,
                        says({"copy_from", "int64", "float32", here()}));
  BOOST_CHECK_EXCEPTION(esp::zeros({2}, esp::uint8).fill(300), esp::TypeError, says({"300", here()}));
  BOOST_CHECK_EXCEPTION(Tensor().fill(1), esp::TypeError, says({"fill", "undefined", here()}));
  BOOST_CHECK_EXCEPTION(t.copy_from({}), esp::TypeError, says({"copy_from", "undefined", here()}));
  // What would change a temporary alone does not compile.
  static_assert(!std::is_assignable_v<Tensor, Tensor> && std::is_assignable_v<Tensor&, Tensor>);
  static_assert(!std::is_assignable_v<esp::Variable, float> && std::is_assignable_v<esp::Variable&, float>);
}

BOOST_AUTO_TEST_CASE(rows_and_lists) {
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const size_t columns = 3;
  const Tensor t = esp::tensor_from(values).reshape({-1, columns});
  BOOST_TEST(t.shape() == Shape({values.size() / columns, 3u}));
  std::vector<double> sums;
  for (const Tensor& row : t) sums.push_back(row.at<float>({0}) + row.at<float>({columns - 1}));
  BOOST_TEST((sums == std::vector<double>{4, 10}));
  for (const Tensor& row : esp::zeros({0, 2})) BOOST_ERROR(row);
  BOOST_CHECK_THROW(esp::tensor(1.0f).begin(), esp::ShapeError);
}

BOOST_AUTO_TEST_SUITE_END()
