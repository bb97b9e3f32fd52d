# SPDX-License-Identifier: Apache-2.0
"""
torch_gpt - 12 training steps of a GPT-2-style model, 8 layers of width 512, with a new sequence length in every
step: the sizes change all the time, which is what fragments a pool. bf16 autocast.
"""
import random

import passes

STEPS, LAYERS, WIDTH, HEADS, VOCABULARY, BATCH = 12, 8, 512, 8, 16384, 16
MIN_LENGTH, MAX_LENGTH = 64, 512


def make_model(torch):
    nn = torch.nn
    functional = nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before_attention, self.before_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

        def forward(self, x):
            batch, length, _ = x.shape
            qkv = self.qkv(self.before_attention(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.projection(y.transpose(1, 2).reshape(batch, length, WIDTH))
            return x + self.mlp(self.before_mlp(x))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(MAX_LENGTH, WIDTH)
            self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

        def forward(self, tokens):
            positions = torch.arange(tokens.shape[1], device=tokens.device)
            return self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions(positions))))

    return Model().cuda()


def train(torch):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    # Backends whose backward is deterministic on request; the others add with atomics.
    backends = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]

    def run_pass(clock, outputs):
        torch.manual_seed(5)
        lengths = random.Random(5)
        model = make_model(torch)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
        losses = []
        clock.start()
        for _ in range(STEPS):
            length = lengths.randint(MIN_LENGTH, MAX_LENGTH)
            tokens = torch.randint(VOCABULARY, (BATCH, length + 1), device="cuda")
            with torch.autocast("cuda", dtype=torch.bfloat16), sdpa_kernel(backends):
                logits = model(tokens[:, :-1])
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        clock.stop()
        outputs.add(torch.stack(losses).float().cpu().numpy())
        passes.add_model(outputs, model)

    return run_pass


torch = passes.require_torch()
passes.run("torch_gpt", torch.cuda.synchronize, train(torch), passes=4)
