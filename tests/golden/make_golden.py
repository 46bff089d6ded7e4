#!/usr/bin/env python3
"""Writes models_pytorch.txt: what PyTorch computes for the built-in models.

  python3 tests/golden/make_golden.py > tests/golden/models_pytorch.txt

Made with PyTorch 1.13.0 and numpy 1.24.2 (Debian 12: python3-torch). All is
computed in float64 from float32 inputs, so other versions give the same digits.
Weights and images are not stored: fill() below and Fill() in
tests/models/golden_test.cc compute the same ones from a hash (seedless).

Format: one line per array, "case.key value value ..."; # starts a comment.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

LEARNING_RATE = 0.005
STEPS = 3


def fill(tensor, count, low, high):
    """`count` float32 values in [low, high), a hash of (tensor, position)."""
    mask = np.uint64(0xFFFFFFFF)
    h = (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(2654435761) & mask
    h ^= np.uint64((tensor + 1) * 2246822519 & 0xFFFFFFFF)
    h ^= h >> np.uint64(15)
    h = h * np.uint64(2246822519) & mask
    h ^= h >> np.uint64(13)
    h = h * np.uint64(3266489917) & mask
    h ^= h >> np.uint64(16)
    return (low + (high - low) * (h.astype(np.float64) / 2.0**32)).astype(np.float32)


def norm(kind, channels):
    return nn.BatchNorm2d(channels) if kind == "bn" else nn.GroupNorm(channels // 8, channels)


class Block(nn.Module):
    def __init__(self, kind, i, c, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, c, 3, stride, 1, bias=False), norm(kind, c)
        self.conv2, self.bn2 = nn.Conv2d(c, c, 3, 1, 1, bias=False), norm(kind, c)
        self.stride, self.pad = stride, (c - i) // 2

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.stride != 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))
        return F.relu(y + x)


class ResNet(nn.Module):
    def __init__(self, kind, channels):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False), norm(kind, 16)
        i = 16
        for stage, c in enumerate((16, 32, 64)):
            blocks = []
            for b in range(3):
                blocks.append(Block(kind, i, c, 2 if stage and b == 0 else 1))
                i = c
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


class Mlp(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden[0])
        self.fc2 = nn.Linear(hidden[0], hidden[1])
        self.fc3 = nn.Linear(hidden[1], 10)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


def initialize(net):
    """Weights uniform with variance 2 / fan_in; scales about 1, the rest about 0."""
    for k, (name, p) in enumerate(net.named_parameters()):
        if p.dim() > 1:
            bound = np.sqrt(6.0 / (p.numel() // p.shape[0]))
            low, high = -bound, bound
        elif name.endswith("bias"):
            low, high = -0.1, 0.1
        else:
            low, high = 0.9, 1.1
        p.data = torch.from_numpy(fill(k, p.numel(), low, high)).reshape(p.shape).double()


def samples(t):
    """Up to six entries spread over a tensor."""
    flat = t.detach().flatten()
    return [float(flat[k * (flat.numel() - 1) // 5]) for k in range(6)]


def emit(case, key, values):
    print(f"{case}.{key}", *(f"{float(v):.10g}" for v in values))


def write(case, net, shape):
    net.double().train()
    initialize(net)
    n = shape[0]
    x = torch.from_numpy(fill(1000, int(np.prod(shape)), -2.0, 2.0)).reshape(shape).double()
    y = torch.arange(n) * 3 % 10
    losses = []
    for step in range(STEPS + 1):
        net.zero_grad()
        logits = net(x)
        loss = F.cross_entropy(logits, y)
        losses.append(loss.item())
        loss.backward()
        if step == 0:
            emit(case, "logits", logits.detach().flatten())
            for name, p in net.named_parameters():
                emit(case, f"gradient.{name}", [p.grad.norm(), *samples(p.grad)])
            for name, b in net.named_buffers():
                if b.dim() == 1:
                    emit(case, f"buffer.{name}", [b.norm(), *samples(b)])
        if step < STEPS:
            with torch.no_grad():
                for p in net.parameters():
                    p -= LEARNING_RATE * p.grad
    emit(case, "losses", losses)
    net.eval()
    emit(case, "evaluated", [F.cross_entropy(net(x), y).item()])


def main():
    print(f"# make_golden.py, PyTorch {torch.__version__}, numpy {np.__version__}")
    write("resnet20_bn", ResNet("bn", 3), (4, 3, 32, 32))
    write("resnet20_gn", ResNet("gn", 1), (3, 1, 28, 28))
    write("mlp", Mlp(784, (32, 16)), (5, 1, 28, 28))


if __name__ == "__main__":
    main()
