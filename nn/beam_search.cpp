#include <algorithm>
#include <cmath>

#include "espalier/core/node.h"
#include "espalier/nn/decoding_rows.h"

namespace espalier::nn {

namespace {

struct Candidate {
  double log_probability;
  int64_t row;  // of the last call
  int64_t token;
};

/// The search from one first token.
class Beam {
 public:
  explicit Beam(const BeamOptions& options) : options_(options), open_(1) {}

  const std::vector<Hypothesis>& open() const { return open_; }

  /// Continues its sequences by the best candidates of their rows. `kept` gets the rows that go on.
  void extend(std::vector<Candidate> candidates, int64_t first_row, std::vector<int64_t>& kept) {
    std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return a.log_probability > b.log_probability;
    });
    std::vector<Hypothesis> next;
    for (const Candidate& c : candidates) {
      if (static_cast<int64_t>(next.size()) == options_.beams) break;
      if (c.log_probability == -INFINITY) break;
      Hypothesis h = open_[static_cast<size_t>(c.row - first_row)];
      h.log_probability = c.log_probability;
      if (options_.end_token && c.token == *options_.end_token) {
        finish(std::move(h), true);
        continue;
      }
      h.tokens.push_back(c.token);
      if (static_cast<int64_t>(h.tokens.size()) == options_.most_tokens) {
        finish(std::move(h), false);
        continue;
      }
      next.push_back(std::move(h));
      kept.push_back(c.row);
    }
    open_ = std::move(next);
    if (is_decided()) {
      kept.resize(kept.size() - open_.size());
      open_.clear();
    }
  }

  std::vector<Hypothesis> best() && {
    finished_.resize(std::min(finished_.size(), static_cast<size_t>(options_.best)));
    return std::move(finished_);
  }
  void finish_all() {
    for (Hypothesis& h : open_) finish(std::move(h), false);
    open_.clear();
  }

 private:
  double score(double log_probability, size_t tokens) const {
    return log_probability / std::pow((5 + static_cast<double>(tokens)) / 6, options_.length_penalty);
  }
  /// Keeps as many as are returned, the best first.
  void finish(Hypothesis h, bool ended) {
    h.ended = ended;
    h.score = score(h.log_probability, h.tokens.size() + (ended ? 1 : 0));
    const auto place = std::upper_bound(finished_.begin(), finished_.end(), h.score,
                                        [](double s, const Hypothesis& other) { return s > other.score; });
    finished_.insert(place, std::move(h));
    if (finished_.size() > static_cast<size_t>(options_.best)) finished_.pop_back();
  }
  /// Logarithms of probabilities only fall, and the penalty is the least for the longest sequences.
  bool is_decided() const {
    if (finished_.size() < static_cast<size_t>(options_.best)) return false;
    return std::ranges::all_of(open_, [&](const Hypothesis& h) {
      const auto longest = static_cast<size_t>(options_.most_tokens);
      return score(h.log_probability, longest) <= finished_.back().score;
    });
  }

  const BeamOptions& options_;
  std::vector<Hypothesis> open_, finished_;
};

void check(const BeamOptions& o) {
  if (o.best < 1 || o.beams < o.best)
    throw Error(fmt::format("beam_search: {} beams and {} results; both must be positive, and beams as many",
                            o.beams, o.best));
  if (o.most_tokens < 0)
    throw Error(fmt::format("beam_search: most_tokens is {}; it must not be negative", o.most_tokens));
  if (!(o.length_penalty >= 0 && std::isfinite(o.length_penalty)))
    throw Error(fmt::format("beam_search: the length penalty is {}; it must be finite and not negative",
                            o.length_penalty));
}

}  // namespace

std::vector<std::vector<Hypothesis>> beam_search(const DecodingStep& step, const std::vector<int64_t>& first,
                                                 DecodingState state, const BeamOptions& options,
                                                 std::source_location where) {
  const CallScope scope(where);
  const NoGrad no_gradients;
  return located(where, [&] {
    check(options);
    std::vector<Beam> searches(first.size(), Beam(options));
    DecodingRows rows("beam_search", step, std::move(state), static_cast<int64_t>(first.size()));
    std::vector<int64_t> last = first;
    for (int64_t t = 0; t < options.most_tokens && !last.empty(); ++t) {
      const Variable log_p = log_softmax(rows.next(last));
      // Of a row no more can go on than there are beams, and one may be the end.
      const int64_t each = std::min(log_p.shape()[1], options.beams + 1);
      const ValuesAndIndices best = topk(log_p, each);
      const Tensor values = best.values.value().to(cpu()).to(float64),
                   tokens = best.indices.value().to(cpu());
      std::vector<int64_t> kept;
      int64_t row = 0;
      for (Beam& search : searches) {
        const int64_t first_row = row;
        std::vector<Candidate> candidates;
        for (const Hypothesis& h : search.open()) {
          for (int64_t k = 0; k < each; ++k)
            candidates.push_back(
                {h.log_probability + values.at<double>({row, k}), row, tokens.at<int64_t>({row, k})});
          ++row;
        }
        search.extend(std::move(candidates), first_row, kept);
      }
      rows.take(kept, last.size());
      last.clear();
      for (const Beam& search : searches)
        for (const Hypothesis& h : search.open()) last.push_back(h.tokens.back());
    }
    std::vector<std::vector<Hypothesis>> results;
    for (Beam& search : searches) {
      search.finish_all();
      results.push_back(std::move(search).best());
    }
    return results;
  });
}

}  // namespace espalier::nn
