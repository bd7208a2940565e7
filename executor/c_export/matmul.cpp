// Matrix products: blocks of the result in registers, eight numbers side by side.
#include "espalier/executor/c_export/emitters.h"

namespace espalier::c_export {

namespace {

/// Rows of b side by side: four rows of the result at once. `more` adds to what c has.
constexpr const char* by_columns =
    R"(/* c (m x n) = a (m x k, with any strides) times b (k x n, rows side by side), or that added to c. */
static void product(long m, long n, long k, const float *restrict a, long row, long column,
                    const float *restrict b, long ldb, float *restrict c, int more) {
  const long rows = m / 4 * 4, columns = n / 8 * 8;
  for (long i = 0; i < rows; i += 4) {
    for (long j = 0; j < columns; j += 8) {
      float s[4][8] = {{0}};
      for (long p = 0; p < k; ++p) {
        const float *restrict from = b + p * ldb + j;
        for (int r = 0; r < 4; ++r) {
          const float x = a[(i + r) * row + p * column];
          for (int l = 0; l < 8; ++l) s[r][l] += x * from[l];
        }
      }
      for (int r = 0; r < 4; ++r)
        for (int l = 0; l < 8; ++l) c[(i + r) * n + j + l] = more ? c[(i + r) * n + j + l] + s[r][l] : s[r][l];
    }
    for (long j = columns; j < n; ++j)
      for (int r = 0; r < 4; ++r) {
        float s = more ? c[(i + r) * n + j] : 0;
        for (long p = 0; p < k; ++p) s += a[(i + r) * row + p * column] * b[p * ldb + j];
        c[(i + r) * n + j] = s;
      }
  }
  for (long i = rows; i < m; ++i) {
    if (!more)
      for (long j = 0; j < n; ++j) c[i * n + j] = 0;
    for (long p = 0; p < k; ++p) {
      const float x = a[i * row + p * column];
      for (long j = 0; j < n; ++j) c[i * n + j] += x * b[p * ldb + j];
    }
  }
}
)";

/// Rows of a and columns of b side by side along the inner axis.
constexpr const char* by_dots =
    R"(/* c (m x n) = a (m x k) times the transpose of b (n x k), rows side by side, or that added to c. */
static void product_of_rows(long m, long n, long k, const float *restrict a, long lda,
                            const float *restrict b, long ldb, float *restrict c, int more) {
  const long columns = n / 4 * 4, inner = k / 8 * 8;
  for (long i = 0; i < m; ++i) {
    const float *restrict x = a + i * lda;
    for (long j = 0; j < columns; j += 4) {
      float s[4][8] = {{0}};
      for (long p = 0; p < inner; p += 8)
        for (int r = 0; r < 4; ++r)
          for (int l = 0; l < 8; ++l) s[r][l] += x[p + l] * b[(j + r) * ldb + p + l];
      for (int r = 0; r < 4; ++r) {
        float total = ((s[r][0] + s[r][4]) + (s[r][1] + s[r][5])) + ((s[r][2] + s[r][6]) + (s[r][3] + s[r][7]));
        for (long p = inner; p < k; ++p) total += x[p] * b[(j + r) * ldb + p];
        c[i * n + j + r] = more ? c[i * n + j + r] + total : total;
      }
    }
    for (long j = columns; j < n; ++j) {
      float total = 0;
      for (long p = 0; p < k; ++p) total += x[p] * b[j * ldb + p];
      c[i * n + j] = more ? c[i * n + j] + total : total;
    }
  }
}
)";

/// A matrix of a batch: its strides, seen as it is multiplied.
struct Matrix {
  std::string name;
  int64_t rows, columns, row, column;
};
Matrix matrix_of(Function& f, size_t k, bool transposed) {
  const Dims& sizes = f.input_shape(k).dims();
  const Dims& strides = f.layout(k).strides;
  const size_t r = sizes.size() - 2, c = sizes.size() - 1;
  // Axes of size 1 may have any strides.
  const int64_t row = sizes[r] == 1 ? sizes[c] : strides[r], column = sizes[c] == 1 ? 1 : strides[c];
  Matrix m{f.in(k), sizes[r], sizes[c], row, column};
  if (!transposed) return m;
  return {m.name, m.columns, m.rows, m.column, m.row};
}

void multiply(Function& f, const Matrix& a, const Matrix& b, const std::string& c, bool more) {
  if (b.column == 1 || b.columns == 1) {
    f.need("product", by_columns);
    f.line(fmt::format("product({}, {}, {}, {}, {}, {}, {}, {}, {}, {});", a.rows, b.columns, a.columns,
                       a.name, a.row, a.column, b.name, b.row, c, more ? 1 : 0));
  } else if (b.row == 1 && a.column == 1) {
    f.need("product_of_rows", by_dots);
    f.line(fmt::format("product_of_rows({}, {}, {}, {}, {}, {}, {}, {}, {});", a.rows, b.columns, a.columns,
                       a.name, a.row, b.name, b.column, c, more ? 1 : 0));
  } else {
    f.loop("i", a.rows);
    f.loop("j", b.columns);
    f.line(more ? fmt::format("float s = {}[i * {} + j];", c, b.columns) : "float s = 0;");
    f.loop("p", a.columns);
    f.line(fmt::format("s += ({0})[i * {1} + p * {2}] * ({3})[p * {4} + j * {5}];", a.name, a.row, a.column,
                       b.name, b.row, b.column));
    f.close();
    f.line(fmt::format("({})[i * {} + j] = s;", c, b.columns));
    f.close();
    f.close();
  }
}

}  // namespace

void write_matmul(Function& f) {
  f.only({DType::float32});
  const MatmulForm form = *f.op().traits().matmul_form;
  Matrix a = matrix_of(f, 0, form.transpose_a), b = matrix_of(f, 1, form.transpose_b);
  std::string c = f.out();
  const Dims& all = f.output_shape().dims();
  const Shape batch(Dims(all.begin(), all.end() - 2));
  const auto strides = [&](size_t k) {
    Layout layout = f.layout(k);
    layout.shape = Shape(Dims(layout.shape.begin(), layout.shape.end() - 2));
    layout.strides = Dims(layout.strides.begin(), layout.strides.end() - 2);
    return broadcast_layout(layout, batch).strides;
  };
  if (batch.elements() == 1) return multiply(f, a, b, c, false);
  Layout results(batch);
  for (int64_t& stride : results.strides) stride *= a.rows * b.columns;
  const Axes axes = join_axes(batch, {strides(0), strides(1), results.strides});
  f.loops(axes, "n", axes.sizes.size());
  const auto at = [&](std::string& name, size_t k) {
    if (const std::string offset = position(axes.strides[k], "n"); offset != "0") name += " + " + offset;
  };
  at(a.name, 0);
  at(b.name, 1);
  at(c, 2);
  multiply(f, a, b, c, false);
  f.close(axes.sizes.size());
}

void write_sum_of_products(Function& f) {
  f.only({DType::float32});
  const bool adds = attribute<bool>(f.op(), "adds"), ta = attribute<bool>(f.op(), "transpose_a"),
             tb = attribute<bool>(f.op(), "transpose_b");
  const std::string c = f.out();
  if (adds && f.in(0) != c) {
    const Layout first = broadcast_layout(f.layout(0), f.output_shape());
    const Axes axes = join_axes(f.output_shape(), {first.strides, Layout(f.output_shape()).strides});
    f.loops(axes, "c", axes.sizes.size());
    f.line(fmt::format("{}[{}] = {}[{}];", c, position(axes.strides[1], "c"), f.in(0),
                       position(axes.strides[0], "c")));
    f.close(axes.sizes.size());
  }
  for (size_t k = adds; k < f.inputs(); k += 2)
    multiply(f, matrix_of(f, k, ta), matrix_of(f, k + 1, tb), c, adds || k > 0);
}

}  // namespace espalier::c_export
