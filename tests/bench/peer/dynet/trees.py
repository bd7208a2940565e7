#!/usr/bin/env python3
"""trees.py [rounds] [--dynet-autobatch 1]: the TreeLSTM of ../../trees.cpp in DyNet, for the package dynet38.
Prints trees a second, in processor time, as `dynet` with autobatching and as `dynet_single` without."""
import random
import statistics
import sys
import time

import dynet as dy

HIDDEN, CLASSES, WORDS, TREES, LEAVES = 150, 5, 1000, 64, 20


class Tree:
    def __init__(self, leaves):
        self.word, self.label = random.randrange(WORDS), random.randrange(CLASSES)
        self.children = None
        if leaves > 1:
            left = random.randint(1, leaves - 1)
            self.children = Tree(left), Tree(leaves - left)


class TreeLstm:
    def __init__(self, model):
        self.embed = model.add_lookup_parameters((WORDS, HIDDEN))
        self.leaf = model.add_parameters((3 * HIDDEN, HIDDEN)), model.add_parameters(3 * HIDDEN)
        self.node = model.add_parameters((5 * HIDDEN, 2 * HIDDEN)), model.add_parameters(5 * HIDDEN)
        self.top = model.add_parameters((CLASSES, HIDDEN)), model.add_parameters(CLASSES)

    def encode(self, tree, losses):
        def gate(gates, i):
            return dy.pick_range(gates, i * HIDDEN, (i + 1) * HIDDEN)

        if tree.children is None:
            w, b = self.leaf
            g = dy.affine_transform([b, w, dy.lookup(self.embed, tree.word)])
            s = dy.logistic(dy.pick_range(g, 0, 2 * HIDDEN))
            c = dy.cmult(gate(s, 0), dy.tanh(gate(g, 2)))
            h = dy.cmult(gate(s, 1), dy.tanh(c))
        else:
            (ha, ca), (hb, cb) = (self.encode(child, losses) for child in tree.children)
            w, b = self.node
            g = dy.affine_transform([b, w, dy.concatenate([ha, hb])])
            s = dy.logistic(dy.pick_range(g, 0, 4 * HIDDEN))
            c = dy.cmult(gate(s, 0), dy.tanh(gate(g, 4))) + dy.cmult(gate(s, 1), ca) + dy.cmult(gate(s, 2), cb)
            h = dy.cmult(gate(s, 3), dy.tanh(c))
        w, b = self.top
        losses.append(dy.pickneglogsoftmax(dy.affine_transform([b, w, h]), tree.label))
        return h, c


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 5
    random.seed(1)
    model = dy.ParameterCollection()
    net, trainer = TreeLstm(model), dy.SimpleSGDTrainer(model, 0.01)
    trainer.set_clip_threshold(0)
    forest = [Tree(LEAVES) for _ in range(TREES)]
    times = []
    for _ in range(rounds + 1):
        start = time.process_time()
        dy.renew_cg()
        losses = []
        for tree in forest:
            net.encode(tree, losses)
        loss = dy.esum(losses)
        loss.value()
        loss.backward()
        trainer.update()
        times.append(time.process_time() - start)
    batched = "--dynet-autobatch 1" in " ".join(sys.argv)
    name = f"tree_lstm_dynet{'' if batched else '_single'}_trees_per_s"
    print(f"{name:<36} {TREES / statistics.median(times[1:]):12.3f}")


if __name__ == "__main__":
    main()
