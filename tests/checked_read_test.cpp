#include "espalier/data/views/checked_read.h"

#include <boost/test/unit_test.hpp>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "dataset_values.h"
#include "espalier/core/error.h"
#include "espalier/data/batches.h"
#include "espalier/data/views/cache.h"
#include "espalier/data/views/combine.h"
#include "espalier/data/views/map.h"
#include "espalier/data/views/select.h"
#include "espalier/data/workers/loader.h"
#include "espalier/data/workers/parallel.h"
#include "espalier/ops/ops.h"
#include "testing.h"

using namespace espalier;
using namespace espalier::testing;
using data::DatasetPtr;

namespace {

/// Column 0 is assigned, not written; column 1 is written.
struct AssigningDataset : data::Dataset {
  using Assigned = std::function<Tensor(std::span<const int64_t>, const Tensor&)>;
  explicit AssigningDataset(Assigned assigned) : assigned(std::move(assigned)) {}
  int64_t rows() const override { return 20; }
  std::vector<Spec> specs() const override { return {{float32, {20, 2}}, {int64, {20}}}; }
  void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override {
    outputs[0] = assigned(rows, outputs[0]);
    for (size_t i = 0; i < rows.size(); ++i) outputs[1].span<int64_t>()[i] = rows[i];
  }
  Assigned assigned;
};

DatasetPtr assigning(AssigningDataset::Assigned assigned) {
  return std::make_shared<AssigningDataset>(std::move(assigned));
}

Tensor pairs(std::span<const int64_t> rows) {
  Tensor values({static_cast<int64_t>(rows.size()), 2});
  for (size_t i = 0; i < rows.size(); ++i)
    for (size_t k = 0; k < 2; ++k) values.span<float>()[2 * i + k] = static_cast<float>(rows[i]);
  return values;
}

std::vector<std::pair<const char*, std::function<DatasetPtr(DatasetPtr)>>> views() {
  return {
      {"plain", [](DatasetPtr rows) { return rows; }},
      {"parallel", [](DatasetPtr rows) { return data::parallel(rows, {.workers = 3}); }},
      {"with a limit", [](DatasetPtr rows) { return data::parallel(rows, {.workers = 3, .timeout = 100}); }},
      {"cache", [](DatasetPtr rows) { return data::cache(rows); }},
      {"map", [](DatasetPtr rows) { return data::map(rows, [](const data::Row& row) { return row; }); }},
      {"take", [](DatasetPtr rows) { return data::take(rows, 20); }},
      {"filter",
       [](DatasetPtr rows) {
         return data::filter(rows, [](const std::vector<Tensor>& row) { return row[0].elements() == 2; });
       }},
      {"concat",
       [](DatasetPtr rows) {
         return data::concat({data::take(rows, 9), data::skip(rows, 9)});
       }},
      {"zip", [](DatasetPtr rows) { return data::zip({rows}); }},
      {"repeat", [](DatasetPtr rows) { return data::repeat(rows, 1); }}};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(checked_read)

BOOST_AUTO_TEST_CASE(an_assigned_tensor_is_copied) {
  const AssigningDataset::Assigned kinds[] = {
      [](std::span<const int64_t> rows, const Tensor&) { return pairs(rows); },
      [](std::span<const int64_t> rows, const Tensor&) {  // strided
        return espalier::concat({pairs(rows), zeros({static_cast<int64_t>(rows.size()), 1})}, 1)
            .value()
            .slice(1, 0, 2);
      },
      [](std::span<const int64_t> rows, Tensor room) {  // the same buffer, with another shape
        copy_elements(pairs(rows), room);
        return room.reshape({-1});
      }};
  for (const auto& kind : kinds)
    for (const auto& [name, view] : views()) {
      BOOST_TEST_CONTEXT(name) {
        int64_t row = 0;
        for (const auto& [values, numbers] : data::batches<2>(view(assigning(kind)), {.batch_size = 8}))
          for (int64_t i = 0; i < values.shape()[0]; ++i, ++row) {
            BOOST_TEST(values.at<float>({i, 1}) == static_cast<float>(row));
            BOOST_TEST(numbers.span<int64_t>()[static_cast<size_t>(i)] == row);
          }
        BOOST_TEST(row == 20);
      }
    }
  for (const auto& [values, numbers] : data::loader<2>(assigning(kinds[0]), {.batch_size = 8}))
    BOOST_TEST(values.at<float>({0, 0}) == static_cast<float>(numbers.span<int64_t>()[0]));
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_an_error) {
  const struct {
    Tensor (*assigned)(int64_t rows);
    const char* says;
  } cases[] = {{[](int64_t rows) {
                  return zeros({rows, 4});
                },
                "a tensor float32 ["},
               {[](int64_t rows) {
                  return zeros({rows, 2}, float64);
                },
                "a tensor float64 ["},
               {[](int64_t rows) {
                  return zeros({rows + 1, 2});
                },
                ", 2], but float32 ["},
               {[](int64_t) { return Tensor(); }, "an undefined tensor, but float32 ["}};
  for (const auto& wrong : cases)
    for (const auto& [name, view] : views()) {
      BOOST_TEST_CONTEXT(name) {
        const DatasetPtr rows = assigning([&](std::span<const int64_t> rows, const Tensor&) {
          return wrong.assigned(static_cast<int64_t>(rows.size()));
        });
        BOOST_CHECK_EXCEPTION(for ([[maybe_unused]] const auto& batch
                                   : data::batches<2>(view(rows), {.batch_size = 8})){},
                              DataError, says({"AssigningDataset", "outputs[0]", wrong.says}));
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()
