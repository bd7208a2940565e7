#!/usr/bin/env python3
"""tagger.py [rounds] [--dynet-autobatch 1]: the tagger of ../../tagger.cpp in DyNet, for the package dynet38.
Prints words a second, in processor time."""
import random
import statistics
import sys
import time

import dynet as dy

VOCABULARY, EMBEDDING, HIDDEN, MLP, TAGS, SENTENCES, BATCH = 5000, 128, 50, 32, 20, 256, 16


class Tagger:
    def __init__(self, model):
        self.embedding = model.add_lookup_parameters((VOCABULARY, EMBEDDING))
        self.forward = dy.VanillaLSTMBuilder(1, EMBEDDING, HIDDEN, model)
        self.backward = dy.VanillaLSTMBuilder(1, EMBEDDING, HIDDEN, model)
        self.mlp = model.add_parameters((MLP, 2 * HIDDEN)), model.add_parameters(MLP)
        self.out = model.add_parameters((TAGS, MLP)), model.add_parameters(TAGS)

    def losses(self, words, tags):
        x = [dy.lookup(self.embedding, word) for word in words]
        forward = self.forward.initial_state().transduce(x)
        backward = reversed(self.backward.initial_state().transduce(x[::-1]))
        for a, b, tag in zip(forward, backward, tags):
            h = dy.tanh(dy.affine_transform([self.mlp[1], self.mlp[0], dy.concatenate([a, b])]))
            yield dy.pickneglogsoftmax(dy.affine_transform([self.out[1], self.out[0], h]), tag)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 5
    random.seed(1)
    model = dy.ParameterCollection()
    net, trainer = Tagger(model), dy.SimpleSGDTrainer(model, 1e-3)
    trainer.set_clip_threshold(0)
    lengths = [random.randint(5, 40) for _ in range(SENTENCES)]
    words = [[random.randrange(VOCABULARY) for _ in range(n)] for n in lengths]
    tags = [[random.randrange(TAGS) for _ in range(n)] for n in lengths]
    times = []
    for _ in range(rounds + 1):
        start = time.process_time()
        for first in range(0, SENTENCES, BATCH):
            dy.renew_cg()
            loss = dy.esum([loss for i in range(first, first + BATCH) for loss in net.losses(words[i], tags[i])])
            loss.value()
            loss.backward()
            trainer.update()
        times.append(time.process_time() - start)
    print(f"{'tagger_dynet_words_per_s':<36} {sum(lengths) / statistics.median(times[1:]):12.3f}")


if __name__ == "__main__":
    main()
