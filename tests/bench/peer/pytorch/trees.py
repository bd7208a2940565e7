"""Training the TreeLSTM of ../../trees.cpp in a current PyTorch, node by node, as ../trees.cpp does: trees.py
[rounds]. Prints trees a second, in processor time of one thread."""
import random
import statistics
import sys
import time

import torch

HIDDEN, CLASSES, WORDS, TREES, LEAVES = 150, 5, 1000, 64, 20

torch.set_num_threads(1)
torch.manual_seed(1)
random.seed(1)
rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5


class Node:
    def __init__(self, leaves, words):
        word, label = random.randrange(WORDS), random.randrange(CLASSES)
        self.label = torch.tensor(label)
        self.children = None
        if leaves > 1:
            left = random.randint(1, leaves - 1)
            self.children = Node(left, words), Node(leaves - left, words)
        else:
            words.append(word)


class Tree:
    def __init__(self):
        words = []
        self.root = Node(LEAVES, words)
        self.words = torch.tensor(words)  # of the leaves, from left to right


class TreeLstm(torch.nn.Module):
    def __init__(self):
        super().__init__()

        def uniform(*shape):
            return torch.nn.Parameter(torch.empty(shape).uniform_(-HIDDEN**-0.5, HIDDEN**-0.5))

        self.embed = torch.nn.Embedding(WORDS, HIDDEN)
        self.weight_ih = uniform(4 * HIDDEN, HIDDEN)  # of f, i, o, u
        self.weight_hh = uniform(5 * HIDDEN, 2 * HIDDEN)  # of i, o, both f, u
        self.bias = uniform(4 * HIDDEN)  # of f, i, o, u
        self.top = torch.nn.Linear(HIDDEN, CLASSES)

    def forward(self, forest):
        f, i, o, u = self.bias.split(HIDDEN)
        self.leaf = self.bias[HIDDEN:], self.weight_ih[HIDDEN:]
        self.node = torch.cat((i, o, f, f, u)), self.weight_hh
        losses = []
        for tree in forest:
            self.encode(tree.root, iter(self.embed(tree.words).unbind()), losses)
        return torch.stack(losses).sum()

    def encode(self, node, rows, losses):
        if node.children is None:
            b, w = self.leaf
            s, g = torch.addmv(b, w, next(rows)).split((2 * HIDDEN, HIDDEN))
            i, o = torch.sigmoid(s).split(HIDDEN)
            c = i * torch.tanh(g)
        else:
            (ha, ca), (hb, cb) = (self.encode(child, rows, losses) for child in node.children)
            b, w = self.node
            s, g = torch.addmv(b, w, torch.cat((ha, hb))).split((4 * HIDDEN, HIDDEN))
            i, o, fa, fb = torch.sigmoid(s).split(HIDDEN)
            c = (i * torch.tanh(g)).addcmul(fa, ca).addcmul(fb, cb)
        h = o * torch.tanh(c)
        losses.append(torch.nn.functional.cross_entropy(torch.addmv(self.top.bias, self.top.weight, h), node.label))
        return h, c


net = TreeLstm()
sgd = torch.optim.SGD(net.parameters(), lr=0.01)
forest = [Tree() for _ in range(TREES)]


def step():
    sgd.zero_grad(set_to_none=True)
    net(forest).backward()
    sgd.step()


step()
times = []
for _ in range(rounds):
    start = time.process_time()
    step()
    times.append(time.process_time() - start)
print(f"{'tree_lstm_pytorch_trees_per_s':<36} {TREES / statistics.median(times):12.3f}")
