"""Makes a run's environments and networks, by `--env` and `--network` or by callables given from Python."""

import dataclasses
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from monobeast import environments, seeding, user_code
from monobeast.config import Config
from monobeast.environments import EnvironmentMaker, Spaces, VectorEnvironment, own
from monobeast.errors import describe
from monobeast.networks import Network, NetworkMaker, make_network


class Makers(NamedTuple):
    """Callables that replace `--network` and `--env`; None where the settings apply.

    Every process of a run makes its own networks and environments, so the callables are pickled on the way to actors.
    """

    network: NetworkMaker | None = None
    environments: EnvironmentMaker | None = None

    def record(self, config: Config) -> Config:
        """The settings with the callables' names as `network` and `env`.

        Raises:
            ValueError: one of them is not callable, or the setting that it replaces was given, too.
        """
        names = {}
        if self.network is not None:
            self._require_free("network", "network", self.network, config)
            names["network"] = user_code.name_of(self.network)
        if self.environments is not None:
            self._require_free("env", "make_environments", self.environments, config)
            names["env"] = user_code.record_call(self.environments)
        return dataclasses.replace(config, **names)

    def pickle(self) -> bytes:
        """Pickles the makers for actor processes.

        Raises:
            ValueError: one of them cannot be pickled; the message says which and why.
        """
        for argument, maker in (("network", self.network), ("make_environments", self.environments)):
            try:
                pickle.dumps(maker)
            except Exception as error:
                reason = f"cannot be pickled, as what goes to actor processes must be ({describe(error)})"
                way_out = "define it at the top level of a module, or use num_actors=0"
                raise ValueError(f"{argument}={user_code.name_of(maker)}: {reason}; {way_out}") from error
        return pickle.dumps(self)

    def check_environments(self, config: Config) -> Spaces:
        """Tries environments before any process starts, as `environments.check` does. `config` is resolved."""
        return environments.check(config) if self.environments is None else own.check(self.environments, config)

    def make_environments(self, config: Config, num_envs: int, seeds: Sequence[int]) -> VectorEnvironment:
        """Makes E environments; see `environments.make`."""
        if self.environments is None:
            return environments.make(config, num_envs, seeds)
        return self.environments(config, num_envs, seeds)

    def make_network(self, config: Config, spaces: Spaces) -> Network:
        """Makes a network on the CPU by `make_network`. All networks of a run start with equal weights and buffers.

        Does not change the caller's random state.
        """
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(seeding.network_seed(config.seed))  # of the CPU alone
            shapes = spaces.observation, spaces.action
            network = self.network or config.network
            how = config.use_lstm, config.precision, config.memory_format, config.normalize_observations
            return make_network(*shapes, network, *how)

    def _require_free(self, setting: str, argument: str, maker: Any, config: Config) -> None:
        """Raises ValueError unless `maker` can replace a setting."""
        if not callable(maker):
            raise ValueError(f"{argument}={maker!r}: must be callable")
        value = getattr(config, setting)
        if value != getattr(Config, setting):
            raise ValueError(f"--{setting} {value}: not with {argument}=, which stands in its place")
