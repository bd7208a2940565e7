"""What bench.py runs; the sizes are those of ../../mlp_task.h and ../../gpt_task.h."""
import torch
from torch import nn
from torch.nn import functional


class MLP:
    rows, inputs, hidden, outputs, batch = 16384, 100, 1000, 10, 256


class GPT:
    rows, batch, tokens, width, heads = 64, 8, 128, 256, 8


def mlp_net():
    return nn.Sequential(nn.Linear(MLP.inputs, MLP.hidden), nn.ReLU(), nn.Linear(MLP.hidden, MLP.outputs))


def expression(a, b, c):
    return torch.tanh(a * b + c) * torch.sigmoid(a)


class Block(nn.Module):
    """A transformer block that normalizes first, with PyTorch's own attention."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(GPT.width), nn.LayerNorm(GPT.width)
        self.qkv, self.out = nn.Linear(GPT.width, 3 * GPT.width), nn.Linear(GPT.width, GPT.width)
        self.up, self.down = nn.Linear(GPT.width, 4 * GPT.width), nn.Linear(4 * GPT.width, GPT.width)

    def attention(self, x):
        q, k, v = (
            part.view(-1, GPT.tokens, GPT.heads, GPT.width // GPT.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(-1, GPT.tokens, GPT.width))

    def forward(self, x):
        y = x + self.attention(self.norm1(x))
        return y + self.down(functional.gelu(self.up(self.norm2(y))))
