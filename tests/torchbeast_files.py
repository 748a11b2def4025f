"""Checkpoints as TorchBeast's MonoBeast writes them, of a network with its layers."""

import torch
from torch import nn
from torch.nn import functional as F

NUM_ACTIONS = 6
UNROLL_LENGTH, BATCH_SIZE, TOTAL_STEPS = 80, 8, 30_000
FLAGS = {
    "env": "PongNoFrameskip-v4",
    "mode": "train",
    "xpid": "torchbeast-example",
    "num_actors": 4,
    "num_buffers": 8,
    "total_steps": TOTAL_STEPS,
    "batch_size": BATCH_SIZE,
    "unroll_length": UNROLL_LENGTH,
    "num_learner_threads": 2,
    "disable_cuda": False,
    "entropy_cost": 0.0006,
    "baseline_cost": 0.5,
    "discounting": 0.98,
    "reward_clipping": "abs_one",
    "learning_rate": 0.0005,
    "alpha": 0.9,
    "momentum": 0,
    "epsilon": 0.02,
    "device": torch.device("cpu"),
}


class AtariLayers(nn.Module):
    """Three convolutions, a layer of 512, perhaps two LSTM layers; features, reward and action side by side."""

    def __init__(self, use_lstm):
        super().__init__()
        self.conv1 = nn.Conv2d(4, 32, 8, stride=4)
        self.conv2 = nn.Conv2d(32, 64, 4, stride=2)
        self.conv3 = nn.Conv2d(64, 64, 3)
        self.fc = nn.Linear(64 * 7 * 7, 512)
        width = 512 + 1 + NUM_ACTIONS
        if use_lstm:
            self.core = nn.LSTM(width, width, num_layers=2)
        self.policy = nn.Linear(width, NUM_ACTIONS)
        self.baseline = nn.Linear(width, 1)

    def forward(self, frame, reward, done, last_action, state):
        """Logits [T, B, A], baseline [T, B], state; `done` [T, B] says which steps begin an episode."""
        num_steps, num_columns = done.shape
        x = frame.flatten(0, 1) / 255
        for convolution in (self.conv1, self.conv2, self.conv3):
            x = convolution(x).relu()
        x = self.fc(x.flatten(1)).relu().view(num_steps, num_columns, -1)
        x = torch.cat([x, reward.clamp(-1, 1)[..., None], F.one_hot(last_action, NUM_ACTIONS)], -1)
        if hasattr(self, "core"):
            steps = []
            for t in range(num_steps):
                state = tuple(part * ~done[t, :, None] for part in state)
                step, state = self.core(x[t : t + 1], state)
                steps.append(step)
            x = torch.cat(steps)
        return self.policy(x), self.baseline(x).squeeze(-1), state


def make_checkpoint(use_lstm=False, num_updates=2, momentum=0.0, **flags):
    """Network, optimizer, and content of `model.tar` after some updates with made-up gradients."""
    torch.manual_seed(1)
    network = AtariLayers(use_lstm)
    optimizer = torch.optim.RMSprop(network.parameters(), lr=5e-4, alpha=0.9, eps=0.02, momentum=momentum)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 - epoch * 640 / TOTAL_STEPS)
    for update in range(num_updates):
        step_with(network, optimizer, update)
        scheduler.step()
    content = {
        "model_state_dict": network.state_dict(),
        "optimizer_state_dict": optimizer.state_dict(),
        "scheduler_state_dict": scheduler.state_dict(),
        "flags": FLAGS | {"use_lstm": use_lstm, "momentum": momentum} | flags,
    }
    return network, optimizer, content


def gradients_of(network, seed):
    """A made-up gradient for each parameter, by its name."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(weight.shape, generator=generator) for name, weight in network.named_parameters()}


def step_with(network, optimizer, seed):
    for name, gradient in gradients_of(network, seed).items():
        network.get_parameter(name).grad = gradient
    optimizer.step()
