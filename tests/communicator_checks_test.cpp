// Invalid arguments of collectives: the rank that passes them throws before it waits for other ranks.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>

#include "communicator_ranks.h"
#include "espalier/core/error.h"
#include "espalier/executor/communicators/communicator.h"
#include "testing.h"

using namespace espalier;
using namespace espalier::testing;

namespace {

/// Makes each call on a new group, since a group fails with the call.
template <class E>
void refuses(int ranks, const std::function<void(Communicator&)>& call,
             std::initializer_list<std::string> parts) {
  const Group group = make_thread_group(ranks);
  group[0]->set_timeout(5);  // in case it waits nevertheless
  BOOST_CHECK_EXCEPTION(call(*group[0]), E, says(parts));
  Tensor values = ones({8});
  // Other ranks get the error, even if they call later.
  for (const std::string& part : parts)
    BOOST_CHECK_EXCEPTION(group[1]->all_reduce(values), CommunicatorError, says({"rank 0 failed", part}));
}

using Bounds = std::vector<int64_t>;
const std::vector<double> equal{1, 1};

}  // namespace

BOOST_AUTO_TEST_SUITE(communicator_checks)

BOOST_AUTO_TEST_CASE(bounds_of_parts) {
  for (const Bounds& wrong : std::vector<Bounds>{{},
                                                 {0, 8},
                                                 {0, 3, 5, 8},
                                                 {1, 4, 8},
                                                 {-1, 4, 8},
                                                 {0, 4, 7},
                                                 {0, 4, 9},
                                                 {0, 9, 8},
                                                 {0, -1, 8},
                                                 {8, 4, 0}})
    for (const bool gathers : {false, true})
      refuses<ShapeError>(2,
                          [&](Communicator& self) {
                            Tensor values = ones({8});
                            gathers ? self.gather_parts(values, wrong)
                                    : self.reduce_parts(values, wrong, equal);
                          },
                          {gathers ? "gather_parts" : "reduce_parts", "no bounds of the parts of 2 ranks"});
  for (const Bounds& right : std::vector<Bounds>{{0, 8}, {0, 8}}) {
    Tensor values = ones({8});
    BOOST_CHECK_NO_THROW(make_thread_group(1)[0]->gather_parts(values, right));
  }
  for (const Bounds& right : std::vector<Bounds>{{0, 0, 8}, {0, 8, 8}, {0, 3, 8}}) {
    const auto errors = run_ranks(2, [&](Communicator& self) {
      Tensor values = full({8}, self.rank() + 1);
      self.reduce_parts(values, right, equal);
      self.gather_parts(values, right);
      for (const float value : values.span<float>())
        if (value != 3) throw Error("a wrong sum");
    });
    for (const std::string& error : errors) BOOST_TEST(error == "");
  }
}

BOOST_AUTO_TEST_CASE(parts_and_wholes) {
  const auto gather = [](const Tensor& part, Tensor whole) {
    return [=](Communicator& self) mutable { self.all_gather(part, whole); };
  };
  const auto scatter = [](const Tensor& whole, Tensor part) {
    return [=](Communicator& self) mutable { self.reduce_scatter(whole, part); };
  };
  refuses<TypeError>(2, gather(ones({4}), zeros({8}, float64)), {"all_gather", "parts of float32"});
  refuses<TypeError>(2, scatter(ones({8}), zeros({4}, float64)), {"reduce_scatter", "parts of float64"});
  refuses<ShapeError>(2, gather(ones({4}), zeros({7})), {"all_gather", "[4]", "[7]"});
  refuses<ShapeError>(2, gather(ones({4}), zeros({10})), {"all_gather", "[4]", "[10]"});
  refuses<ShapeError>(2, scatter(ones({9}), zeros({4})), {"reduce_scatter", "[4]", "[9]"});
  refuses<ShapeError>(2, scatter(ones({8}), zeros({5})), {"reduce_scatter", "[5]", "[8]"});
}

BOOST_AUTO_TEST_CASE(tensors_and_ranks) {
  const auto reduce = [](Tensor values, Reduction reduction = Reduction::sum) {
    return [=](Communicator& self) mutable { self.all_reduce(values, reduction); };
  };
  refuses<TypeError>(2, reduce(Tensor()), {"undefined"});
  refuses<ShapeError>(2, reduce(ones({4, 4}).slice(1, 0, 2)), {"a view of shape [4, 2] has gaps"});
  refuses<TypeError>(2, reduce(full({2}, true, boolean)), {"bools cannot be reduced"});
  refuses<TypeError>(2, reduce(ones({2}, int32), Reduction::mean), {"the mean is for reals"});
  using Call = std::function<void(Communicator&, Tensor&)>;
  const Bounds halves{0, 4, 8};
  const std::vector<std::pair<std::string, Call>> calls{
      {"all_reduce_weighted", [](Communicator& self, Tensor& t) { self.all_reduce_weighted(t, equal); }},
      {"reduce_scatter", [](Communicator& self, Tensor& t) { self.reduce_scatter(t, t); }},
      {"all_gather", [](Communicator& self, Tensor& t) { self.all_gather(t, t); }},
      {"reduce_parts", [=](Communicator& self, Tensor& t) { self.reduce_parts(t, halves, equal); }},
      {"gather_parts", [=](Communicator& self, Tensor& t) { self.gather_parts(t, halves); }},
      {"broadcast", [](Communicator& self, Tensor& t) { self.broadcast(t, 0); }}};
  for (const auto& [name, call] : calls) {
    const auto with = [&](Tensor t) { return [&, t](Communicator& self) mutable { call(self, t); }; };
    refuses<TypeError>(2, with(Tensor()), {name, "undefined"});
    refuses<ShapeError>(2, with(ones({4, 4}).slice(1, 0, 2)), {name, "a view of shape [4, 2] has gaps"});
  }
  for (const int root : {-1, 2, 7})
    refuses<IndexError>(2,
                        [&](Communicator& self) {
                          Tensor values = ones({2});
                          self.broadcast(values, root);
                        },
                        {"broadcast", "there are 2 ranks"});
}

BOOST_AUTO_TEST_SUITE_END()
