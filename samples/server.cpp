// A server of predictions: requests of many clients wait in a queue, and each of two threads takes as many as
// there are, up to eight, for one run of an inference executor that both share.
#include <espalier/espalier.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <iostream>
#include <mutex>
#include <thread>
#include <vector>
namespace esp = espalier;
using namespace espalier::nn;

constexpr int64_t largest_batch = 8;

struct Request {
  std::vector<float> flower;  // four sizes
  std::promise<int64_t> species;
};

class Server {
 public:
  Server(Sequential net, int threads)
      : executor_(esp::argmax(net(esp::placeholder("flowers", {-1, 4})), 1)
                      .get_executor({.mode = esp::Mode::inference, .tune = false})) {
    for (int64_t rows = 1; rows <= largest_batch; ++rows)
      executor_.warm_up({{"flowers", {rows, 4}}}, threads);
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back([this](const std::stop_token& stop) { serve(stop); });
  }

  std::future<int64_t> ask(std::vector<float> flower) {
    Request request{std::move(flower), {}};
    auto answer = request.species.get_future();
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(request));
    arrived_.notify_one();
    return answer;
  }

 private:
  void serve(const std::stop_token& stop) {
    esp::set_num_threads(1);  // the cores are for the requests of other threads
    while (true) {
      std::unique_lock lock(mutex_);
      if (!arrived_.wait(lock, stop, [&] { return !queue_.empty(); })) return;
      std::vector<Request> batch;
      for (; !queue_.empty() && batch.size() < largest_batch; queue_.pop_front())
        batch.push_back(std::move(queue_.front()));
      lock.unlock();
      std::vector<float> rows;
      for (const auto& [flower, _] : batch) rows.insert(rows.end(), flower.begin(), flower.end());
      const esp::Tensor flowers = esp::tensor_from(rows, {static_cast<int64_t>(batch.size()), 4});
      const esp::Tensor species = executor_.run({{"flowers", flowers}});
      for (size_t i = 0; i < batch.size(); ++i) batch[i].species.set_value(species.span<int64_t>()[i]);
    }
  }

  esp::Executor executor_;
  std::mutex mutex_;
  std::condition_variable_any arrived_;
  std::deque<Request> queue_;
  std::vector<std::jthread> threads_;  // the last member: threads end before anything else goes
};

int main() {
  esp::seed(1);
  const auto table = esp::data::read_csv_table("samples/data/iris.csv");
  const esp::Tensor flowers = table.matrix(), species = table["species"].values;
  Sequential net{LayerNorm(4), Dense(4, 32), Relu(), Dense(32, 3)};
  esp::fit(net, SoftmaxCrossEntropy(), {flowers, species}, {.epochs = 100, .progress = false});

  Server server(net, 2);
  std::atomic<int> right = 0;
  std::vector<std::jthread> clients;
  for (int client = 0; client < 4; ++client)
    clients.emplace_back([&, labels = species.span<int64_t>()] {
      std::vector<std::future<int64_t>> answers;
      for (int64_t row = 0; row < table.rows; ++row) {
        const float* sizes = &flowers.at<float>({row, 0});
        answers.push_back(server.ask({sizes, sizes + 4}));
      }
      for (size_t i = 0; i < answers.size(); ++i) right += answers[i].get() == labels[i];
    });
  clients.clear();  // waits for them
  std::cout << right << " of " << 4 * table.rows << " answers are right\n";
  return right > 570 ? 0 : 1;
}
