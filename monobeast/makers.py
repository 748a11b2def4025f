"""What makes a run's environments and its networks: by `--env` and `--network`, or by callables given from Python."""

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
    """What stands in the place of `--network` and `--env`; None where those say what to make.

    Every process of a run makes its own networks and environments: on the way to actors these are pickled.
    """

    network: NetworkMaker | None = None
    environments: EnvironmentMaker | None = None

    def record(self, config: Config) -> Config:
        """The settings with the names of these in place of `network` and `env`.

        Raises:
            ValueError: one of these is not callable, or the setting in whose place it stands was given too.
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
        """These as actor processes get them.

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
        """Tries environments before any process starts; see `environments.check`. `config` is resolved."""
        return environments.check(config) if self.environments is None else own.check(self.environments, config)

    def make_environments(self, config: Config, num_envs: int, seeds: Sequence[int]) -> VectorEnvironment:
        """Makes E environments; see `environments.make`."""
        if self.environments is None:
            return environments.make(config, num_envs, seeds)
        return self.environments(config, num_envs, seeds)

    def make_network(self, config: Config, spaces: Spaces) -> Network:
        """Makes a network on the CPU; see `make_network`. Each one of a run is drawn alike, buffers as well as weights.

        The caller's random numbers stay as they were.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seeding.network_seed(config.seed))
            shapes = spaces.observation, spaces.action
            network = self.network or config.network
            how = config.use_lstm, config.precision, config.memory_format, config.normalize_observations
            return make_network(*shapes, network, *how)

    def _require_free(self, setting: str, argument: str, maker: Any, config: Config) -> None:
        """Raises ValueError unless `maker` can stand in the place of a setting."""
        if not callable(maker):
            raise ValueError(f"{argument}={maker!r}: must be callable")
        value = getattr(config, setting)
        if value != getattr(Config, setting):
            raise ValueError(f"--{setting} {value}: not with {argument}=, which stands in its place")
