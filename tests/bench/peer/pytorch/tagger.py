"""Training the tagger of ../../tagger.cpp on packed sentences in a current PyTorch: tagger.py [rounds]. Prints
words a second, in processor time of one thread."""
import statistics
import sys
import time

import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

VOCABULARY, EMBEDDING, HIDDEN, MLP, TAGS, SENTENCES, BATCH = 5000, 128, 50, 32, 20, 256, 16

torch.set_num_threads(1)
torch.manual_seed(1)
rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
lengths = torch.randint(5, 41, (SENTENCES,)).tolist()
words = [torch.randint(VOCABULARY, (n,)) for n in lengths]
tags = [torch.randint(TAGS, (n,)) for n in lengths]


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, EMBEDDING)
        self.lstm = torch.nn.LSTM(EMBEDDING, HIDDEN, bidirectional=True)
        self.mlp = torch.nn.Linear(2 * HIDDEN, MLP)
        self.out = torch.nn.Linear(MLP, TAGS)

    def forward(self, x):
        y, _ = self.lstm(PackedSequence(self.embedding(x.data), x.batch_sizes, x.sorted_indices, x.unsorted_indices))
        return self.out(torch.tanh(self.mlp(y.data)))


net = Tagger()
sgd = torch.optim.SGD(net.parameters(), lr=1e-3)


def epoch():
    for first in range(0, SENTENCES, BATCH):
        x = pack_sequence(words[first:first + BATCH], enforce_sorted=False)
        y = pack_sequence(tags[first:first + BATCH], enforce_sorted=False)
        sgd.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(net(x), y.data, reduction="sum")
        loss.backward()
        sgd.step()
        loss.item()


epoch()
times = []
for _ in range(rounds):
    start = time.process_time()
    epoch()
    times.append(time.process_time() - start)
print(f"{'tagger_pytorch_words_per_s':<36} {sum(lengths) / statistics.median(times):12.3f}")
