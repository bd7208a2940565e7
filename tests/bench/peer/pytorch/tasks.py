"""What bench.py runs; the sizes are those of ../../mlp_task.h and ../../gpt_task.h."""
import torch
from torch import nn
from torch.nn import functional


class MLP:
    rows, inputs, hidden, outputs, batch = 16384, 100, 1000, 10, 256


class GPT:
    rows, batch, tokens, width, heads = 64, 8, 128, 256, 8  # or any other object with these


def mlp_net():
    return nn.Sequential(nn.Linear(MLP.inputs, MLP.hidden), nn.ReLU(), nn.Linear(MLP.hidden, MLP.outputs))


def expression(a, b, c):
    return torch.tanh(a * b + c) * torch.sigmoid(a)


class Block(nn.Module):
    """A transformer block that normalizes first, with PyTorch's own attention."""

    def __init__(self, size=GPT):
        super().__init__()
        self.tokens, self.width, self.heads = size.tokens, size.width, size.heads
        width = size.width
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        q, k, v = (
            part.view(-1, self.tokens, self.heads, self.width // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(-1, self.tokens, self.width))

    def forward(self, x):
        y = x + self.attention(self.norm1(x))
        return y + self.down(functional.gelu(self.up(self.norm2(y))))
