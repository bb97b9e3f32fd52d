# SPDX-License-Identifier: Apache-2.0
"""
torch_gcn - 40 training steps of a graph convolution network over sampled subgraphs: every step has another number of
nodes and edges, so all sizes change all the time.
"""
import random

import passes

STEPS, FEATURES, HIDDEN, CLASSES, DEPTH = 40, 128, 256, 40, 3
MIN_NODES, MAX_NODES, MAX_DEGREE = 5_000, 40_000, 12


def make_model(torch):
    nn = torch.nn

    class Convolution(nn.Module):
        def __init__(self, width_in, width_out):
            super().__init__()
            self.linear = nn.Linear(width_in, width_out)

        def forward(self, x, source, target, degree):
            x = self.linear(x)
            return torch.zeros_like(x).index_add(0, target, x[source]) / degree[:, None]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            widths = [FEATURES] + [HIDDEN] * (DEPTH - 1) + [CLASSES]
            self.layers = nn.ModuleList(Convolution(*pair) for pair in zip(widths, widths[1:]))

        def forward(self, graph):
            x, source, target, degree = graph
            for layer in self.layers[:-1]:
                x = torch.relu(layer(x, source, target, degree))
            return self.layers[-1](x, source, target, degree)

    return Model().cuda()


def sample(torch, sizes):
    nodes = sizes.randint(MIN_NODES, MAX_NODES)
    edges = nodes * sizes.randint(2, MAX_DEGREE)
    source, target = torch.randint(nodes, (2, edges), device="cuda")
    degree = torch.bincount(target, minlength=nodes).clamp(min=1).float()
    features = torch.randn(nodes, FEATURES, device="cuda")
    return (features, source, target, degree), torch.randint(CLASSES, (nodes,), device="cuda")


def train(torch):
    def run_pass(clock, outputs):
        torch.manual_seed(6)
        sizes = random.Random(6)
        model = make_model(torch)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        batches = (sample(torch, sizes) for _ in range(STEPS))
        passes.train(torch, clock, outputs, model, optimizer, batches)

    return run_pass


torch = passes.require_torch()
passes.run("torch_gcn", torch.cuda.synchronize, train(torch), passes=4)
