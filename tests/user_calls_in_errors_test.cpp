// Errors name the functions and lines that users wrote, and what they might have meant.
#include <boost/test/unit_test.hpp>

#include "espalier/espalier.h"
#include "temporary_folder.h"

namespace esp = espalier;
using espalier::testing::says;
using espalier::testing::TemporaryFolder;

namespace {

constexpr const char* here = "user_calls_in_errors_test.cpp";

/// Its `read` gives rows of another size.
struct WrongRows : esp::data::Dataset {
  int64_t rows() const override { return 2; }
  std::vector<esp::Spec> specs() const override { return {{esp::float32, {2, 3}}}; }
  void read(std::span<const int64_t> rows, std::span<esp::Tensor> out) const override {
    out[0] = esp::zeros({static_cast<int64_t>(rows.size()), 4});
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(user_calls_in_errors)

BOOST_AUTO_TEST_CASE(functions_have_the_names_that_users_call) {
  const esp::Tensor x = esp::rand({8, 3});
  const esp::nn::Dense dense(3, 1);
  const esp::optim::Sgd sgd(0.1);
  const esp::Variable first = esp::mean(dense(x)), second = esp::mean(esp::square(dense(x)));
  first.update(sgd);
  BOOST_CHECK_EXCEPTION(second.update(sgd), esp::Error, says({"Dense: the weight it used", here}));
  BOOST_CHECK_EXCEPTION(esp::masked_fill(x, esp::tensor({true, false}), 0), esp::ShapeError,
                        says({"(in masked_fill, ", here}));
  BOOST_CHECK_EXCEPTION(esp::Variable(x).permute({0, 0}), esp::ShapeError, says({"(in permute, ", here}));
  BOOST_CHECK_EXCEPTION(esp::permute(x, {0, 0}), esp::ShapeError, says({"(in permute, ", here}));
}

BOOST_AUTO_TEST_CASE(nothing_to_train_has_a_reason) {
  const esp::optim::Sgd sgd(0.1);
  const esp::Variable w = esp::variable({1.0F}), p = esp::parameter(esp::ones({2}), "p");
  const auto of_variable = says({"no parameter in the tree", "variable()", here, "parameter()"});
  BOOST_CHECK_EXCEPTION(esp::sum(w * w).update(sgd), esp::Error, of_variable);
  BOOST_CHECK_EXCEPTION(esp::sum(w * w).update(sgd, {w}), esp::Error, of_variable);
  const auto without_gradients = says({"no parameter in the tree", "NoGrad"});
  esp::Variable loss;
  {
    const esp::NoGrad guard;
    loss = esp::sum(esp::square(p));
    BOOST_CHECK_EXCEPTION(loss.update(sgd), esp::Error, without_gradients);
  }
  BOOST_CHECK_EXCEPTION(loss.update(sgd), esp::Error, without_gradients);
  BOOST_CHECK_EXCEPTION(esp::sum(esp::Variable(esp::ones({2}))).update(sgd), esp::Error,
                        [](const esp::Error& error) {
                          const std::string text = error.what();
                          return text.find("NoGrad") == text.npos && text.find("variable()") == text.npos;
                        });
}

BOOST_AUTO_TEST_CASE(files_and_batches_have_lines) {
  const TemporaryFolder folder;
  BOOST_CHECK_EXCEPTION(esp::write_safetensors(folder / "f", {{"a", esp::Tensor()}}), esp::FileError,
                        says({"'a'", here}));
  BOOST_CHECK_EXCEPTION(esp::read_safetensors(folder / "none"), esp::FileError, says({here}));
  const auto pass = [] {
    for (const auto& [x] : esp::data::batches<1>(std::make_shared<WrongRows>(), {.batch_size = 1})) (void)x;
  };
  BOOST_CHECK_EXCEPTION(pass(), esp::DataError, says({"WrongRows", "[1, 4]", here}));
}

BOOST_AUTO_TEST_SUITE_END()
