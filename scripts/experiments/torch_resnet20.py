#!/usr/bin/env python3
"""Images a second of PyTorch on ResNet-20: forward, backward and SGD with
momentum and weight decay, on random images. bench_model.sh pairs it with
`rivulet bench model`.

  torch_resnet20.py --threads N [--channels-last] [--batch N] [--repetitions N]

Prints the median alone.
"""
import argparse
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tests", "golden"))
from make_golden import ResNet  # noqa: E402: the network that the golden values are of

STEPS = 8  # of a repetition


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repetitions", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    net = ResNet("bn", 3)
    images = torch.randn(args.batch, 3, 32, 32)
    labels = torch.randint(10, (args.batch,))
    if args.channels_last:
        net = net.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, weight_decay=1e-4, foreach=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(net(images), labels).backward()
        optimizer.step()

    for _ in range(3):
        step()
    rates = []
    for _ in range(args.repetitions):
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        rates.append(STEPS * args.batch / (time.perf_counter() - start))
    print(f"{statistics.median(rates):.1f}")


main()
