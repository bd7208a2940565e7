#include "espalier/core/node.h"

#include <algorithm>

#include "espalier/core/cpu/block_pool.h"
#include "espalier/core/deferred/waiting.h"
#include "espalier/core/record.h"

namespace espalier {

std::string_view name(Tag tag) {
  switch (tag) {
    case Tag::forward: return "Forward";
    case Tag::backward: return "Backward";
    case Tag::update: break;
  }
  return "Update";
}

BuildContext& build_context() {
  static thread_local BuildContext now;
  return now;
}

uint64_t Node::next_id() {
  static std::atomic<uint64_t> last{0};
  return count_up(last) + 1;
}

Node::Node(OpPtr op, const CallSite& where) : op_(std::move(op)), id(next_id()), where(where) {}

Node::~Node() {
  if (!used_inputs_) return;
  for (size_t i = 0; i < inputs.size(); ++i)
    if ((used_inputs_ >> (i < 63 ? i : 63)) & 1) inputs[i].node()->drop_value_use();
}

void* Node::operator new(size_t bytes) { return pool_allocate(bytes); }
void Node::operator delete(void* node, size_t bytes) noexcept { pool_free(node, bytes); }

void Node::release() noexcept {
  const bool waited = waits;  // behind the count another thread may delete the node
  const uint32_t at = place;
  const uint32_t before = count_down(references_);
  if (before == 2 && waited) last_reader_gone(this, at);
  if (before != 1) return;
  // Deleting a node lets go of its inputs, and so on to the leaves: a list instead of the stack, since trees
  // are deep.
  static thread_local std::vector<Node*>* doomed = nullptr;
  if (doomed) {
    doomed->push_back(this);
    return;
  }
  std::vector<Node*> list;
  doomed = &list;
  delete this;
  while (!list.empty()) {
    Node* next = list.back();
    list.pop_back();
    delete next;
  }
  doomed = nullptr;
}

bool Node::value_wanted() const {
  return op_->is_leaf() || has_handles() || value_uses_.load(std::memory_order_relaxed) > 0 ||
         (needs_gradient && op_->traits().gradient_reads_output);
}

void Node::clear_value() {
  for (Output& output : outputs) output.value.drop_storage();
}

void Node::use_inputs(InputSet read) {
  bool beyond = false;  // the last bit speaks for all inputs from the 64th on
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].node()->op_->is_leaf() || !read.contains(i)) continue;
    if ((beyond = i >= 63)) break;
    used_inputs_ |= uint64_t{1} << i;
    inputs[i].node()->use_value();
  }
  if (!beyond) return;
  used_inputs_ |= uint64_t{1} << 63;
  for (size_t i = 63; i < inputs.size(); ++i) inputs[i].node()->use_value();
}

void Node::drop_value_use() noexcept {
  if (count_down(value_uses_) == 1 && !value_wanted()) clear_value();
}

void NodeCounts::last_handle_gone() noexcept {
  Node& node = static_cast<Node&>(*this);
  node.record.reset();
  if (!node.value_wanted()) node.clear_value();
  node.release();
}

void Node::cut(OpPtr op) {
  SmallVector<Edge, 2> before = std::move(inputs);
  const uint64_t used = std::exchange(used_inputs_, 0);
  inputs.clear();
  for (size_t i = 0; i < before.size(); ++i)
    if ((used >> (i < 63 ? i : 63)) & 1) before[i].node()->drop_value_use();
  op_ = std::move(op);
  batch.reset();
  waits = false;
  depth = 0;
  lazy = false;
  needs_gradient = is_trainable(*op_);
}

void GradientRecordDeleter::operator()(GradientRecord* record) const { delete record; }

const Edge* GradientTable::find(const Node* node, uint32_t output) const {
  for (const Run& run : runs_) {
    auto at = std::lower_bound(run.begin(), run.end(), node->id,
                               [](const Entry& e, uint64_t id) { return e.id > id; });
    for (; at != run.end() && at->id == node->id; ++at)
      if (at->node.node() == node && at->output == output) return &at->gradient;
  }
  return nullptr;
}

GradientRecord& record_of(Node& root) {
  if (!root.record) root.record.reset(new GradientRecord);
  return *root.record;
}

}  // namespace espalier
