// Groups by the public interface. For GPUs, see cuda_communicator_test.cpp.
#include <boost/test/unit_test.hpp>

#include "communicator_ranks.h"
#include "espalier/executor/communicators/distributed.h"
#include "testing.h"

using namespace espalier;
using namespace espalier::testing;

BOOST_AUTO_TEST_SUITE(groups)

BOOST_AUTO_TEST_CASE(each_device_is_a_rank) {
  const auto group = distributed::make_group({cpu(), cpu(1), cpu()});
  const auto errors = run_ranks(group, [](Communicator& self) {
    Tensor values = full({3}, self.rank());
    self.all_reduce(values);
    if (self.size() != 3 || values.at<float>({2}) != 3) throw Error("a wrong sum");
  });
  for (const std::string& error : errors) BOOST_TEST(error == "");
}

BOOST_AUTO_TEST_CASE(a_group_spans_the_processes_of_a_world) {
  const auto world = make_thread_group(2);  // threads in place of processes
  Group ranks;
  for (const auto& process : world)
    for (auto& rank : distributed::make_group({cpu(), cpu(1)}, process)) ranks.push_back(std::move(rank));
  const auto errors = run_ranks(ranks, [&](Communicator& self) {
    if (&self != ranks[static_cast<size_t>(self.rank())].get()) throw Error("a wrong rank");
    Tensor values = full({3}, self.rank());
    self.all_reduce(values);
    if (self.size() != 4 || values.at<float>({2}) != 6) throw Error("a wrong sum");
  });
  for (const std::string& error : errors) BOOST_TEST(error == "");
  // One rank per process uses the group of processes.
  const auto alone = make_thread_group(2);
  BOOST_TEST(distributed::make_group({cpu()}, alone[1]).front() == alone[1]);
}

BOOST_AUTO_TEST_CASE(devices_that_form_no_group) {
  const auto line = std::to_string(__LINE__ + 1);
  const auto of_nothing = [] { (void)distributed::make_group({}); };
  BOOST_CHECK_EXCEPTION(of_nothing(), Error, says({"without devices", "groups_test.cpp:" + line}));
  BOOST_CHECK_EXCEPTION(distributed::make_group({cpu(), gpu()}), UnsupportedError,
                        says({"cpu:0 and cuda:0 cannot form a group"}));
  if (all_gpus().empty()) BOOST_CHECK_THROW(distributed::make_group({gpu(0), gpu(1)}), DeviceError);
}

BOOST_AUTO_TEST_CASE(a_process_alone) {
  BOOST_TEST(distributed::rank() == 0);
  BOOST_TEST(distributed::size() == 1);
  BOOST_TEST(distributed::local_rank() == 0);
  BOOST_TEST(distributed::world()->size() == 1);
}

BOOST_AUTO_TEST_SUITE_END()
