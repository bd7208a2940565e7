#include "espalier/nn/orthonormal.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "espalier/ops/ops.h"

namespace espalier::nn::init {

namespace {

constexpr int64_t block_rows = 32;

/// Makes the rows of a block orthonormal, by the modified method of Gram and Schmidt.
void orthonormalize_rows(Tensor& block) {
  const int64_t rows = block.shape()[0], size = block.shape()[1];
  const auto row = [&](int64_t i) {
    return std::span(block.data<double>() + i * size, static_cast<size_t>(size));
  };
  const auto product = [](std::span<double> a, std::span<double> b) {
    double sum = 0;
    for (size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
    return sum;
  };
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      const double along = product(row(i), row(j));
      for (size_t k = 0; k < row(i).size(); ++k) row(i)[k] -= along * row(j)[k];
    }
    const double length = std::sqrt(product(row(i), row(i)));
    for (double& element : row(i)) element /= length;
  }
}

/// Orthonormal rows that span what those of `matrix` do, a block after the other. Each is made orthogonal to
/// those before twice, since rounding leaves too much of them the first time.
Tensor with_orthonormal_rows(const Tensor& matrix) {
  const NoGrad none;
  const int64_t rows = matrix.shape()[0];
  Tensor result = matrix.clone();
  for (int64_t begin = 0; begin < rows; begin += block_rows) {
    const int64_t end = std::min(begin + block_rows, rows);
    Tensor block = matrix.slice(0, begin, end).clone();
    for (int pass = 0; pass < 2; ++pass) {
      if (begin > 0) {
        const Variable known(result.slice(0, 0, begin));
        const Variable along = matmul(Variable(block), transpose(known));
        block = (Variable(block) - matmul(along, known)).value().clone();
      }
      orthonormalize_rows(block);
    }
    Tensor place = result.slice(0, begin, end);
    copy_elements(block, place);
  }
  return result;
}

}  // namespace

std::vector<double> orthogonal_matrix(const std::vector<double>& normal, int64_t rows, int64_t columns,
                                      double gain) {
  const int64_t few = std::min(rows, columns), many = std::max(rows, columns);
  const Tensor q = with_orthonormal_rows(tensor_from(normal, {few, many}));
  const std::span<const double> elements = q.span<double>();
  std::vector<double> result(elements.size());
  for (int64_t i = 0; i < few; ++i)
    for (int64_t j = 0; j < many; ++j)
      result[static_cast<size_t>(rows <= columns ? i * columns + j : j * columns + i)] =
          gain * elements[static_cast<size_t>(i * many + j)];
  return result;
}

}  // namespace espalier::nn::init
